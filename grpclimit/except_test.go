package grpclimit

import (
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/quotient-go/quotient"
)

const (
	unaryCall  = "/grpc.testing.TestService/UnaryCall"
	duplexCall = "/grpc.testing.TestService/FullDuplexCall"
)

// except is an option for the calls of one method.
func except(method string) Option { return Except(func(c Call) bool { return c.Method == method }) }

// Calls that stand outside of the limits pass, and all others do not.
func TestExcept(t *testing.T) {
	inside := Except(func(c Call) bool {
		md, ok := metadata.FromIncomingContext(c.Context)
		if c.Target != "" {
			md, ok = metadata.FromOutgoingContext(c.Context)
		}
		return ok && len(md.Get("inside")) > 0
	})
	for name, tt := range map[string]struct {
		opts           []Option
		unary, streams bool // pass
	}{
		"none":        {nil, false, false},
		"unary":       {[]Option{except(unaryCall)}, true, false},
		"streams":     {[]Option{except(duplexCall)}, false, true},
		"both":        {[]Option{except(unaryCall), except(duplexCall)}, true, true},
		"no such":     {[]Option{except("/p.S/M")}, false, false},
		"by metadata": {[]Option{inside}, true, true},
		"with Wait":   {[]Option{Wait(Forever), except(unaryCall)}, true, false},
		"with Also": {[]Option{Also(limiter(t, quotient.Limit{Deny: true}), FullMethod()),
			except(unaryCall)}, true, false},
	} {
		for _, end := range []string{"server", "client"} {
			l := limiter(t, quotient.Limit{Deny: true})
			client := ends(t, l, FullMethod(), tt.opts...)[end]
			ctx := metadata.AppendToOutgoingContext(deadline(t), "inside", "yes")
			for kind, passes := range map[string]bool{"unary": tt.unary, "stream": tt.streams} {
				err := unary(ctx, client)
				if kind == "stream" {
					var hangUp func()
					if hangUp, err = duplex(ctx, client); err == nil {
						hangUp()
					}
				}
				if _, no := Refused(err); no == passes || passes && err != nil {
					t.Errorf("%s of a %s, %s: %v, want it to pass: %v", kind, end, name, err, passes)
				}
			}
		}
	}
}

// A call outside of the limits takes nothing, teaches nothing, and none of the other functions is asked for
// it.
func TestExceptCallsNoLimiter(t *testing.T) {
	for _, end := range []string{"server", "client"} {
		l, heard := learning(t)
		never := func(Call) string { t.Error("the key was asked for"); return "" }
		class := PriorityBy(func(Call) quotient.Priority { t.Error("the class was asked for"); return 0 })
		all := 0
		client := ends(t, l, never, class, Except(func(Call) bool { all++; return true }))[end]
		if err := unary(deadline(t), client); err != nil {
			t.Errorf("%s: %v", end, err)
		}
		hangUp, err := duplex(deadline(t), client)
		if err != nil {
			t.Fatal(err)
		}
		inFlight(t, l, 0)
		hangUp()
		if s := l.Stats(); s.Admitted != 0 || s.Keys != 0 || all != 2 {
			t.Errorf("%s: admitted %d, keys %d, asked %d times; want 0, 0, 2", end, s.Admitted, s.Keys, all)
		}
		heard.mu.Lock()
		if len(heard.heard) > 0 {
			t.Errorf("%s: the policy got %+v", end, heard.heard)
		}
		heard.mu.Unlock()
	}
}
