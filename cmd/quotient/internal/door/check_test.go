package door

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/quotient-go/quotient/internal/tested"
)

// plain is a request that no rule has an opinion about.
func plain() sent { return sent{"GET", "a.example", "/", "192.0.2.7", http.Header{}} }

// valueOf is the value of a field for the client, "" if there is none.
func valueOf(res *authv3.CheckResponse, name string) string {
	for _, one := range append(res.GetDeniedResponse().GetHeaders(), res.GetOkResponse().GetResponseHeadersToAdd()...) {
		if one.GetHeader().GetKey() == name {
			return one.GetHeader().GetValue()
		}
	}
	return ""
}

// TestCheck: what Envoy gets for the second of two requests that are the same.
func TestCheck(t *testing.T) {
	with := func(method, target string, field ...string) sent {
		s := plain()
		s.method, s.target = method, target
		for _, line := range field {
			name, value, _ := strings.Cut(line, ": ")
			s.header.Add(name, value)
		}
		return s
	}
	for name, c := range map[string]struct {
		ask    sent
		raw    bool
		status int // 0: it goes on
		fields string
		body   string
		keys   string
	}{
		"refused": {
			plain(), false, 429, "retry-after, content-type, ratelimit, ratelimit-policy", `"status":429`, `all "192.0.2.7"`,
		},
		"exempt, for a protocol of no good name": {
			with("GET", "/free/", "Connection: Upgrade", "Upgrade: é"), false, 0, "", "", "",
		},
		"behind a trusted peer": {
			sent{"GET", "a.example", "/", "10.0.0.9", http.Header{"X-Forwarded-For": {"6.6.6.6, 192.0.2.9, 10.0.0.9"}}}, false,
			429, "retry-after", "429", `all "192.0.2.9"`,
		},
		"in the rule's words": {with("POST", "/pay/", "X-Tenant: a"), true, 503, "retry-after", "later", `tenants "a"`},
		"a field twice, joined by Envoy": {
			with("POST", "/pay/", "X-Tenant: a", "X-Tenant: b"), false, 503, "", "later", `tenants "a,b"`,
		},
		"a field twice, raw": {with("POST", "/pay/", "X-Tenant: a", "X-Tenant: b"), true, 400, "", "X-Tenant", ""},
		"a call of gRPC": {
			with("POST", "/", "Content-Type: application/grpc"), false,
			403, "grpc-status, grpc-message, grpc-retry-pushback-ms, retry-after", "", `all "192.0.2.7"`,
		},
		"an ambiguous path":  {with("GET", "/x%2f..%2fpath/a"), false, 400, "content-type", "several ways", ""},
		"no path":            {with("OPTIONS", "*"), false, 400, "", `the path is "*", want a path`, ""},
		"no host":            {sent{"GET", "", "/", "192.0.2.7", nil}, false, 400, "", `the host is "", want a host`, ""},
		"no method":          {sent{"", "a", "/", "192.0.2.7", nil}, false, 400, "", `the method is "", want a method`, ""},
		"no address":         {sent{"GET", "a", "/", "evil", nil}, false, 400, "", `the source address is "evil"`, ""},
		"what is no request": {with("GET", "/%zz"), true, 400, "", `the path is "/%zz"`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "envoy")
			ctx := ofPeer(t.Context(), asker)
			_, err := w.door.Check(ctx, c.ask.attributes(c.raw))
			must(t, err)
			res, err := w.door.Check(ctx, c.ask.attributes(c.raw))
			must(t, err)
			_, err = proto.Marshal(res)
			must(t, err)
			want(t, "keys", w.keys(), c.keys)
			if c.status == 0 {
				want(t, "code", codes.Code(res.GetStatus().GetCode()), codes.OK)
				want(t, "it goes on", res.GetOkResponse() != nil, true)
				return
			}
			want(t, "code", codes.Code(res.GetStatus().GetCode()), codes.PermissionDenied)
			want(t, "status", int(res.GetDeniedResponse().GetStatus().GetCode()), c.status)
			body := res.GetDeniedResponse().GetBody()
			tested.Not(t, !strings.Contains(body, c.body) || c.body == "" && body != "", "body %q, want %q in it", body, c.body)
			for name := range strings.SplitSeq(c.fields, ", ") {
				tested.Not(t, name != "" && valueOf(res, name) == "", "there is no field %s", name)
			}
			want(t, "a length, which Envoy finds itself", valueOf(res, "content-length"), "")
		})
	}
}

// TestCheckAdmits: where a client stands goes to it, and lists stand beside those of the upstream.
func TestCheckAdmits(t *testing.T) {
	w := newWorld(t, "envoy")
	res, err := w.door.Check(ofPeer(t.Context(), asker), plain().attributes(false))
	must(t, err)
	var got []string
	for _, one := range res.GetOkResponse().GetResponseHeadersToAdd() {
		got = append(got, one.GetHeader().GetKey())
		want(t, "action", one.GetAppendAction(), corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD)
	}
	want(t, "fields", len(got), 2)
	for _, one := range options(http.Header{"X-Ratelimit-Limit": {"1"}}, true) {
		want(t, "action", one.GetAppendAction(), corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD)
	}
}

// TestCheckFaults: what clients have no part in is an error.
func TestCheckFaults(t *testing.T) {
	whole := plain().attributes(false)
	without := func(f func(*authv3.AttributeContext)) *authv3.CheckRequest {
		in := proto.Clone(whole).(*authv3.CheckRequest)
		f(in.Attributes)
		return in
	}
	ofUnix := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.UnixAddr{Net: "unix"}})
	for name, c := range map[string]struct {
		ctx  context.Context
		in   *authv3.CheckRequest
		code codes.Code
	}{
		"on loopback":       {ofPeer(t.Context(), asker), whole, codes.OK},
		"trusted":           {ofPeer(t.Context(), "10.1.2.3:1"), whole, codes.OK},
		"at a Unix socket":  {ofUnix, whole, codes.OK},
		"a stranger":        {ofPeer(t.Context(), "192.0.2.1:1"), whole, codes.PermissionDenied},
		"nobody":            {t.Context(), whole, codes.PermissionDenied},
		"an empty question": {ofUnix, new(authv3.CheckRequest), codes.InvalidArgument},
		"no question":       {ofUnix, nil, codes.InvalidArgument},
		"no request": {
			ofUnix, without(func(a *authv3.AttributeContext) { a.Request.Http = nil }), codes.InvalidArgument,
		},
		"no source": {ofUnix, without(func(a *authv3.AttributeContext) { a.Source = nil }), codes.InvalidArgument},
		"a client at a Unix socket": {
			ofUnix, without(func(a *authv3.AttributeContext) {
				a.Source.Address = &corev3.Address{Address: &corev3.Address_Pipe{Pipe: new(corev3.Pipe)}}
			}), codes.OK,
		},
	} {
		_, err := newWorld(t, "envoy").door.Check(c.ctx, c.in)
		want(t, name, status.Code(err), c.code)
	}
	_, err := New(nil).Check(ofUnix, whole)
	want(t, "before a file", status.Code(err), codes.Unavailable)
}

// TestUnknownStatus: Envoy knows some statuses only.
func TestUnknownStatus(t *testing.T) {
	for status, wanted := range map[int]int{429: 429, 503: 503, 599: 403, 451: 403} {
		got := denied(status, nil, "\xff").GetDeniedResponse()
		want(t, fmt.Sprint(status), int(got.GetStatus().GetCode()), wanted)
		want(t, "body", got.GetBody(), "?")
	}
}
