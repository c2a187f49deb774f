package door

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/protobuf/proto"
)

// FuzzDescription: a question is decided on as it says, or answered with 400.
func FuzzDescription(f *testing.F) {
	f.Add("forward-auth", "GET", "a.example", "/", "192.0.2.7")
	f.Add("forward-auth", "POST", "shop.example:81", "/pay/%2e%2e/x?item=1", "6.6.6.6, 10.0.0.9,2001:db8::1")
	f.Add("forward-auth", "GET", "a", "/", "192.0.2.7,")
	f.Add("nginx", "GET", "[::1]", "//a/../b;x", "unix:")
	f.Add("nginx", "G T", "a\x00b", "*", "::ffff:1.2.3.4%eth0")
	f.Add("haproxy", "TRACE", "", "http://a/b", "[2001:db8::1]:80")
	f.Add("envoy", "get", "é", "/%zz\x7f", "1.2.3.4:99999")
	f.Fuzz(func(t *testing.T, profile, verb, name, uri, from string) {
		p := profiles[profile]
		if p == nil {
			return
		}
		r := httptest.NewRequest(http.MethodGet, "/decide", nil)
		is := parts{verb, name, uri, from}
		r.Method, r.Host, r.RequestURI = verb, name, decidePath+uri
		for i, field := range p.fields {
			if field != "" {
				r.Header[field] = []string{is[i]}
			}
		}
		r.Header["Upgrade"], r.Header["X-Tenant"] = []string{"websocket"}, []string{"a"}
		q, err := p.read(r)
		if err != nil {
			return
		}
		got := &q.request
		want(t, "method", got.Method, verb)
		want(t, "host", got.Host, name)
		want(t, "target", got.RequestURI, uri)
		want(t, "fields of the connection", len(got.Header["Upgrade"]), 0)
		want(t, "fields of the client", len(got.Header["X-Tenant"]), 1)
		want(t, "target begins with a slash", uri[0], '/')
		for _, field := range p.fields {
			if field != forwardedFor {
				want(t, field, len(got.Header[field]), 0)
			}
		}
		last := strings.Trim(from[strings.LastIndexByte(from, ',')+1:], " \t")
		at, known := addrOf(last)
		want(t, "an address, or none", known || last == ofUnix, true)
		if again, ok := addrOf(got.RemoteAddr); known {
			want(t, "address", again, at)
			want(t, "address is read", ok, true)
		}
	})
}

// FuzzHolding: any query is an error, or asks for what may be held.
func FuzzHolding(f *testing.F) {
	for _, query := range []string{
		"", "hold=30s", "hold=24h", "hold=-1s", "hold=0", "hold=", "hold=1s&hold=2s", "a=b&hold=1h1ns", "hold=%31s",
		"hold=%zz", "hold=9999999h", "hold=9223372036854775807ns", "hold;x", "=&&",
	} {
		f.Add(query)
	}
	s := &settings{profile: profiles["haproxy"], maxHold: time.Minute}
	f.Fuzz(func(t *testing.T, query string) {
		r := httptest.NewRequest(http.MethodPost, "/decide", nil)
		r.URL.RawQuery = query
		most, err := s.holding(r)
		want(t, "within max-hold", most >= 0 && most <= time.Minute && (err == nil || most == 0), true)
	})
}

// FuzzToken: a text is a token in one spelling of either case, or none.
func FuzzToken(f *testing.F) {
	for _, text := range []string{"", "0", strings.Repeat("0", 32), strings.Repeat("fF", 16), strings.Repeat("g", 32)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if got, ok := readToken(text); ok {
			want(t, "token", got.String(), strings.ToLower(text))
		}
	})
}

// FuzzCheck: any message of Envoy's is answered, and the answer can be sent.
func FuzzCheck(f *testing.F) {
	for _, raw := range []bool{false, true} {
		s := plain()
		s.header = http.Header{"X-Tenant": {"a", "b"}, "X-Forwarded-For": {"1.2.3.4"}, "Content-Type": {"application/grpc"}}
		text, err := proto.Marshal(s.attributes(raw))
		must(f, err)
		f.Add(text)
	}
	f.Add([]byte{})
	w := newWorld(f, "envoy")
	f.Fuzz(func(t *testing.T, text []byte) {
		in := new(authv3.CheckRequest)
		if proto.Unmarshal(text, in) != nil {
			return
		}
		res, err := w.door.Check(ofPeer(t.Context(), asker), in)
		if err == nil {
			_, err = proto.Marshal(res)
			must(t, err)
			want(t, "it is one of both", (res.GetStatus().GetCode() == 0) == (res.GetOkResponse() != nil), true)
		}
	})
}
