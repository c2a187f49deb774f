package admin

import (
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/tested"
)

// TestStateNamesTheReplica: by the host's name, or by the one that the program gives.
func TestStateNamesTheReplica(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Skip(err)
	}
	tested.Want(t, "the replica", decode[State](t, get("/state").send(t, quiet(t, newLimiter(t)))).Process.Replica, host)
	for _, name := range []string{"pod-7", "ä", strings.Repeat("x", 253), "rack 3 / 7"} {
		s := decode[State](t, get("/state").send(t, quiet(t, newLimiter(t), Replica(name))))
		tested.Want(t, "the replica", s.Process.Replica, name)
	}
	for _, name := range []string{"", strings.Repeat("x", 254), "a\nb", "\x80", "\u202epod"} {
		_, err := New(new(quotient.Registry), Replica(name))
		if err == nil || !strings.Contains(err.Error(), "Replica: name: ") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestStateListsWhatTheCallerMay: in answers to reads and to writes.
func TestStateListsWhatTheCallerMay(t *testing.T) {
	guarded := quiet(t, newLimiter(t), Token(secret), ReadOnlyToken(looker))
	open := quiet(t, newLimiter(t))
	both := []string{"read", "write"}
	for _, tt := range []struct {
		method, body, token string
		h                   http.Handler
		want                []string
	}{
		{"GET", "", "", open, both},
		{"GET", "", secret, guarded, both},
		{"GET", "", looker, guarded, []string{"read"}},
		{"PUT", `{"replicas":2}`, "", open, both},
		{"PUT", `{"replicas":2}`, secret, guarded, both},
	} {
		req := request{method: tt.method, path: "/state", body: tt.body, header: http.Header{}}
		if tt.method == "PUT" {
			req.path = "/replicas"
		}
		if tt.token != "" {
			req.header.Set("Authorization", "Bearer "+tt.token)
		}
		if got := decode[State](t, req.send(t, tt.h)).May; !slices.Equal(got, tt.want) {
			t.Errorf("%s with token %q: may %q, want %q", tt.method, tt.token, got, tt.want)
		}
	}
}
