package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
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
func leftOf(l *quotient.Limiter, key string) int { return int(l.AppendState(nil, key)[0].Left + .001) }

// unary makes a unary call.
func unary(ctx context.Context, c pb.TestServiceClient) error {
	_, err := c.UnaryCall(ctx, &pb.SimpleRequest{})
	return err
}

// duplex opens a stream, sends and receives a message, and returns how to end the stream.
func duplex(ctx context.Context, c pb.TestServiceClient) (end func(), err error) {
	stream, err := c.FullDuplexCall(ctx)
	if err != nil {
		return nil, err
	}
	_ = stream.Send(&pb.StreamingOutputCallRequest{}) // Recv knows of its error
	if _, err = stream.Recv(); err != nil {
		return nil, err
	}
	return func() {
		_ = stream.CloseSend()
		_, _ = stream.Recv()
	}, nil
}

// echo serves one answer for each message of a stream.
func echo(stream pb.TestService_FullDuplexCallServer) error {
	for {
		if _, err := stream.Recv(); err != nil {
			return nil // the client has closed its side
		}
		if err := stream.Send(&pb.StreamingOutputCallResponse{}); err != nil {
			return err
		}
	}
}

// ends are the two ends of a connection that can have the limits.
func ends(t *testing.T, l *quotient.Limiter, key KeyFunc, opts ...Option) map[string]pb.TestServiceClient {
	s := &service{duplex: echo}
	return map[string]pb.TestServiceClient{
		"server": connect(t, s, Server(l, key, opts...)),
		"client": connect(t, s, nil, Client(l, key, opts...)...),
	}
}

// one waits until all permits but the stream's were given back: a client has its answer before the handler
// has returned.
func one(t *testing.T, l *quotient.Limiter) {
	t.Helper()
	for end := time.Now().Add(soon); l.Stats().InFlight > 1 && time.Now().Before(end); {
		runtime.Gosched()
	}
	inFlight(t, l, 1)
}

// refusedBy fails unless a call was refused for a reason by a rule, as its client reads it.
func refusedBy(t *testing.T, err error, reason quotient.Reason, rule string) {
	t.Helper()
	got, _ := detailsOf(err)
	why := infoOf(err).GetReason()
	if status.Code(err) != exhausted || got != rule || why != strings.ToUpper(reason.String()) {
		t.Errorf("%v by the rule %q, want %v by %q", err, got, reason, rule)
	}
}

