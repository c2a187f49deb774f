package quotient

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// holdsFor takes a permit, and reports a success so much later.
func holdsFor(t *testing.T, l *Limiter, d time.Duration) {
	t.Helper()
	permit := took(t, l, "k", Cost("tokens", 1))
	time.Sleep(d)
	permit.Done(success)
}

// A controller of slots spaces admissions as well: so many a second as its slots come free if each is held
// for the usual time.
func TestSlotsArePaced(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l, p := governing(t, Replicas(1))
		p.says[inFlight8] = policy.Pace{Rate: 2.5}
		holdsFor(t, l, 500*time.Millisecond) // so 5 a second, and 3 at once
		time.Sleep(time.Second)
		first := took(t, l, "k")
		d := refusedFor(t, l, ReasonInFlight, "k")
		if d.RetryAfter != 200*time.Millisecond || d.Rule != ctrlRule || d.Limit != 8 {
			t.Errorf("refused with %+v, want to wait 200 ms for a controller", d)
		}
		is(t, "a look", l.Check("k", Cost("tokens", 1)).RetryAfter, 200*ms)
		askingUntil(t, l, 199*time.Millisecond, "k").refusedAfter(t, 0, ReasonDeadline)
		second, third, fourth := asking(t, l, "k"), asking(t, l, "k"), asking(t, l, "k")
		// its turn is in 800 ms
		askingUntil(t, l, 700*time.Millisecond, "k").refusedAfter(t, 0, ReasonDeadline)
		time.Sleep(500 * time.Millisecond)
		first.Done(success)
		time.Sleep(500 * time.Millisecond)
		second.admittedAfter(t, 200*time.Millisecond)
		third.admittedAfter(t, 400*time.Millisecond)
		fourth.admittedAfter(t, 600*time.Millisecond)
		if s := p.last(t, inFlight8); !s.Paced || s.Cost != 0.5 {
			t.Errorf("the controller got %+v, want that it held back and half a slot second", s)
		}
		if s := p.last(t, requests); s.Paced {
			t.Error("requests count as held back by the slots")
		}
	})
}

// The time that slots are held is that of requests which succeed, smoothed, whatever their weight.
func TestHeldSlots(t *testing.T) {
	type reported struct {
		f      policy.Feedback
		held   time.Duration
		weight int
	}
	ok := func(d time.Duration) reported { return reported{success, d, 1} }
	failed, unknown := policy.Feedback{Outcome: policy.Failed}, policy.Feedback{}
	for _, c := range []struct {
		name     string
		feedback []reported
		want     float64 // seconds
	}{
		{"nothing", nil, 0},
		{"one", []reported{ok(time.Second)}, 1},
		{"a sixteenth of the second", []reported{ok(time.Second), ok(3 * time.Second)}, 1.125},
		{"weights", []reported{{success, time.Second, 2}, {success, 3 * time.Second, 2}}, 1.125},
		{"what failed", []reported{ok(time.Second), {throttled, 1, 1}, {failed, time.Minute, 1},
			{unknown, time.Minute, 1}}, 1},
		{"no time at all", []reported{ok(0), ok(time.Second)}, 1},
	} {
		row(t, c.name, func(t *testing.T) {
			l, p := governing(t, Replicas(1))
			took(t, l, "k").Done(policy.Feedback{})
			for _, x := range c.feedback {
				time.Sleep(time.Minute)
				permit := took(t, l, "k", Weight(x.weight))
				time.Sleep(x.held)
				permit.Done(x.f)
			}
			pc := &gateOf(l, "k").ext.learned.pacers[2]
			if math.Abs(pc.held-c.want) > 1e-12 {
				t.Errorf("held for %v s, want %v", pc.held, c.want)
			}
			paced := func(slots float64) {
				t.Helper()
				if want := min(slots/c.want, maxEvents); math.Abs(1e9/pc.interval-want) > 1e-9*want {
					t.Errorf("%v slots a second, want %v", 1e9/pc.interval, want)
				}
			}
			paced(8)
			p.says[inFlight8] = policy.Pace{Rate: 0.25}
			took(t, l, "k", Cost("tokens", 1)).Done(policy.Feedback{})
			paced(0.25)
			time.Sleep(forgetAfter)
			took(t, l, "k").Release()
			if pc.held != 0 || 1e9/pc.interval != maxEvents || pc.pace != 8 {
				t.Errorf("not forgotten: %+v", pc)
			}
		})
	}
}

