package grpclimit

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

func TestKeys(t *testing.T) {
	in := metadata.NewIncomingContext(t.Context(), metadata.Pairs("tenant", "in", "tenant", "second", "token", "Bearer abc"))
	out := metadata.NewOutgoingContext(in, metadata.Pairs("tenant", "out"))
	addr := func(text string) context.Context {
		a, err := net.ResolveTCPAddr("tcp", text)
		if err != nil {
			t.Fatal(err)
		}
		return peer.NewContext(t.Context(), &peer.Peer{Addr: a})
	}
	unix := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.UnixAddr{Name: "/s"}})
	for _, tt := range []struct {
		name string
		key  KeyFunc
		call Call
		want string
	}{
		{"method", FullMethod(), Call{in, "/p.S/M", ""}, "/p.S/M"},
		{"target of a client", Target(), Call{out, "/p.S/M", "dns:///h:1"}, "dns:///h:1"},
		{"target on a server", Target(), Call{in, "/p.S/M", ""}, ""},
		{"metadata that came", Metadata("Tenant"), Call{in, "", ""}, "in"},
		{"metadata that is sent", Metadata("Tenant"), Call{out, "", "t"}, "out"},
		{"only what is sent", Metadata("Tenant"), Call{in, "", "t"}, ""},
		{"no metadata", Metadata("Tenant"), Call{t.Context(), "", ""}, ""},
		{"credential", Credential("Token"), Call{in, "", ""}, "credential:46e38e9ce4c432c3ca84636e27ba6242"},
		{"two credentials", Credential("Tenant"), Call{in, "", ""}, "(no credential)"},
		{"no credential", Credential("Token"), Call{t.Context(), "", ""}, "(no credential)"},
		{"IPv4", Peer(), Call{addr("203.0.113.9:5"), "", ""}, "203.0.113.9"},
		{"IPv4 in IPv6", Peer(), Call{addr("[::ffff:203.0.113.9]:5"), "", ""}, "203.0.113.9"},
		{"IPv6", Peer(), Call{addr("[2001:db8::1]:5"), "", ""}, "2001:db8::/64"},
		{"Unix socket", Peer(), Call{unix, "", ""}, "(no address)"},
		{"no peer", Peer(), Call{t.Context(), "", ""}, "(no address)"},
		{"peer of a client", Peer(), Call{addr("203.0.113.9:5"), "", "t"}, "(no address)"},
	} {
		if got := tt.key(tt.call); got != tt.want {
			t.Errorf("%s: key %q, want %q", tt.name, got, tt.want)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a secret is no mistake")
		}
	}()
	Metadata("authorization")
}

func TestKeysOfCalls(t *testing.T) {
	server, behindIt := limiter(t, oneSlot), limiter(t, oneSlot)
	long := strings.Repeat("x", 1000)
	client := connect(t, &service{}, Server(server, FullMethod()),
		Client(behindIt, func(c Call) string { return c.Target + long })...)
	if err := unary(deadline(t), client); err != nil {
		t.Fatal(err)
	}
	var keys []string
	for state := range server.Keys() {
		keys = append(keys, state.Key)
	}
	for state := range behindIt.Keys() {
		keys = append(keys, state.Key[:7])
	}
	if want := []string{"/grpc.testing.TestService/UnaryCall", "sha256:"}; !slices.Equal(keys, want) {
		t.Errorf("keys %q, want %q", keys, want)
	}
}