// A call takes of a tenant's rate and of a method's slots, or of neither. It holds the slots until it is
// over, and the refusal is that of the limiter that refuses.
func TestAlso(t *testing.T) {
	for _, end := range []string{"server", "client"} {
		t.Run(end, func(t *testing.T) {
			tenants, methods := limiter(t, calls("tenant", 3)), limiter(t, oneSlot)
			users := limiter(t, calls("user", 2))
			client := ends(t, tenants, Metadata("tenant"), Also(methods, FullMethod()),
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
				one(t, methods)
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
			sent := func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
				return nil
			}
			err := UnaryClient(own, FullMethod(), also)(t.Context(), "m", nil, nil, conn, sent)
			var limited *quotient.LimitedError
			if tt.rule == "" && err == nil {
				continue
			}
			if !errors.As(err, &limited) || limited.Rule != tt.rule ||
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

// A call whose context is over takes nothing.
func TestAlsoAfterTheEndOfTheContext(t *testing.T) {
	own, other := limiter(t, hourly), limiter(t, hourly)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := call(ctx, own, Also(other, FullMethod())); status.Code(err) != codes.Canceled {
		t.Errorf("%v, want Canceled", err)
	}
	if a, b := own.Stats().Admitted, other.Stats().Admitted; a != 0 || b != 0 {
		t.Errorf("admitted %d, %d; want 0", a, b)
	}
}

// All policies get the feedback of a call, once, whichever learns and whatever kind of call it is.
func TestAlsoLearns(t *testing.T) {
	busy := with(codes.ResourceExhausted, time.Minute)
	want := policy.Feedback{Outcome: policy.Throttled, RetryAfter: time.Minute}
	s := &service{
		unary:  func(context.Context) error { return busy },
		duplex: func(pb.TestService_FullDuplexCallServer) error { return busy },
	}
	for _, end := range []string{"server", "client"} {
		for _, kind := range []string{"unary", "stream"} {
			own, heard := learning(t)
			second, heardToo := learning(t)
			quiet := limiter(t, oneSlot)
			opts := []Option{Also(quiet, FullMethod()), Also(second, FullMethod())}
			client := connect(t, s, Server(own, FullMethod(), opts...))
			if end == "client" {
				client = connect(t, s, nil, Client(own, FullMethod(), opts...)...)
			}
			err := unary
			if kind == "stream" {
				err = func(ctx context.Context, c pb.TestServiceClient) error {
					_, err := duplex(ctx, c)
					return err
				}
			}
			if got := err(deadline(t), client); status.Code(got) != exhausted {
				t.Errorf("%s, %s: %v", end, kind, got)
			}
			for _, l := range []*quotient.Limiter{own, second, quiet} {
				idle(t, l)
			}
			heard.learned(t, want)
			heardToo.learned(t, want)
		}
	}
}

// touchy is a controller that panics for feedback.
type touchy struct{}

func (touchy) New(uint64) policy.Controller { return touchy{} }

func (touchy) Next(s policy.Sample, b policy.Bounds) policy.Pace {
	if s.Outcome != policy.Unknown {
		panic("touchy")
	}
	return policy.Pace{Rate: min(b.Ceiling, 1e6)}
}

// Whatever panics, nothing stays taken, and nothing is given back twice.
func TestAlsoWhenSomethingPanics(t *testing.T) {
	conn := nowhere(t)
	fine := func(context.Context, any) (any, error) { return nil, nil }
	bug := func(context.Context, any) (any, error) { panic("a bug") }
	quiet := func() *quotient.Limiter { return limiter(t, oneSlot) }
	ctrl := func() *quotient.Limiter { return limiter(t, oneSlot, quotient.Policy(touchy{})) }
	hook := func() *quotient.Limiter {
		return limiter(t, oneSlot,
			quotient.OnAdmit(func(string, time.Duration, time.Duration) { panic("a hook") }))
	}
	unary := func(handler grpc.UnaryHandler) func(*quotient.Limiter, Option) {
		return func(own *quotient.Limiter, also Option) {
			_, _ = UnaryServer(own, FullMethod(), also)(t.Context(), nil, &grpc.UnaryServerInfo{}, handler)
		}
	}
	for name, tt := range map[string]struct {
		own, other func() *quotient.Limiter
		run        func(own *quotient.Limiter, also Option)
		want       string
	}{
		"handler":          {quiet, quiet, unary(bug), "a bug"},
		"own controller":   {ctrl, quiet, unary(fine), "touchy"},
		"other controller": {quiet, ctrl, unary(fine), "touchy"},
		"own hook":         {hook, quiet, unary(fine), "a hook"},
		"other hook":       {quiet, hook, unary(fine), "a hook"},
		"of a stream": {quiet, quiet, func(own *quotient.Limiter, also Option) {
			_ = StreamServer(own, FullMethod(), also)(nil, contextOnly{ctx: t.Context()},
				&grpc.StreamServerInfo{}, func(any, grpc.ServerStream) error { panic("a bug") })
		}, "a bug"},
		"of a client's stream": {quiet, quiet, func(own *quotient.Limiter, also Option) {
			_, _ = StreamClient(own, FullMethod(), also)(t.Context(), &grpc.StreamDesc{}, conn, "m",
				func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string,
					...grpc.CallOption) (grpc.ClientStream, error) {
					panic("a bug")
				})
		}, "a bug"},
	} {
		t.Run(name, func(t *testing.T) {
			own, other := tt.own(), tt.other()
			for range 2 { // there is one slot
				if got := panicOf(func() { tt.run(own, Also(other, FullMethod())) }); got != tt.want {
					t.Errorf("panic with %v, want %v", got, tt.want)
				}
			}
			inFlight(t, own, 0)
			inFlight(t, other, 0)
		})
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

func TestAlsoPanicsForWhatCannotBeMeant(t *testing.T) {
	l := limiter(t, oneSlot)
	also := Also(l, FullMethod())
	for want, mistake := range map[string]func(){
		"Also: the limiter is nil":      func() { Also(nil, FullMethod()) },
		"Also: the key function is nil": func() { Also(l, nil) },
		"UnaryServer: Wait and Also exclude each other": func() {
			Server(l, FullMethod(), also, Wait(Forever))
		},
		"StreamServer: Wait and Also exclude each other": func() {
			StreamServer(l, FullMethod(), Wait(1), also)
		},
		"UnaryClient: Wait and Also exclude each other": func() {
			Client(l, FullMethod(), Wait(Forever), also)
		},
		"StreamClient: Wait and Also exclude each other": func() {
			StreamClient(l, FullMethod(), also, Wait(1))
		},
	} {
		if text := fmt.Sprint(panicOf(mistake)); !strings.Contains(text, want) {
			t.Errorf("panic %q, want %q in it", text, want)
		}
	}
}

// Without Also the limits cost a call no allocation.
func TestCallsDoNotAllocate(t *testing.T) {
	l := limiter(t, quotient.Limit{InFlight: 9})
	info := &grpc.UnaryServerInfo{FullMethod: "m"}
	handler := func(context.Context, any) (any, error) { return nil, nil }
	high := PriorityBy(func(Call) quotient.Priority { return quotient.PriorityHigh })
	for name, opts := range map[string][]Option{"none": nil, "PriorityBy": {high}, "Wait": {Wait(Forever)}} {
		ask, ctx := UnaryServer(l, FullMethod(), opts...), t.Context()
		if n := testing.AllocsPerRun(1000, func() { _, _ = ask(ctx, nil, info, handler) }); n != 0 {
			t.Errorf("%s: %v allocations a call, want 0", name, n)
		}
	}
	idle(t, l)
}

// panicOf is what f panics with.
func panicOf(f func()) (got any) {
	defer func() { got = recover() }()
	f()
	return nil
}

// nowhere is a client's connection that is never used.
func nowhere(t *testing.T) *grpc.ClientConn {
	conn, err := grpc.NewClient("passthrough:///nowhere",
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
