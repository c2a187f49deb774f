package quotient

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// Callers whose time-out is far behind the end of a pause that the upstream has announced wait for it. One
// whose time-out is before it is refused at once, and gets the end of the pause.
func TestPauseRefusesNoCallerWithTime(t *testing.T) {
	for name, limit := range map[string]Limit{
		"requests": rated(perSecond(100, 100)), "slots": {InFlight: 8},
		"both": {Rates: []Rate{perSecond(100, 100)}, InFlight: 8},
	} {
		row(t, name, func(t *testing.T) {
			l := limiterOf(t, limit, Policy(policy.Tracking{}), BeyondShare())
			took(t, l, "k").Done(success)
			for range 3 {
				time.Sleep(500 * time.Millisecond)
				took(t, l, "k").Done(policy.Feedback{Outcome: policy.Throttled, RetryAfter: 5 * time.Second})
			}
			end := gateOf(l, "k").ext.learned.pacers[0].pausedUntil
			wait := end - since(l)
			if wait < 5*time.Second || wait > 6*time.Second {
				t.Fatalf("the controller pauses for %v", wait)
			}
			early := askingUntil(t, l, 4*time.Second, "k").refusedAfter(t, 0, ReasonDeadline)
			if early.RetryAfter != wait {
				t.Errorf("retry after %v, want %v", early.RetryAfter, wait)
			}
			var callers []*call
			for range 10 {
				c := askingUntil(t, l, 30*time.Second, "k")
				c.waits(t)
				callers = append(callers, c)
			}
			time.Sleep(wait)
			callers[0].admittedAfter(t, wait)
			callers[1].waits(t)
			callers[0].permit.Done(success)
			time.Sleep(20 * time.Second)
			if !callers[1].ended() || callers[1].err != nil {
				t.Error("the second is not admitted in time")
			}
		})
	}
}

// probing is a limiter with a controller that has paused for five seconds, with 2 events or slots a second
// after that, and a probe each 50 seconds until then.
func probing(t *testing.T, name string, opts ...Option) (*Limiter, *panel) {
	t.Helper()
	l, p := governing(t, append(opts, Replicas(1))...)
	holdsFor(t, l, time.Second)
	p.gives(t, l, name, policy.Pace{Rate: 2, NotBefore: since(l) + 5*time.Second}.Probing(50*time.Second))
	return l, p
}

// Turns behind a pause are computed from its end and the pace that is expected then, not from the time
// between two probes.
func TestTurnsBehindAPause(t *testing.T) {
	for _, c := range []struct {
		ahead  int           // callers that wait
		slept  time.Duration // since the pause began
		out    bool          // then a probe is sent
		weight int
		turn   time.Duration // known then
		// a caller whose time ends just before is refused, not when nothing else is known
		deadline bool
	}{
		{0, 0, false, 1, 5 * time.Second, true},
		{0, 3 * time.Second, false, 1, 2 * time.Second, true},
		{0, 0, false, 3, 5 * time.Second, true}, // a probe is one request, whatever its weight
		{4, 0, false, 1, 7 * time.Second, true},
		{4, time.Second, false, 1, 6 * time.Second, true},
		{0, 5 * time.Second, true, 1, 500 * time.Millisecond, true},
		{2, 5 * time.Second, true, 1, 1500 * time.Millisecond, true},
		{0, 9 * time.Second, true, 1, 500 * time.Millisecond, true},
	} {
		for _, name := range []string{requests, tokens, inFlight8} {
			row(t, fmt.Sprintf("%s %+v", name, c), func(t *testing.T) {
				l, _ := probing(t, name)
				opts := []CallOption{Cost("tokens", c.weight), Weight(c.weight)}
				time.Sleep(c.slept)
				if c.out {
					took(t, l, "k", Cost("tokens", 1))
				}
				for range c.ahead {
					asking(t, l, "k", Cost("tokens", 1)).waits(t)
				}
				if d := l.Check("k", opts...); d.OK || d.RetryAfter != c.turn {
					t.Errorf("Check: %v, want a retry after %v", d, c.turn)
				}
				if d := l.Explain("k", opts...).Next; d.RetryAfter != c.turn {
					t.Errorf("Explain: %v, want a retry after %v", d, c.turn)
				}
				late := askingUntil(t, l, c.turn-time.Millisecond, "k", opts...).refusedAfter(t, 0,
					ReasonDeadline)
				if late.RetryAfter != c.turn {
					t.Errorf("refused with %v, want a retry after %v", late, c.turn)
				}
				askingUntil(t, l, c.turn, "k", opts...).waits(t)
			})
		}
	}
}

