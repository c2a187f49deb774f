package grpclimit

import (
	"context"
	"net/http"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/quotient-go/quotient/httplimit"
)

// Call is a call that asks for its permit.
type Call struct {
	Context context.Context // of the call
	Method  string          // in full, as in /package.Service/Method
	Target  string          // what a client was made to connect to; empty on a server
}

// KeyFunc names what a call is limited by. Calls with equal keys share one quota, so a key must not hold
// anything that a client can vary for free. It is called once a call, from many goroutines at a time. A key
// of more than 256 bytes is replaced by its SHA-256.
type KeyFunc func(Call) string

// FullMethod returns a KeyFunc that limits by the full name of the method. On a server with an
// UnknownServiceHandler clients choose it.
func FullMethod() KeyFunc { return func(c Call) string { return c.Method } }

// Target returns a KeyFunc that limits by the target of the client's connection, such as "dns:///host:443".
// On a server all calls share the key "".
func Target() KeyFunc { return func(c Call) string { return c.Target } }

// Metadata returns a KeyFunc that limits by the first value of a metadata key, whose case does not matter. On
// a server that is what came, on a client what is sent. Calls without it share the key "" with those that
// send it empty. A client chooses the value: use it behind something that has checked it, or a client has as
// many quotas as it can invent values.
func Metadata(name string) KeyFunc {
	return func(c Call) string {
		var values []string
		if c.Target == "" {
			values = metadata.ValueFromIncomingContext(c.Context, name)
		} else if md, ok := metadata.FromOutgoingContext(c.Context); ok {
			values = md.Get(name)
		}
		if len(values) == 0 {
			return ""
		}
		return values[0]
	}
}

// Peer returns a KeyFunc that limits a server's calls by the client's address, as httplimit.ClientAddr does
// without trusted networks: IPv6 addresses share a key with their /64. Behind a proxy that is the proxy's.
// Calls without a peer that has an IP address share one key, as all do on a client.
func Peer() KeyFunc {
	clientAddr := httplimit.ClientAddr()
	return func(c Call) string {
		r := new(http.Request)
		if p, ok := peer.FromContext(c.Context); ok && c.Target == "" && p.Addr != nil {
			r.RemoteAddr = p.Addr.String()
		}
		return clientAddr(r)
	}
}