// Before the first success only the number of slots counts.
func TestSlotsAreNotPacedBeforeASuccess(t *testing.T) {
	for name, opt := range map[string]Option{
		"start": Replicas(1), "join": together(Replicas(1), StartEmpty()),
	} {
		row(t, name, func(t *testing.T) {
			l, p := governing(t, opt)
			time.Sleep(time.Second)
			p.says[inFlight8] = policy.Pace{Rate: 5}
			for range 3 {
				upTo(t, l, "k", 8, 8).Release()
			}
			took(t, l, "k").Done(throttled)
			upTo(t, l, "k", 8, 6)
		})
	}
}

// A success is dated by the latest instant of its key, everything else by the clock; no controller sees time
// go back.
func TestHowFeedbackIsDated(t *testing.T) {
	type feedback = policy.Feedback
	quotas := [4]policy.Quota{{Limit: 10, Remaining: 1}}
	nothing := func(*testing.T, *Limiter) {}
	admits := func(t *testing.T, l *Limiter) { took(t, l, "k") }
	throttles := func(key string) func(*testing.T, *Limiter) {
		return func(t *testing.T, l *Limiter) { took(t, l, key).Done(throttled) }
	}
	changes := func(t *testing.T, l *Limiter) { setReplicas(t, l, 3) }
	for _, c := range []struct {
		name string
		f    policy.Feedback
		then func(t *testing.T, l *Limiter) // in the second second of three
		want time.Duration                  // in seconds
	}{
		{"success", success, nothing, 1},
		{"success with quotas", feedback{Outcome: policy.Success, Quotas: quotas}, nothing, 3},
		{"success after an admission", success, admits, 2},
		{"success after other feedback", success, throttles("k"), 2},
		{"success after a change", success, changes, 2},
		{"success after that of another key", success, throttles("other"), 1},
		{"a time to wait", feedback{Outcome: policy.Success, RetryAfter: time.Second}, nothing, 3},
		{"throttled", throttled, nothing, 3},
		{"unavailable", feedback{Outcome: policy.Unavailable}, nothing, 3},
		{"failed", feedback{Outcome: policy.Failed}, nothing, 3},
		{"unknown", feedback{}, nothing, 3},
	} {
		for _, slots := range []int{0, 8} {
			row(t, fmt.Sprint(c.name, ", slots: ", slots), func(t *testing.T) {
				p := newPanel(map[float64]string{2000: requests, 8: inFlight8})
				l := mustNew(t, Limit{Rates: []Rate{perSecond(2000, 4000)}, InFlight: slots}, Policy(p),
					BeyondShare(), few)
				time.Sleep(time.Second)
				permit := took(t, l, "k")
				time.Sleep(time.Second)
				c.then(t, l)
				time.Sleep(time.Second)
				permit.Done(c.f)
				want := c.want * time.Second
				if slots > 0 {
					want = 3 * time.Second
				}
				s := p.last(t, requests)
				if s.Now != want || s.Sent != time.Second || s.Outcome != c.f.Outcome {
					t.Errorf("got %+v, want it dated %v", s, want)
				}
			})
		}
	}
}

