package quotient

import (
	"context"
	"testing"

	"github.com/quotient-go/quotient/policy"
)

// A controller that panics must not keep the shard's lock.
type panicky struct{}

func (panicky) Next(s policy.Sample, b policy.Bounds) policy.Pace {
	if s.Outcome == policy.Throttled {
		panic("controller")
	}
	return policy.Pace{Rate: 1}
}

type panickyPolicy struct{}

func (panickyPolicy) New(uint64) policy.Controller { return panicky{} }

func TestPanickingController(t *testing.T) {
	l := limiterOf(t, rated(PerSecond(10)), Policy(panickyPolicy{}))
	p := took(t, l, "k")
	func() {
		defer func() { _ = recover() }()
		p.Report(policy.Feedback{Outcome: policy.Throttled})
	}()
	if !l.shard("k").mu.TryLock() {
		t.Fatal("the shard's lock is still held: every later ask of the shard hangs")
	}
	l.shard("k").mu.Unlock()
}

// fragile is a controller that cannot bear a change of its bounds.
type fragile struct{ begun bool }

func (fragile) New(uint64) policy.Controller { return new(fragile) }

func (f *fragile) Next(s policy.Sample, _ policy.Bounds) policy.Pace {
	if f.begun && s.Outcome == policy.Unknown {
		panic("a change")
	}
	f.begun = true
	return policy.Pace{Rate: 1}
}

// A controller that panics at a change of the pool is dropped: the next caller has nothing to do with it.
func TestControllerThatPanicsAtAChange(t *testing.T) {
	for name, ask := range map[string]func(*Limiter){
		"Allow":          func(l *Limiter) { l.Allow("k") },
		"TryAcquire":     func(l *Limiter) { l.TryAcquire("k") },
		"TryAcquireUpTo": func(l *Limiter) { l.TryAcquireUpTo("k", 1) },
		"Acquire":        func(l *Limiter) { _, _ = l.Acquire(context.Background(), "k") },
		"Check":          func(l *Limiter) { l.Check("k") },
	} {
		row(t, name, func(t *testing.T) {
			l := limiterOf(t, rated(perSecond(10, 20)), Policy(fragile{}))
			took(t, l, "k").Done(success)
			setReplicas(t, l, 2)
			ask(l)
			paces(t, l, "k", 1) // where a new controller starts
			if pc := &gateOf(l, "k").ext.learned.pacers[0]; pc.ctrl != nil {
				t.Error("the controller is still there")
			}
		})
	}
}

// A controller that panics at a refusal takes no slot with it.
func TestControllerThatPanicsAtDone(t *testing.T) {
	l := limiterOf(t, Limit{InFlight: 1, Rates: []Rate{PerSecond(10)}}, Policy(panickyPolicy{}))
	p := took(t, l, "k")
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is not handed on")
			}
		}()
		p.Done(throttled)
	}()
	if n := l.Stats().InFlight; n != 0 {
		t.Errorf("in flight %d after Done", n)
	}
}
