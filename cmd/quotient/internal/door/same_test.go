package door

import (
	"fmt"
	"net/http"
	"testing"

	"pgregory.net/rapid"
)

// clients are requests that rules tell apart, and some that servers read in several ways.
var clients = rapid.Custom(func(t *rapid.T) sent {
	of := func(name string, all ...string) string { return rapid.SampledFrom(all).Draw(t, name) }
	s := sent{
		method: of("method", "GET", "POST", "PUT", "OPTIONS", "TRACE", "post"),
		host:   of("host", "a.example", "shop.example", "Shop.Example:80", "shop.example."),
		target: of("root", "/", "/pay/", "/path/", "/PATH/", "/free/", "/slots/", "//pay/", "/./path/"),
		from:   of("from", "192.0.2.7", "192.0.2.8", "10.0.0.9", "2001:db8::1", "::ffff:192.0.2.7"),
		header: http.Header{},
	}
	for range rapid.IntRange(0, 3).Draw(t, "parts") {
		s.target += of("part", "a", "b/", "/", "..", ".", ";x", "%2f", "%2e%2e/", "%5c", "%25", "%zz", "|", `"`, "é")
	}
	s.target += of("query", "", "?", "?item=1", "?item=2&item=3", "?item=%zz", "?hold=1m&token=x", "?item=1?x")
	for name, lines := range map[string][]string{
		"X-Tenant": {"a", "b", ""}, "X_Tenant": {"c"}, "X-Forwarded-For": {"6.6.6.6", "10.0.0.8, 192.0.2.9", "evil"},
		"X-Forwarded-Uri": {"/free/"}, "X-Original-Uri": {"/free/"}, "X-Real-Ip": {"7.7.7.7"}, "Quotient-Hold": {"1m"},
		"Connection": {"X-Tenant, close"}, "Content-Type": {"application/grpc", "text/plain"},
	} {
		for range rapid.IntRange(0, 2).Draw(t, name) {
			s.header.Add(name, of("line", lines...))
		}
	}
	return s
})

// TestSameDecision: a request that comes to quotient proxy has the same answer as one that another proxy asks about, and
// leaves the same keys.
func TestSameDecision(t *testing.T) {
	for _, profile := range []string{"forward-auth", "nginx", "haproxy", "envoy"} {
		t.Run(profile, rapid.MakeCheck(func(t *rapid.T) {
			itself, asked := newWorld(t, profile), newWorld(t, profile)
			for _, s := range rapid.SliceOfN(clients, 1, 6).Draw(t, "requests") {
				if profile == "envoy" { // Envoy itself finds the client behind those that it trusts
					s.header.Del("X-Forwarded-For")
				}
				r, ok := s.parsed()
				if !ok && profile == "envoy" {
					continue // no server passes such a question on
				}
				got := do(asked.door, s.described(profile))
				if !ok {
					want(t, "decision on what is no request", decision(got), "400")
					continue
				}
				wanted := do(itself.proxy, r)
				want(t, fmt.Sprintf("decision on %v", s), decision(got), fmt.Sprint(wanted.StatusCode))
				for _, name := range []string{"Retry-After", "Ratelimit", "Ratelimit-Policy"} {
					want(t, name, got.Header.Get(name) != "", wanted.Header.Get(name) != "")
				}
				want(t, "keys", asked.keys(), itself.keys())
			}
		}))
	}
}

// parsed is request, unless the target is none.
func (s sent) parsed() (r *http.Request, ok bool) {
	defer func() { ok = recover() == nil }() // of httptest.NewRequest
	return s.request(), true
}

// TestSameDecisionOverGRPC is TestSameDecision for Check, with raw headers.
func TestSameDecisionOverGRPC(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		itself, asked := newWorld(t, "envoy"), newWorld(t, "envoy")
		for _, s := range rapid.SliceOfN(clients, 1, 6).Draw(t, "requests") {
			r, ok := s.parsed()
			res, err := asked.door.Check(ofPeer(t.Context(), asker), s.attributes(true))
			must(t, err)
			status := int(res.GetDeniedResponse().GetStatus().GetCode())
			if res.GetOkResponse() != nil {
				status = http.StatusOK
			}
			if !ok {
				want(t, "status of what is no request", status, http.StatusBadRequest)
				continue
			}
			r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/2.0", 2, 0
			wanted := do(itself.proxy, r)
			if code := wanted.Header.Get("Grpc-Status"); code != "" {
				want(t, "grpc-status", valueOf(res, "grpc-status"), code)
			} else {
				want(t, fmt.Sprintf("decision on %v", s), status, wanted.StatusCode)
			}
			want(t, "keys", asked.keys(), itself.keys())
		}
	})
}
