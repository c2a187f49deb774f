package grpclimit

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/quotient-go/quotient"
)

const exhausted = codes.ResourceExhausted

// hourly is a limit of one call an hour.
var hourly = quotient.Rates(quotient.Rate{Name: "hour", Events: 1, Per: time.Hour, Burst: 1})

// call calls a server's method m through an interceptor, in memory.
func call(ctx context.Context, l *quotient.Limiter, opts ...Option) error {
	info := &grpc.UnaryServerInfo{FullMethod: "m"}
	interceptor := UnaryServer(l, FullMethod(), opts...)
	_, err := interceptor(ctx, nil, info, func(served context.Context, _ any) (any, error) {
		if served != ctx {
			return nil, errors.New("the handler got another context")
		}
		return nil, nil
	})
	return err
}

// refused fails unless an error is the refusal for a reason, with a rule and a time.
func refused(
	t testing.TB, err error, code codes.Code, reason quotient.Reason, rule string, wait time.Duration,
) {
	t.Helper()
	var limited *quotient.LimitedError
	if !errors.As(err, &limited) || limited.Reason != reason || limited.Key == "" {
		t.Fatalf("%v, want a refusal with reason %v and a key", err, reason)
	}
	gotRule, gotWait := detailsOf(err)
	if status.Code(err) != code || gotRule != rule || gotWait.Round(time.Second) != wait {
		t.Errorf("%v: rule %q, wait %v; want %v, %q, %v", err, gotRule, gotWait, code, rule, wait)
	}
	info := infoOf(err)
	if info.GetReason() != strings.ToUpper(reason.String()) || info.GetDomain() != Domain {
		t.Errorf("the status says %v, want %v of %s", info, reason, Domain)
	}
}

// infoOf is the ErrorInfo of a refusal, as its client reads it.
func infoOf(err error) *errdetails.ErrorInfo {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			return info
		}
	}
	return nil
}

// A server refuses at once, for the reason that is the rule's and not the queue's.
func TestServersRefuseByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		rate, slot := limiter(t, hourly), limiter(t, oneSlot)
		rate.TryAcquire("m")
		refused(t, call(t.Context(), rate), exhausted, quotient.ReasonRate, "hour", time.Hour)
		held, _ := slot.TryAcquire("m")
		refused(t, call(t.Context(), slot), exhausted, quotient.ReasonInFlight, "in-flight", time.Second)
		stream := StreamServer(slot, FullMethod())
		info := &grpc.StreamServerInfo{FullMethod: "m"}
		never := func(any, grpc.ServerStream) error { panic("served") }
		err := stream(nil, contextOnly{ctx: t.Context()}, info, never)
		refused(t, err, exhausted, quotient.ReasonInFlight, "in-flight", time.Second)
		half := limiter(t, oneSlot, quotient.Replicas(2))
		refused(t, call(t.Context(), half), codes.Unavailable, quotient.ReasonShare, "in-flight", time.Second)
		s := slot.Stats()
		waited := time.Since(start)
		if waited != 0 || s.Waited != 0 || s.Refused[quotient.ReasonInFlight] != 2 {
			t.Errorf("after %v: waited %d, refused %v; want two at once", waited, s.Waited, s.Refused)
		}
		held.Release()
		if err := call(t.Context(), slot); err != nil {
			t.Errorf("within the limit: %v", err)
		}
		idle(t, slot)
	})
}

// A call whose context is over takes nothing.
func TestCallThatIsOverTakesNothing(t *testing.T) {
	l := limiter(t, hourly)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := call(ctx, l); status.Code(err) != codes.Canceled {
		t.Errorf("%v, want Canceled", err)
	}
	if s := l.Stats(); s.Admitted != 0 {
		t.Errorf("admitted %d, want 0", s.Admitted)
	}
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, oneSlot)
		for _, most := range []time.Duration{time.Minute, Forever} {
			held, _ := l.TryAcquire("m")
			time.AfterFunc(time.Second, held.Release)
			start := time.Now()
			if err := call(t.Context(), l, Wait(most)); err != nil || time.Since(start) != time.Second {
				t.Errorf("Wait(%v): %v after %v, want no error after 1s", most, err, time.Since(start))
			}
		}
		held, _ := l.TryAcquire("m")
		start := time.Now()
		err := call(t.Context(), l, Wait(time.Minute))
		refused(t, err, exhausted, quotient.ReasonInFlight, "in-flight", time.Second)
		if waited := time.Since(start); waited != time.Minute {
			t.Errorf("refused after %v, want a minute", waited)
		}
		held.Release()
		idle(t, l)
	})
}

// A turn that is known to come too late is refused at once, for what it is late for.
func TestTurnAfterTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, hourly)
		l.TryAcquire("m")
		start := time.Now()
		err := call(t.Context(), l, Wait(time.Minute))
		refused(t, err, exhausted, quotient.ReasonRate, "hour", time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for _, most := range []time.Duration{time.Minute, Forever} {
			err = call(ctx, l, Wait(most))
			refused(t, err, exhausted, quotient.ReasonDeadline, "hour", time.Hour)
		}
		if waited := time.Since(start); waited != 0 {
			t.Errorf("refused after %v, want at once", waited)
		}
	})
}

