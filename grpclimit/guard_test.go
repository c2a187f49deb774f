package grpclimit

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/policy"
)

// A server refuses at once, for the reason that is the rule's and not the queue's.
func TestServersRefuseByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		rate, slot := limiter(t, hourly), limiter(t, oneSlot)
		rate.TryAcquire("m")
		refusedBy(t, call(t.Context(), rate), quotient.ReasonRate, "hour")
		held, _ := slot.TryAcquire("m")
		refusedBy(t, call(t.Context(), slot), quotient.ReasonInFlight, "in-flight")
		stream := StreamServer(slot, FullMethod())
		info := &grpc.StreamServerInfo{FullMethod: "m"}
		never := func(any, grpc.ServerStream) error { panic("served") }
		err := stream(nil, contextOnly{ctx: t.Context()}, info, never)
		refusedBy(t, err, quotient.ReasonInFlight, "in-flight")
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

// A call is served when its turn comes, and refused at the end of its patience, or of its context.
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
			held, _ = l.TryAcquire("m")
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			if err := call(ctx, l, Wait(most)); status.Code(err) != codes.Canceled {
				t.Errorf("cancelled: %v", err)
			}
			ctx, cancel = context.WithTimeout(t.Context(), time.Second)
			if err := call(ctx, l, Wait(most)); status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("too late: %v", err)
			}
			cancel()
			held.Release()
		}
		idle(t, l)
	})
}

// A call whose context is over takes nothing.
func TestCallThatIsOverTakesNothing(t *testing.T) {
	own, other := limiter(t, hourly), limiter(t, hourly)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, opts := range [][]Option{nil, {Also(other, FullMethod())}} {
		if err := call(ctx, own, opts...); status.Code(err) != codes.Canceled {
			t.Errorf("%v, want Canceled", err)
		}
	}
	if a, b := own.Stats().Admitted, other.Stats().Admitted; a != 0 || b != 0 {
		t.Errorf("admitted %d, %d; want 0", a, b)
	}
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
				_ = call(ctx, l, Wait(Forever), byContext)
				order <- class
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
	conn := nowhere(t)
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, oneSlot)
		send := func(opts ...Option) error {
			return UnaryClient(l, FullMethod(), opts...)(t.Context(), "m", nil, nil, conn, sent)
		}
		held, _ := l.TryAcquire("m")
		time.AfterFunc(time.Hour, held.Release)
		start := time.Now()
		refusedBy(t, send(Wait(time.Second)), quotient.ReasonInFlight, "in-flight")
		if err := send(); err != nil || time.Since(start) != time.Hour {
			t.Errorf("%v after %v, want no error after an hour", err, time.Since(start))
		}
		idle(t, l)
	})
}

// short makes a limiter whose key m has admitted a call, with some that wait.
func short(t *testing.T, waiters int, limit quotient.Limit, opts ...quotient.Option) *quotient.Limiter {
	l := limiter(t, limit, opts...)
	l.TryAcquire("m")
	for range waiters {
		go func() { _, _ = l.Acquire(t.Context(), "m") }()
		synctest.Wait()
	}
	return l
}