// MaxWait counts as a deadline does: from the end of the pause.
func TestMaxWaitBehindAPause(t *testing.T) {
	for _, c := range []struct {
		maxWait time.Duration
		waits   int // callers, before one is refused
	}{{4 * time.Second, 0}, {5 * time.Second, 1}, {6 * time.Second, 3}, {30 * time.Second, 51}} {
		for _, name := range []string{requests, tokens, inFlight8} {
			row(t, fmt.Sprint(name, c.maxWait), func(t *testing.T) {
				l, _ := probing(t, name, MaxWait(c.maxWait))
				for range c.waits {
					asking(t, l, "k", Cost("tokens", 1)).waits(t)
				}
				want := 5*time.Second + time.Duration(c.waits)*500*time.Millisecond
				e := asking(t, l, "k", Cost("tokens", 1)).refusedAfter(t, 0, ReasonWait)
				if e.RetryAfter != want {
					t.Errorf("refused with %v, want a retry after %v", e, want)
				}
			})
		}
	}
}

// Until a probe is answered nothing but probes passes. That is one request at the end of the pause, and then
// one in each Probe, whatever it costs or weighs, and however many wait.
func TestSingleProbes(t *testing.T) {
	for _, name := range []string{requests, tokens, inFlight8} {
		row(t, name, func(t *testing.T) {
			l, _ := probing(t, name)
			opts := []CallOption{Cost("tokens", 2), Weight(2)}
			if name == inFlight8 { // of which there are three
				opts = nil
			}
			a, b, c := asking(t, l, "k", opts...), asking(t, l, "k", opts...), asking(t, l, "k", opts...)
			time.Sleep(5 * time.Second)
			a.admittedAfter(t, 5*time.Second)
			fired := CountsOf(l).Fired
			time.Sleep(49 * time.Second)
			b.waits(t)
			if n := CountsOf(l).Fired - fired; n > 0 {
				t.Errorf("timers have fired %d times for nothing", n)
			}
			if _, n := l.TryAcquireUpTo("other", 1, opts...); n != 1 {
				t.Error("another key waits too")
			}
			time.Sleep(time.Minute)
			b.admittedAfter(t, 55*time.Second)
			c.admittedAfter(t, 105*time.Second)
			refusedFor(t, l, map[string]Reason{
				requests:  ReasonRate,
				tokens:    ReasonRate,
				inFlight8: ReasonInFlight,
			}[name], "k", opts...)
			time.Sleep(50 * time.Second)
			a.permit.Release()
			if name != tokens { // of which a batch takes none
				upTo(t, l, "k", 5, 1)
			}
		})
	}
}

