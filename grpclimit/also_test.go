package grpclimit

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/policy"
)

// calls is a limit of n calls of a bucket that fills in days.
func calls(name string, n int) quotient.Limit {
	return quotient.Rates(quotient.Rate{Name: name, Events: float64(n), Per: 240 * time.Hour, Burst: n})
}

// leftOf is how much is left of the first rule of a key, in whole events.
func leftOf(l *quotient.Limiter, key string) int { return int(l.Explain(key).Rules[0].Left + .001) }

// A call takes of a tenant's rate and of a method's slots, or of neither. It holds the slots until it is
// over, and the refusal is that of the limiter that refuses.
func TestAlso(t *testing.T) {
	for _, end := range []string{"server", "client"} {
		t.Run(end, func(t *testing.T) {
			tenants, methods := limiter(t, calls("tenant", 3)), limiter(t, oneSlot)
			users := limiter(t, calls("user", 2))
			client := echoes.ends(t, tenants, Metadata("tenant"), Also(methods, FullMethod()),
				Also(users, Metadata("user")))[end]
			as := func(tenant, user string) context.Context {
				return metadata.AppendToOutgoingContext(deadline(t), "tenant", tenant, "user", user)
			}
			hangUp, err := duplex(as("a", "x"), client)
			if err != nil {
				t.Fatal(err)
			}
			inFlight(t, methods, 1)
			for range 5 { // the method is busy, which costs its callers nothing
				_, err := duplex(as("b", "y"), client)
				refusedBy(t, err, quotient.ReasonInFlight, "in-flight")
			}
			if b, y := leftOf(tenants, "b"), leftOf(users, "y"); b != 3 || y != 2 {
				t.Errorf("%d and %d are left, want 3 and 2", b, y)
			}
			for i, tt := range []struct{ tenant, user, rule string }{
				{"b", "y", ""}, {"b", "y", ""}, {"b", "y", "user"}, {"b", "y", "user"},
				{"b", "z", ""}, {"b", "z", "tenant"}, {"a", "z", ""}, {"a", "z", "user"},
			} {
				err := unary(as(tt.tenant, tt.user), client)
				if tt.rule != "" {
					refusedBy(t, err, quotient.ReasonRate, tt.rule)
				} else if err != nil {
					t.Errorf("call %d: %v", i, err)
				}
				inFlight(t, methods, 1)
			}
			hangUp()
			idle(t, methods)
			if s := tenants.Stats(); s.Admitted != 5 || s.Cancelled != 8 {
				t.Errorf("%d admitted, %d cancelled; want 5, 8", s.Admitted, s.Cancelled)
			}
		})
	}
}

// Calls of several limiters do not wait, those of clients included, and name whose key it was.
func TestAlsoDoesNotWait(t *testing.T) {
	conn := nowhere(t)
	synctest.Test(t, func(t *testing.T) {
		own, other := limiter(t, oneSlot), limiter(t, hourly)
		other.TryAcquire("o")
		long := func(Call) string { return strings.Repeat("x", 1000) }
		for _, tt := range []struct {
			key  KeyFunc
			rule string
			want string
		}{{func(Call) string { return "o" }, "hour", "o"}, {long, "", ""}, {long, "hour", "sha256:"}} {
			start, also := time.Now(), Also(other, tt.key)
			err := UnaryClient(own, FullMethod(), also)(t.Context(), "m", nil, nil, conn, sent)
			var limited *quotient.LimitedError
			if tt.rule == "" && err == nil {
				continue
			}
			if !errors.As(err, &limited) || limited.Rule.Name != tt.rule ||
				!strings.HasPrefix(limited.Key, tt.want) || time.Since(start) != 0 {
				t.Errorf("%v after %v, want a refusal of %q at once", err, time.Since(start), tt.want)
			}
		}
		idle(t, own)
		if s := own.Stats(); s.Waited != 0 || s.Cancelled != 2 {
			t.Errorf("waited %d, cancelled %d; want 0, 2", s.Waited, s.Cancelled)
		}
	})
}

// All policies get the feedback of a call, once, whichever learns and whatever kind of call it is.
func TestAlsoLearns(t *testing.T) {
	busy := with(exhausted, time.Minute)
	want := policy.Feedback{Outcome: policy.Throttled, RetryAfter: time.Minute}
	s := &service{
		unary:  func(context.Context) error { return busy },
		duplex: func(pb.TestService_FullDuplexCallServer) error { return busy },
	}
	for _, end := range []string{"server", "client"} {
		for kind, ask := range kinds {
			for _, alone := range []bool{true, false} {
				own, heard := learning(t)
				second, heardToo := learning(t)
				quiet := limiter(t, oneSlot)
				opts := []Option{Also(quiet, FullMethod()), Also(second, FullMethod())}
				if alone {
					opts = nil
				}
				if err := ask(deadline(t), s.ends(t, own, FullMethod(), opts...)[end]); status.Code(err) != exhausted {
					t.Errorf("%s, %s: %v", end, kind, err)
				}
				for _, l := range []*quotient.Limiter{own, second, quiet} {
					idle(t, l)
				}
				if heard.learned(t, want); !alone {
					heardToo.learned(t, want)
				}
			}
		}
	}
}

// The priority of a call lets it go past the waiters of its own limiter, and of no other.
func TestAlsoWithAPriority(t *testing.T) {
	for _, ownWaits := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			own, other := limiter(t, quotient.Limit{InFlight: 2}), limiter(t, quotient.Limit{InFlight: 2})
			crowd := other
			if ownWaits {
				crowd = own
			}
			held, _ := crowd.TryAcquire("m")
			ctx, cancel := context.WithCancel(t.Context())
			go func() { _, _ = crowd.Acquire(ctx, "m", quotient.Weight(2)) }()
			synctest.Wait()
			high := PriorityBy(func(Call) quotient.Priority { return quotient.PriorityHigh + 100 })
			err := call(t.Context(), own, high, Also(other, FullMethod()))
			if ownWaits && err != nil || !ownWaits && status.Code(err) != exhausted {
				t.Errorf("own limiter waits: %v: %v", ownWaits, err)
			}
			cancel()
			synctest.Wait()
			held.Release()
			idle(t, own)
			idle(t, other)
		})
	}
}
