package main

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// patience bounds each wait for an event: it is long for a machine that is busy.
const patience = 30 * time.Second

// client has connections that no test leaves behind.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// answer is a response that was read.
type answer struct {
	status int
	header http.Header
	body   string
}

func get(t *testing.T, url string) answer {
	t.Helper()
	return ask(t, http.MethodGet, url, "")
}

// ask sends a request with a body in JSON, unless that is empty.
func ask(t *testing.T, method, url, body string) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return answer{}
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Errorf("%s %s: %v", method, url, err)
		return answer{}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Errorf("%s %s: %v", method, url, err)
	}
	return answer{resp.StatusCode, resp.Header, string(text)}
}