// A wait that ends because this replica does not know its share is still this replica's fault.
func TestWaitForThePool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, oneSlot, quotient.AwaitPool(), quotient.HintMaxAge(time.Minute), quotient.Replicas(2))
		err := call(t.Context(), l, Wait(time.Second))
		var limited *quotient.LimitedError
		code := status.Code(err)
		if !errors.As(err, &limited) || code != codes.Unavailable || limited.Reason != quotient.ReasonPool {
			t.Errorf("%v, want Unavailable for the pool", err)
		}
	})
}

// The permit that a call waited for may be there at the instant at which its wait ends.
func TestRoomAtTheEndOfAWait(t *testing.T) {
	g := newGuard("UnaryServer", limiter(t, oneSlot), FullMethod(), time.Minute, nil)
	want := quotient.Decision{Reason: quotient.ReasonWait}
	if got := g.overdue("m", quotient.CallOption{}, quotient.Decision{}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestContextsThatEndInABoundedWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, oneSlot)
		held, _ := l.TryAcquire("m")
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if err := call(ctx, l, Wait(time.Minute)); status.Code(err) != codes.Canceled {
			t.Errorf("cancelled: %v", err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := call(ctx, l, Wait(time.Minute)); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("too late: %v", err)
		}
		held.Release()
		idle(t, l)
	})
}

func TestPriorityBy(t *testing.T) {
	type classKey struct{}
	byContext := PriorityBy(func(c Call) quotient.Priority {
		if c.Method != "m" {
			t.Errorf("asked for the method %q", c.Method)
		}
		class, _ := c.Context.Value(classKey{}).(quotient.Priority)
		return class
	})
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, oneSlot)
		held, _ := l.TryAcquire("m")
		order := make(chan quotient.Priority, 5)
		for _, class := range []quotient.Priority{-100, quotient.PriorityNormal, quotient.PriorityHigh, 100} {
			ctx := context.WithValue(t.Context(), classKey{}, class)
			go func() {
				interceptor := UnaryServer(l, FullMethod(), Wait(Forever), byContext)
				info := &grpc.UnaryServerInfo{FullMethod: "m"}
				_, _ = interceptor(ctx, nil, info, func(context.Context, any) (any, error) {
					order <- class
					return nil, nil
				})
			}()
			synctest.Wait()
		}
		held.Release()
		for _, want := range []quotient.Priority{100, quotient.PriorityHigh, quotient.PriorityNormal, -100} {
			if got := <-order; got != want {
				t.Errorf("served class %d, want %d", got, want)
			}
		}
		synctest.Wait()
		idle(t, l)
	})
}

// A client's call waits as a request of httplimit.Transport does, and Wait bounds it.
func TestClientsWait(t *testing.T) {
	insecurely := grpc.WithTransportCredentials(insecure.NewCredentials())
	conn, err := grpc.NewClient("passthrough:///nowhere", insecurely)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, oneSlot)
		send := func(opts ...Option) error {
			sent := func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
				return nil
			}
			return UnaryClient(l, FullMethod(), opts...)(t.Context(), "m", nil, nil, conn, sent)
		}
		held, _ := l.TryAcquire("m")
		time.AfterFunc(time.Hour, held.Release)
		start := time.Now()
		refused(t, send(Wait(time.Second)), exhausted, quotient.ReasonInFlight, "in-flight", time.Second)
		if err := send(); err != nil || time.Since(start) != time.Hour {
			t.Errorf("%v after %v, want no error after an hour", err, time.Since(start))
		}
		idle(t, l)
	})
}

// Streams of a real connection take the options as well.
func TestOptionsOfStreams(t *testing.T) {
	l := limiter(t, oneSlot)
	client := connect(t, &service{}, nil, Client(l, Target(), Wait(time.Millisecond))...)
	held, _ := l.TryAcquire("passthrough:///memory")
	_, err := client.FullDuplexCall(deadline(t))
	refused(t, err, exhausted, quotient.ReasonInFlight, "in-flight", time.Second)
	held.Release()
	if _, err := client.UnaryCall(deadline(t), &pb.SimpleRequest{}); err != nil {
		t.Errorf("with room: %v", err)
	}
	idle(t, l)
}

func TestMistakesOfOptions(t *testing.T) {
	for want, mistake := range map[string]func(){
		"Wait is 0s":                        func() { Wait(0) },
		"Wait is -1ns":                      func() { Wait(-1) },
		"PriorityBy: the function is nil":   func() { PriorityBy(nil) },
		"Except: the function is nil":       func() { Except(nil) },
		"UnaryServer: the limiter is nil":   func() { UnaryServer(nil, FullMethod(), Wait(1)) },
		"StreamServer: the key function is": func() { StreamServer(limiter(t, oneSlot), nil, Wait(1)) },
	} {
		func() {
			defer func() {
				if text, _ := recover().(string); !strings.Contains(text, want) {
					t.Errorf("panic %q, want %q in it", text, want)
				}
			}()
			mistake()
		}()
	}
}