// A refusal after a wait, or for one that would be too long, names what is short and not the bound. What all can
// be short is httplimit's to test: the waits are the same.
func TestReasonAfterAWait(t *testing.T) {
	unknown := []quotient.Option{quotient.AwaitPool(time.Minute), quotient.Replicas(2)}
	for name, tt := range map[string]struct {
		waiters  int
		limit    quotient.Limit
		opts     []quotient.Option
		deadline time.Duration // of the call itself
		code     codes.Code
		want     quotient.Decision
		after    time.Duration
	}{
		"rate behind waiters": {2, hourly, nil, time.Hour, exhausted,
			quotient.Decision{Reason: quotient.ReasonRate, Rule: quotient.Rule{Name: "hour"}, RetryAfter: 3 * time.Hour}, 0},
		"slots": {2, oneSlot, nil, time.Hour, exhausted,
			quotient.Decision{Reason: quotient.ReasonInFlight, Rule: quotient.Rule{Name: "in-flight"}}, time.Minute},
		"the call's own deadline": {0, hourly, nil, time.Second, exhausted,
			quotient.Decision{Reason: quotient.ReasonDeadline, Rule: quotient.Rule{Name: "hour"}, RetryAfter: time.Hour}, 0},
		"the limiter's bound": {0, oneSlot, []quotient.Option{quotient.MaxWait(time.Second)}, time.Hour, exhausted,
			quotient.Decision{Reason: quotient.ReasonWait, Rule: quotient.Rule{Name: "in-flight"}}, time.Second},
		"the pool": {0, oneSlot, unknown, time.Hour, codes.Unavailable,
			quotient.Decision{Reason: quotient.ReasonPool}, time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			l, start := short(t, tt.waiters, tt.limit, tt.opts...), time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), tt.deadline)
			defer cancel()
			err := call(ctx, l, Wait(time.Minute))
			got, _ := Refused(err)
			if got.RetryAfter = got.RetryAfter.Round(time.Second); tt.want.RetryAfter == 0 {
				tt.want.RetryAfter = unknownWait
			}
			if got.OK || (got.Limit == 0) == (got.Rule.Name != "") {
				t.Errorf("%s: the numbers of the rule are missing: %+v", name, got)
			}
			got = quotient.Decision{Reason: got.Reason, Rule: quotient.Rule{Name: got.Rule.Name}, RetryAfter: got.RetryAfter}
			if got != tt.want || status.Code(err) != tt.code || time.Since(start) != tt.after {
				t.Errorf("%s: %v, %+v after %v, want %+v after %v", name, err, got, time.Since(start), tt.want, tt.after)
			}
		})
	}
}

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
			client := echoes.ends(t, l, FullMethod(), tt.opts...)[end]
			ctx := metadata.AppendToOutgoingContext(deadline(t), "inside", "yes")
			for kind, passes := range map[string]bool{"unary": tt.unary, "stream": tt.streams} {
				err := kinds[kind](ctx, client)
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
		client := echoes.ends(t, l, never, class, Except(func(Call) bool { all++; return true }))[end]
		for kind, ask := range kinds {
			if err := ask(deadline(t), client); err != nil {
				t.Errorf("%s, %s: %v", end, kind, err)
			}
		}
		if s := l.Stats(); s.Admitted != 0 || s.Keys != 0 || all != 2 {
			t.Errorf("%s: admitted %d, keys %d, asked %d times; want 0, 0, 2", end, s.Admitted, s.Keys, all)
		}
		heard.learned(t)
	}
}

// A stream holds its permit until it is over, on either end.
func TestStreamHoldsThePermit(t *testing.T) {
	for _, end := range []string{"server", "client"} {
		l := limiter(t, oneSlot)
		client := echoes.ends(t, l, FullMethod())[end]
		hangUp, err := duplex(deadline(t), client)
		if err != nil {
			t.Fatal(err)
		}
		inFlight(t, l, 1)
		if end == "server" { // a client's call would wait
			_, err = duplex(deadline(t), client)
			refusedBy(t, err, quotient.ReasonInFlight, "in-flight")
		}
		hangUp()
		idle(t, l)
	}
}

