package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// direct hands requests to a handler without a network.
type direct struct{ http.Handler }

func (d direct) RoundTrip(req *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	d.ServeHTTP(w, req)
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	return w.Result(), nil
}

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		s, start := &service{}, time.Now()
		if err := run(t.Context(), &out, s, "http://h", direct{s}); err != nil {
			t.Errorf("%v\n%s", err, out.String())
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("it took %v", took)
		}
		said := out.String()
		for _, want := range []string{"it was restored", "Ben notices: lease: lost",
			"a newer holder has written"} {
			if !strings.Contains(said, want) {
				t.Errorf("%q is missing in\n%s", want, said)
			}
		}
		notices, granted := strings.Index(said, "Ben notices"), strings.LastIndex(said, "Cleo holds")
		if notices < 0 || notices > granted {
			t.Errorf("Ben notices after Cleo has the lock:\n%s", said)
		}
	})
}

func TestStore(t *testing.T) {
	var s store
	for _, w := range []struct {
		token uint64
		ok    bool
	}{{5, true}, {5, true}, {7, true}, {6, false}, {7, true}} {
		if err := s.write(w.token, "line"); (err == nil) != w.ok {
			t.Errorf("token %d: %v", w.token, err)
		}
	}
}
