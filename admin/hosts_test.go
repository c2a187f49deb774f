package admin

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestHostIsTheAddressItCameTo checks that a request may name the address of this machine that it came to:
// Prometheus asks a pod by its address. It needs credentials then: without, only loopback is served.
func TestHostIsTheAddressItCameTo(t *testing.T) {
	l := newLimiter(t)
	for _, tt := range []struct {
		host, at string
		opts     []Option
		want     int
	}{
		{"10.1.2.3:4041", "10.1.2.3:4041", []Option{Token(secret)}, 200},
		{"10.1.2.3", "10.1.2.3:4041", []Option{Token(secret)}, 200},
		{"10.1.2.3:80", "10.1.2.3:4041", []Option{Token(secret)}, 200}, // a port that is forwarded
		{"[2001:db8::7]:4041", "[2001:db8::7]:4041", []Option{Token(secret)}, 200},
		{"10.1.2.3:4041", "[::ffff:10.1.2.3]:4041", []Option{Token(secret)}, 200},
		{"10.1.2.4:4041", "10.1.2.3:4041", []Option{Token(secret)}, 403},
		{"rebound.example:4041", "10.1.2.3:4041", []Option{Token(secret)}, 403},
		{"10.1.2.3.evil.example", "10.1.2.3:4041", []Option{Token(secret)}, 403},
		{"", "10.1.2.3:4041", []Option{Token(secret)}, 403},
		{"10.1.2.3:4041", "", []Option{Token(secret)}, 403},
		{"10.1.2.3:4041", "10.1.2.3:4041", nil, 403},
		{"10.1.2.3:4041", "10.1.2.3:4041", []Option{BehindAuthentication()}, 403}, // as before
	} {
		req := overLoopback(httptest.NewRequest("GET", "/state", nil))
		req.Host = tt.host
		req.Header.Set("Authorization", "Bearer "+secret)
		if tt.at == "" {
			tt.at = "127.0.0.1:4041"
		}
		at, err := net.ResolveTCPAddr("tcp", tt.at)
		if err != nil {
			t.Fatal(err)
		}
		req = req.WithContext(context.WithValue(req.Context(), http.LocalAddrContextKey, net.Addr(at)))
		rec := httptest.NewRecorder()
		if quiet(t, l, tt.opts...).ServeHTTP(rec, req); rec.Code != tt.want {
			t.Errorf("Host %q of a connection to %s: status %d, want %d", tt.host, tt.at, rec.Code, tt.want)
		}
	}
}
