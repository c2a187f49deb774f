package grpclimit

import (
	"context"
	"fmt"
	"net/http"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/quotient-go/quotient/httplimit"
	"github.com/quotient-go/quotient/internal/field"
)

// Call is a call before its permit.
type Call struct {
	Context context.Context // of the call
	Method  string          // in full, as in /package.Service/Method
	Target  string          // what a client was made to connect to; empty on a server
}

// KeyFunc returns the key that a call is limited by. Calls with equal keys share one quota, so a key must
// not contain anything that a client can vary for free. It is called once a call, from many goroutines at a
// time. A key of more than 256 bytes is replaced by its SHA-256.
type KeyFunc func(Call) string

// FullMethod returns a KeyFunc that limits by the full name of the method. On a server with an
// UnknownServiceHandler clients choose that name.
func FullMethod() KeyFunc { return func(c Call) string { return c.Method } }

// Target returns a KeyFunc that limits by the target of the client's connection, such as "dns:///host:443".
// On a server all calls share the key "".
func Target() KeyFunc { return func(c Call) string { return c.Target } }

// Metadata returns a KeyFunc that limits by the first value of a metadata key, whose case does not matter.
// On a server that is the incoming metadata, on a client the outgoing. Calls without it share the key ""
// with those that send it empty. A client chooses the value: use it behind a check of the value, or a
// client has as many quotas as it can invent values. Metadata panics if the name is that of a secret, such as
// authorization: keys are shown, so use Credential.
func Metadata(name string) KeyFunc {
	mustBe(!field.Secret(name),
		fmt.Sprintf("Metadata(%q): keys are shown, and this name is that of a secret: use Credential", name))
	return func(c Call) string {
		values := valuesOf(c, name)
		if len(values) == 0 {
			return ""
		}
		return values[0]
	}
}

// Credential returns a KeyFunc that limits by the secret in a metadata key, such as "authorization", whose case does
// not matter: by httplimit.CredentialKey, which shows nothing of it. Calls without it, or with several, share a key.
func Credential(name string) KeyFunc {
	return func(c Call) string {
		values := valuesOf(c, name)
		if len(values) != 1 {
			return httplimit.CredentialKey("")
		}
		return httplimit.CredentialKey(values[0])
	}
}

// valuesOf is the metadata that has come, or on a client that is sent.
func valuesOf(c Call, name string) []string {
	if c.Target == "" {
		return metadata.ValueFromIncomingContext(c.Context, name)
	}
	md, _ := metadata.FromOutgoingContext(c.Context)
	return md.Get(name)
}

// Peer returns a KeyFunc that limits a server's calls by the client's address, as httplimit.ClientAddr does
// without trusted networks: IPv6 addresses share a key with their /64. Behind a proxy it is the proxy's
// address. Calls without a peer that has an IP address share one key. On a client all calls do.
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
