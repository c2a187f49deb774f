package lease_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/quotient-go/quotient/lease"
)

// A restore is done whole or not at all, and may be repeated.
func FuzzRestore(f *testing.F) {
	f.Add(`{"expires_in":"5m","peer_id":42,"acquired":{"A":3,"C":1},"tokens":{"A":17}}`)
	f.Fuzz(func(t *testing.T, body string) {
		s := served(t, lease.Config{}, lease.ServerOptions{})
		w := sent(s, "POST", "/restore", body)
		st := s.Stats()
		var held int64
		for _, a := range st.Semaphores {
			held += a.Acquired
		}
		if w.Code != http.StatusOK {
			if st.Peers != 0 || held != 0 || w.Code != 400 && w.Code != 409 && w.Code != 413 &&
				w.Code != 422 {
				t.Fatalf("%q: %d %s, %d peers hold %d", body, w.Code, w.Body, st.Peers, held)
			}
			return
		}
		var back struct{ Acquired map[string]int64 }
		if err := json.Unmarshal([]byte(body), &back); err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		for _, n := range back.Acquired {
			held -= n
		}
		if w := sent(s, "POST", "/restore", body); w.Code != http.StatusOK && held != 0 {
			t.Fatalf("%q: again %d %s, differs by %d", body, w.Code, w.Body, held)
		}
	})
}

// A count is read as encoding/json reads it.
func FuzzCount(f *testing.F) {
	f.Add(" 1 ")
	f.Fuzz(func(t *testing.T, body string) {
		s := served(t, lease.Config{}, lease.ServerOptions{})
		sent(s, "POST", "/restore", restoreOne)
		w := sent(s, "PUT", "/peers/1/C", body)
		want := http.StatusOK
		var n *int64
		switch err := json.Unmarshal([]byte(body), &n); {
		case !json.Valid([]byte(body)):
			want = http.StatusBadRequest
		case err != nil || n == nil:
			want = http.StatusUnprocessableEntity
		case *n < 1:
			want = http.StatusBadRequest
		case *n > 5:
			want = http.StatusConflict
		}
		if w.Code != want {
			t.Fatalf("%q: %d %s, want %d", body, w.Code, w.Body, want)
		}
		if want != http.StatusOK {
			return
		}
		if w := sent(s, "GET", "/remainder?semaphore=C", ""); w.Body.String() != strconv.FormatInt(5-*n, 10) {
			t.Fatalf("%q: another count is held", body)
		}
	})
}

// Any path is answered, and a name that is escaped is found again.
func FuzzPath(f *testing.F) {
	f.Add("PUT", "/peers/1/%2F%26", "/&")
	f.Fuzz(func(t *testing.T, method, path, name string) {
		if name == "" || len(name) > 1024 {
			name = "A"
		}
		s := served(t, lease.Config{Semaphores: map[string]lease.Semaphore{name: {Max: 1}}},
			lease.ServerOptions{})
		sent(s, "POST", "/restore", restoreOne)
		if u, err := url.ParseRequestURI(path); err == nil {
			r := httptest.NewRequest("GET", "/", strings.NewReader("1"))
			r.Method, r.URL = method, u
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			if s.ServeHTTP(w, r); w.Code < 200 || w.Code > 422 {
				t.Fatalf("%s %q: %d", method, path, w.Code)
			}
		}
		sent(s, "DELETE", "/peers/1", "")
		sent(s, "POST", "/restore", restoreOne)
		if w := sent(s, "PUT", "/peers/1/"+url.PathEscape(name), "1"); w.Code != http.StatusOK {
			t.Fatalf("name %q: %d %s", name, w.Code, w.Body)
		}
		if w := sent(s, "GET", "/remainder?semaphore="+url.QueryEscape(name), ""); w.Body.String() != "0" {
			t.Fatalf("name %q: %d %s", name, w.Code, w.Body)
		}
	})
}