func TestFeedbackIsInOrder(t *testing.T) {
	// A look that has ended a gate is not undone by a success that is dated before it.
	row(t, "success dated before a look", func(t *testing.T) {
		p := newPanel(map[float64]string{2000: requests})
		l := mustNew(t, Rates(perSecond(2000, 4000)), Policy(p), BeyondShare())
		early := took(t, l, "k")
		p.says[requests] = policy.Pace{Rate: 100, NotBefore: since(l) + 5*time.Second}
		took(t, l, "k").Done(throttled)
		time.Sleep(7 * time.Second)
		if d := l.Check("k"); !d.OK {
			t.Errorf("2 s after the end of a gate: %+v", d)
		}
		p.says[requests] = policy.Pace{Rate: 1}
		early.Done(success)
		took(t, l, "k")
	})
	// A sweep forgets nothing of a key with permits that are out: what they bring is dated by the key, not by the
	// sweep.
	row(t, "sweeps forget nothing of who is out", func(t *testing.T) {
		l := learning(t, beyondShare, MaxKeys(1))
		out := took(t, l, "k")
		sends(t, l, "k", throttled)
		time.Sleep(forgetAfter)
		took(t, l, "another").Release()
		if g := gateOf(l, "k"); g == nil || g.ext.learned.due == 0 {
			t.Error("a sweep has forgotten it")
		}
		out.Done(success)
		time.Sleep(time.Second)
		took(t, l, "another").Release()
		is(t, "nothing is forgotten at last", gateOf(l, "k") != nil, false)
	})
	// A waiter behind a probe ends with its context, or with MaxWait. The time that it is given is computed by
	// the pace that is expected.
	row(t, "time outs behind a probe", func(t *testing.T) {
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
	// A probe that is given up unused lets the next one go at once. A permit that is corrected after its answer
	// gives nothing back: it has taken no more than one event.
	row(t, "probes given back", func(t *testing.T) {
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
	// A success is dated by what came before it. A correction that has asked the controllers again comes before
	// it too.
	row(t, "samples of a controller are in order", func(t *testing.T) {
		var samples []policy.Sample
		l := mustNew(t, Rates(perSecond(100, 100)), Policy(hourly{parts: 10, samples: &samples}))
		time.Sleep(1500 * time.Millisecond)
		p := upTo(t, l, "k", 4, 4)
		time.Sleep(time.Second)
		correct(t, p, 3)
		p.Done(success)
		if last := samples[len(samples)-1]; last.Outcome != policy.Success ||
			last.Now != 2500*time.Millisecond {
			t.Errorf("the success is dated %v, want the correction at 2.5s: %+v", last.Now, samples)
		}
	})
}

// The next call after ten minutes finds all forgotten, also where it is decided in the shortest way.
func TestNextCallForgets(t *testing.T) {
	for _, slots := range []int{0, 8} {
		row(t, slots, func(t *testing.T) {
			l := mustNew(t, Limit{Rates: []Rate{perSecond(1000, 1000)}, InFlight: slots},
				Policy(policy.AIMD{}))
			took(t, l, "k") // and kept: no sweep drops the key
			sends(t, l, "k", throttled)
			time.Sleep(forgetAfter + time.Second)
			took(t, l, "k")
			if pc := &gateOf(l, "k").ext.learned.pacers[0]; pc.ctrl != nil || pc.pace != 1000 {
				t.Errorf("a pace of %v is still learned", pc.pace)
			}
		})
	}
}

// A controller has held back a batch only if it would have let fewer through than the rates and the slots
// do.
func TestUpToNotesTheControllerThatHeldBack(t *testing.T) {
	window, rate := aligned(1, time.Minute), perSecond(1000, 1000)
	for name, c := range map[string]struct {
		rate     Rate
		requests float64 // that the controller of requests has room for, and slots
		slots    int
		paced    []bool // of both controllers
	}{
		"the window is used up":            {window, 3, 2, []bool{false, false}},
		"the controller of slots is least": {rate, 9, 2, []bool{false, true}},
		"that of requests first":           {rate, 3, 2, []bool{true, true}},
		"that of requests alone":           {rate, 3, 8, []bool{true, false}},
		"none of them":                     {rate, 9, 8, []bool{false, false}},
	} {
		row(t, name, func(t *testing.T) {
			l := mustNew(t, Limit{Rates: []Rate{c.rate}, InFlight: 10}, Policy(policy.AIMD{}))
			took(t, l, "k").Done(success) // it has learned something
			x := gateOf(l, "k").ext.learned
			for i, room := range []float64{c.requests, 100} {
				x.pacers[i].bucket = bucket{tokens: room, last: since(l)}
				x.pacers[i].fill = fill{interval: 1e9, size: room}
				x.pacers[i].heldBack = false
			}
			x.slots = c.slots
			l.TryAcquireUpTo("k", 6)
			var paced []bool
			for i := range x.pacers {
				paced = append(paced, x.pacers[i].heldBack)
			}
			if !slices.Equal(paced, c.paced) {
				t.Errorf("the controllers held back: %v, want %v", paced, c.paced)
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
		slept  time.Duration // seconds since the pause began
		out    bool          // then a probe is sent
		weight int
		turn   time.Duration // known then
	}{
		{0, 0, false, 1, 5 * time.Second},
		{0, 3, false, 1, 2 * time.Second},
		{0, 0, false, 3, 5 * time.Second}, // a probe is one request, whatever its weight
		{4, 0, false, 1, 7 * time.Second},
		{4, 1, false, 1, 6 * time.Second},
		{0, 5, true, 1, 500 * time.Millisecond},
		{2, 5, true, 1, 1500 * time.Millisecond},
		{0, 9, true, 1, 500 * time.Millisecond},
	} {
		for _, name := range []string{requests, tokens, inFlight8} {
			row(t, fmt.Sprintf("%s %+v", name, c), func(t *testing.T) {
				l, _ := probing(t, name)
				opts := []CallOption{Cost("tokens", c.weight), Weight(c.weight)}
				time.Sleep(c.slept * time.Second)
				if c.out {
					took(t, l, "k", Cost("tokens", 1))
				}
				for range c.ahead {
					asking(t, l, "k", Cost("tokens", 1)).waits(t)
				}
				late := askingUntil(t, l, c.turn-time.Millisecond, "k", opts...)
				refused := late.refusedAfter(t, 0, ReasonDeadline).Decision
				forgetPromises(l)
				for _, d := range []Decision{refused, l.Check("k", opts...), l.Explain("k", opts...).Next} {
					if d.OK || d.RetryAfter != c.turn {
						t.Errorf("%v, want a retry after %v", d, c.turn)
					}
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
				is(t, "retry after", e.RetryAfter, want)
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
			upTo(t, l, "other", 1, 1, opts...)
			time.Sleep(time.Minute)
			b.admittedAfter(t, 55*time.Second)
			c.admittedAfter(t, 105*time.Second)
			reasons := map[string]Reason{requests: ReasonRate, tokens: ReasonRate, inFlight8: ReasonInFlight}
			refusedFor(t, l, reasons[name], "k", opts...)
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
		next policy.Pace      // NotBefore counts from the probe's answer, a second after the end of the pause
		want [4]time.Duration // in milliseconds
	}{
		"faster": {policy.Pace{Rate: 4}, [4]time.Duration{5000, 6245, 6495, 6745}},
		"another pause": {policy.Pace{Rate: 2, NotBefore: 7 * s}.Probing(3 * s),
			[4]time.Duration{5000, 13000, 16000, 19000}},
		"paced again": {policy.Pace{Rate: 2, NotBefore: 7 * s}, [4]time.Duration{5000, 13000, 13500, 14000}},
		"sooner":      {policy.Pace{Rate: 2}.Probing(2 * s), [4]time.Duration{5000, 7960, 9960, 11960}},
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
			for i, ms := range c.want {
				want := ms * time.Millisecond
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

// A Probe below 0 means no probes, and one above an hour is an hour.
func TestProbeOutOfRange(t *testing.T) {
	for _, c := range [][2]time.Duration{{-time.Second, 0}, {1, 1}, {2 * time.Hour, time.Hour}} {
		probe, want := c[0], c[1]
		row(t, probe, func(t *testing.T) {
			l, p := governing(t, Replicas(1))
			p.gives(t, l, requests, policy.Pace{Rate: 100}.Probing(probe))
			is(t, "one request in", gateOf(l, "k").ext.learned.pacers[0].probe, want)
		})
	}
}

// rampFleet is a limit of ten a second for one replica, under a ramp from a tenth of it.
func rampFleet(t *testing.T, r policy.Ramp, opts ...Option) *Limiter {
	r.Start = 0.1
	return mustNew(t, Rates(PerSecond(10)), append(opts, Policy(r))...)
}

func TestRampOfALimiter(t *testing.T) {
	// What two replicas cannot share in whole tokens is not lost. Under the
	// start of one a second each replica admits one every other second, and a few more as the pace rises.
	row(t, "keeps fractions", func(t *testing.T) {
		pool := Replicas(2)
		ramp := policy.Ramp{Mode: policy.RampScheduled, Over: time.Hour}
		a, b := rampFleet(t, ramp, pool), rampFleet(t, ramp, pool)
		got := 0
		for range 21 {
			_, n := a.TryAcquireUpTo("k", 10)
			_, m := b.TryAcquireUpTo("k", 10)
			got += n + m
			time.Sleep(time.Second)
		}
		if got != 22 { // one a second, and one that each may start with
			t.Errorf("%d of 22 in 21 seconds", got)
		}
	})
	// A change of the pool moves the rate at once, and leaves the ramp where
	// it stands.
	row(t, "follows the pool", func(t *testing.T) {
		l := rampFleet(t, policy.Ramp{Mode: policy.RampRelaxed, Over: 9 * time.Second})
		for n := range 5 {
			upTo(t, l, "k", 100, n+1)
			time.Sleep(time.Second)
		}
		setReplicas(t, l, 2)
		upTo(t, l, "k", 100, 3) // six tenths of five
		setReplicas(t, l, 1)
		upTo(t, l, "k", 100, 0) // a raise brings nothing to a bucket that is not full
		time.Sleep(time.Second)
		upTo(t, l, "k", 100, 7) // one that was is filled up
		time.Sleep(time.Second)
		upTo(t, l, "k", 100, 8)
	})
	// A reader who takes everything once a second leaves nothing over by
	// the controller's count, although the pace has risen meanwhile.
	row(t, "go back climbs steeply", func(t *testing.T) {
		l := rampFleet(t, policy.Ramp{Mode: policy.RampGoBack, Over: 2 * time.Second})
		for _, want := range []int{1, 5, 10, 10} {
			upTo(t, l, "k", 100, want)
			time.Sleep(time.Second)
		}
	})
	// A waiter need not wait as long as the first pace would have it.
	row(t, "wakes waiters", func(t *testing.T) {
		l := rampFleet(t, policy.Ramp{Mode: policy.RampScheduled, Over: 9 * time.Second})
		upTo(t, l, "k", 1, 1)
		calls := []*call{asking(t, l, "k"), asking(t, l, "k"), asking(t, l, "k"), asking(t, l, "k")}
		time.Sleep(10 * time.Second)
		for i, after := range []time.Duration{1000, 1000, 1500, 2000} {
			calls[i].admittedAfter(t, after*time.Millisecond)
		}
	})
	// A key in use stays where its ramp stands, even without feedback.
	// A key that was idle for long starts again.
	row(t, "is forgotten with its key", func(t *testing.T) {
		l := rampFleet(t, policy.Ramp{Mode: policy.RampRelaxed, Over: time.Second})
		upTo(t, l, "k", 100, 1)
		for range 3 {
			time.Sleep(forgetAfter - time.Second)
			upTo(t, l, "k", 100, 10)
		}
		time.Sleep(forgetAfter)
		upTo(t, l, "k", 100, 1)
	})
}

// A reader that takes all there is once a second gets the pace of each second that begins. That holds for
// every pace: a bucket that is full but for rounding is full.
func TestRampOfAReaderOnceASecond(t *testing.T) {
	for per := 1; per <= 400; per++ {
		inFakeTime(t, func(t *testing.T) {
			rate := Rate{Events: float64(per), Per: time.Second, Burst: 100 * per}
			ramp := policy.Ramp{Mode: policy.RampRelaxed, Start: .2, Over: 5 * time.Second}
			l := mustNew(t, Rates(rate), Policy(ramp))
			got, want := 0, 0.0
			for i := range 6 {
				_, n := l.TryAcquireUpTo("k", 1000)
				got += n
				want += max(1, float64(per)*min(1, .2+.8*float64(i)/5))
				time.Sleep(time.Second)
			}
			if float64(got) < want-6 {
				t.Errorf("%d a second: %d events in six seconds, want %.0f", per, got, want)
			}
		})
	}
}

// hourly is a policy whose controllers want to be called again every second, whatever the feedback. It
// allows one part more of the ceiling each time, and notes its samples.
type hourly struct {
	parts   float64
	samples *[]policy.Sample
	panics  *bool
	bad     error
}

func (h hourly) New(uint64) policy.Controller { return &hourlyController{hourly: h} }
func (h hourly) Validate() error              { return h.bad }

type hourlyController struct {
	hourly
	n float64
}

func (l *hourlyController) Next(s policy.Sample, b policy.Bounds) policy.Pace {
	if l.panics != nil && *l.panics {
		panic("broken")
	}
	if l.n++; l.samples != nil && s.Now > 0 {
		*l.samples = append(*l.samples, s)
	}
	return policy.Pace{
		Rate: b.Ceiling * min(1, l.n/l.parts), Saved: time.Second,
		Until: s.Now.Truncate(time.Second) + time.Second,
	}
}

// hundred is a rate of 100 a second with a burst of as many.
var hundred = Rates(perSecond(100, 100))

func TestPacesExpire(t *testing.T) {
	// The first call starts a controller whose pace expires. The first call after the expiry asks it again,
	// without any feedback. Its sample has what was taken and given back, and whether it has held a call back.
	row(t, "controllers are consulted again", func(t *testing.T) {
		var samples []policy.Sample
		l := mustNew(t, hundred, Policy(hourly{parts: 10, samples: &samples}))
		time.Sleep(1500 * time.Millisecond)
		p := upTo(t, l, "k", 100, 10) // an untouched key has saved up a second's events at the start
		upTo(t, l, "k", 1, 0)
		correct(t, p, 4)
		p.Release()
		time.Sleep(400 * time.Millisecond)
		upTo(t, l, "k", 3, 3).Release()
		time.Sleep(200 * time.Millisecond) // 2.1 s
		l.Allow("k")
		first := policy.Sample{Now: 1500 * time.Millisecond, Sent: 1500 * time.Millisecond}
		then := policy.Sample{Now: 2 * time.Second, Sent: 2 * time.Second, Taken: 7, Paced: true}
		if want := []policy.Sample{first, first, then}; len(samples) < 3 || !slices.Equal(samples[:3], want) {
			t.Errorf("got %+v, want %+v", samples, want)
		}
	})
	// A controller that panics when it is called again is dropped: the caller has nothing to do with it, and no
	// lock is kept.
	row(t, "consulted controller that panics", func(t *testing.T) {
		panics := false
		l := mustNew(t, Rates(Rate{Events: 10, Per: time.Second, Burst: 10}),
			Policy(hourly{parts: 1, panics: &panics}))
		l.Allow("k")
		panics = true
		time.Sleep(2 * time.Second)
		for range 2 {
			is(t, "admitted", l.Allow("k"), true)
		}
	})
	// A turn that comes sooner than the present pace says is not refused for its deadline.
	row(t, "deadline under a pace that rises", func(t *testing.T) {
		l := mustNew(t, Rates(Rate{Events: 1000, Per: time.Second, Burst: 1000}),
			Policy(policy.Ramp{Start: .001, Over: 10 * time.Second}))
		l.Allow("k")
		for range 20 { // at 1/s they would take twenty seconds
			asking(t, l, "k")
		}
		c := askingUntil(t, l, 10*time.Second, "k")
		time.Sleep(5 * time.Second)
		if !c.ended() || c.err != nil {
			t.Errorf("ended %v: %v", c.ended(), c.err)
		}
	})
	// A controller that is always out of date is called at most a thousand times a second.
	row(t, "pace that is always out of date", func(t *testing.T) {
		asked := new(atomic.Int64)
		l := mustNew(t, Rates(PerSecond(1)), Policy(alwaysLate{asked}))
		l.Allow("k")
		c := asking(t, l, "k")
		asked.Store(0)
		if time.Sleep(100 * time.Microsecond); asked.Load() > 1 {
			t.Errorf("asked %d times in .1 ms", asked.Load())
		} else if time.Sleep(10 * time.Millisecond); asked.Load() < 5 || asked.Load() > 15 {
			t.Errorf("asked %d times in 10 ms", asked.Load())
		}
		c.cancel()
		time.Sleep(time.Second)
	})
	// Check says what TryAcquire would, also under a controller with a clock, and neither it nor a look at the
	// keys keeps one.
	row(t, "looks under a clock", func(t *testing.T) {
		l := mustNew(t, Limit{InFlight: 100}, Policy(policy.Ramp{Start: .01, Over: 10 * time.Second}))
		took(t, l, "k").Release()
		time.Sleep(time.Minute)
		is(t, "Check", l.Check("k", Weight(50)), Decision{OK: true})
		for range 15 {
			time.Sleep(time.Minute)
			l.Check("k")
			for range l.Keys() {
			}
		}
		is(t, "remembered because of a look, until", gateOf(l, "k").ext.learned.due, 0)
	})
}

// alwaysLate is a controller whose pace is out of date when it says it.
type alwaysLate struct{ asked *atomic.Int64 }

func (p alwaysLate) New(uint64) policy.Controller { return p }

func (p alwaysLate) Next(policy.Sample, policy.Bounds) policy.Pace {
	p.asked.Add(1)
	return policy.Pace{Rate: 1e-3, Until: 1}
}
