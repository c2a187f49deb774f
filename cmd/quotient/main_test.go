package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/quotient-go/quotient/cmd/quotient/internal/cmdline"
	"github.com/quotient-go/quotient/internal/tested"
)

// asProgram is the environment variable that makes a test's binary the program itself. So what is tested has
// the race detector, and the files that a guard has changed.
const asProgram = "QUOTIENT_TEST_AS_PROGRAM"

// endsWithInput is a value of asProgram: the program ends when its input does, which is at the latest when a test
// that panics ends without its clean-up.
const endsWithInput = "ends with its input"

func TestMain(m *testing.M) {
	switch os.Getenv(asProgram) {
	case "":
		goleak.VerifyTestMain(m)
		return
	case endsWithInput:
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(exitFailed)
		}()
	}
	main()
}

// nowhere is an address where nothing listens.
const nowhere = "127.0.0.1:1"

var must = tested.Must

func fails(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("the error is %v, want %q", err, text)
	}
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %+v, want %+v", what, got, want)
	}
}

func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing in:\n%s", part, text)
		}
	}
}

// ran runs a command line in this process, requires its exit code and a text on stderr, or nothing there, and
// returns what it prints.
func ran(t *testing.T, code int, errors string, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if got := run(t.Context(), args, cmdline.Streams{Out: &out, Err: &errs}); got != code {
		t.Errorf("%q: exit %d, want %d: %s", args, got, code, &errs)
	}
	if contains(t, errs.String(), errors); errors == "" && errs.Len() > 0 {
		t.Errorf("%q: stderr has %q", args, &errs)
	}
	return out.String()
}

func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	path, err := os.Executable()
	must(t, err)
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), asProgram+"=yes")
	return cmd
}

// client has connections that no test leaves behind.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

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
	ctx, cancel := context.WithTimeout(context.Background(), tested.Patience)
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