// Whatever panics, nothing stays taken, and nothing is given back twice.
func TestPanics(t *testing.T) {
	fine := func(context.Context, any) (any, error) { return nil, nil }
	bug := func(context.Context, any) (any, error) { panic("a bug") }
	quiet := func() *quotient.Limiter { return limiter(t, oneSlot) }
	ctrl := func() *quotient.Limiter { return limiter(t, oneSlot, quotient.Policy(&spy{touchy: true})) }
	hook := func() *quotient.Limiter {
		return limiter(t, oneSlot,
			quotient.OnAdmit(func(string, time.Duration, time.Duration) { panic("a hook") }))
	}
	unary := func(handler grpc.UnaryHandler) func(*quotient.Limiter, ...Option) {
		return func(own *quotient.Limiter, also ...Option) {
			_, _ = UnaryServer(own, FullMethod(), also...)(t.Context(), nil, &grpc.UnaryServerInfo{}, handler)
		}
	}
	for name, tt := range map[string]struct {
		own, other func() *quotient.Limiter
		run        func(own *quotient.Limiter, also ...Option)
		want       string
	}{
		"handler":          {quiet, quiet, unary(bug), "a bug"},
		"own controller":   {ctrl, quiet, unary(fine), "touchy"},
		"other controller": {quiet, ctrl, unary(fine), "touchy"},
		"own hook":         {hook, quiet, unary(fine), "a hook"},
		"other hook":       {quiet, hook, unary(fine), "a hook"},
		"of a stream": {quiet, quiet, func(own *quotient.Limiter, also ...Option) {
			_ = StreamServer(own, FullMethod(), also...)(nil, contextOnly{ctx: t.Context()},
				&grpc.StreamServerInfo{}, func(any, grpc.ServerStream) error { panic("a bug") })
		}, "a bug"},
		"of a client's stream": {quiet, quiet, func(own *quotient.Limiter, also ...Option) {
			_, _ = openStream(t, own, func() (grpc.ClientStream, error) { panic("a bug") }, also...)
		}, "a bug"},
	} {
		t.Run(name, func(t *testing.T) {
			own, other := tt.own(), tt.other()
			for range 2 { // there is one slot
				if got := panicOf(func() { tt.run(own, Also(other, FullMethod())) }); got != tt.want {
					t.Errorf("panic with %v, want %v", got, tt.want)
				}
				inFlight(t, own, 0)
				inFlight(t, other, 0)
				if strings.HasPrefix(name, "other") {
					continue
				}
				if got := panicOf(func() { tt.run(own) }); got != tt.want {
					t.Errorf("without Also: panic with %v, want %v", got, tt.want)
				}
				inFlight(t, own, 0)
			}
		})
	}
	l, heard := learning(t)
	panicOf(func() { unary(bug)(l) })
	heard.learned(t, policy.Feedback{Outcome: policy.Failed})
}

func TestMistakesPanicAtOnce(t *testing.T) {
	l, key := limiter(t, oneSlot), FullMethod()
	also := Also(l, key)
	mistakes := map[string]func(){
		"Also: the limiter is nil":        func() { Also(nil, key) },
		"Also: the key function is nil":   func() { Also(l, nil) },
		"Wait is 0s":                      func() { Wait(0) },
		"Wait is -1ns":                    func() { Wait(-1) },
		"PriorityBy: the function is nil": func() { PriorityBy(nil) },
		"Except: the function is nil":     func() { Except(nil) },
	}
	for name, make := range map[string]func(*quotient.Limiter, KeyFunc, ...Option){
		"UnaryServer":  func(l *quotient.Limiter, k KeyFunc, o ...Option) { UnaryServer(l, k, o...) },
		"StreamServer": func(l *quotient.Limiter, k KeyFunc, o ...Option) { StreamServer(l, k, o...) },
		"UnaryClient":  func(l *quotient.Limiter, k KeyFunc, o ...Option) { UnaryClient(l, k, o...) },
		"StreamClient": func(l *quotient.Limiter, k KeyFunc, o ...Option) { StreamClient(l, k, o...) },
	} {
		mistakes[name+": Wait and Also exclude"] = func() { make(l, key, also, Wait(Forever)) }
		mistakes[name+": the limiter is nil"] = func() { make(nil, key) }
		mistakes[name+": the key function is nil"] = func() { make(l, nil, Wait(1)) }
	}
	for want, mistake := range mistakes {
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