// The answer to a probe ends it: callers that wait go on at the new pace at once, in their order. Or it moves
// the next probe.
func TestAnswerToAProbe(t *testing.T) {
	const s = time.Second
	for name, c := range map[string]struct {
		next policy.Pace // NotBefore counts from the probe's answer, a second after the end of the pause
		want []time.Duration
	}{
		"faster": {policy.Pace{Rate: 4},
			[]time.Duration{5 * s, 6*s + 245*time.Millisecond, 6*s + 495*time.Millisecond,
				6*s + 745*time.Millisecond}},
		"another pause": {policy.Pace{Rate: 2, NotBefore: 7 * s}.Probing(3 * s),
			[]time.Duration{5 * s, 13 * s, 16 * s, 19 * s}},
		"a paced pause": {policy.Pace{Rate: 2, NotBefore: 7 * s},
			[]time.Duration{5 * s, 13 * s, 13*s + s/2, 14 * s}},
		"sooner": {
			policy.Pace{Rate: 2}.Probing(2 * s),
			[]time.Duration{5 * s, 7*s + 960*time.Millisecond, 9*s + 960*time.Millisecond,
				11*s + 960*time.Millisecond},
		},
	} {
		row(t, name, func(t *testing.T) {
			l, p := probing(t, requests)
			var calls []*call
			for range 4 {
				calls = append(calls, asking(t, l, "k"))
			}
			time.Sleep(6 * s)
			if c.next.NotBefore > 0 {
				c.next.NotBefore += since(l)
			}
			p.says[requests] = c.next
			calls[0].admittedAfter(t, 5*s)
			calls[0].permit.Done(success)
			time.Sleep(time.Minute)
			for i, want := range c.want {
				if !calls[i].ended() {
					t.Fatalf("call %d waits, want it admitted after %v", i, want)
				}
				if d := calls[i].took - want; calls[i].err != nil || d < -s/50 || d > s/50 {
					t.Errorf("call %d: %v after %v, want it admitted after %v", i, calls[i].err,
						calls[i].took, want)
				}
			}
		})
	}
}

// A waiter behind a probe ends with its context, or with MaxWait. The time that it is given is computed by
// the pace that is expected.
func TestTimeOutsBehindAProbe(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l, _ := probing(t, requests, MaxWait(20*time.Second))
		first, short, long := asking(t, l, "k"), askingUntil(t, l, 8*time.Second, "k"), asking(t, l, "k")
		time.Sleep(time.Minute)
		first.admittedAfter(t, 5*time.Second)
		if !short.ended() || !errors.Is(short.err, context.DeadlineExceeded) || short.took != 8*time.Second {
			t.Errorf("ended after %v with %v, want its deadline", short.took, short.err)
		}
		if e := long.refusedAfter(t, 20*time.Second, ReasonWait); e.RetryAfter <= 0 ||
			e.RetryAfter > time.Second {
			t.Errorf("%v, want a retry after half a second at most", e)
		}
	})
}

// A probe that is given up unused lets the next one go at once. A permit that is corrected after its answer
// gives nothing back: it has taken no more than one event.
func TestProbesGivenBack(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l, p := probing(t, requests)
		setLimit(t, l, Limit{Rates: l.Stats().Limit.Rates})
		time.Sleep(5 * time.Second)
		probe := took(t, l, "k", Weight(4))
		correct(t, probe, 0)
		probe = took(t, l, "k", Weight(4))
		refusedFor(t, l, ReasonRate, "k")
		p.says[requests] = policy.Pace{Rate: 200}
		time.Sleep(time.Millisecond)
		probe.Report(success)
		correct(t, probe, 0)
		upTo(t, l, "k", 8, 0)
	})
}

// A controller that is forgotten probes no more.
func TestProbesAreForgotten(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l, _ := probing(t, requests)
		time.Sleep(5 * time.Second)
		took(t, l, "k")
		time.Sleep(forgetAfter)
		paces(t, l, "k", 2000)
		if pc := &gateOf(l, "k").ext.learned.pacers[0]; pc.probe != 0 {
			t.Errorf("one request in %v", pc.probe)
		}
	})
}

// A Probe below 0 means no probes, and one above an hour is an hour.
func TestProbeOutOfRange(t *testing.T) {
	for probe, want := range map[time.Duration]time.Duration{
		-time.Second:  0,
		1:             1,
		2 * time.Hour: time.Hour,
	} {
		row(t, probe, func(t *testing.T) {
			l, p := governing(t, Replicas(1))
			p.gives(t, l, requests, policy.Pace{Rate: 100}.Probing(probe))
			if got := gateOf(l, "k").ext.learned.pacers[0].probe; got != want {
				t.Errorf("one request in %v, want %v", got, want)
			}
		})
	}
}
