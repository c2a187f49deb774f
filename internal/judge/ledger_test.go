package judge

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/inside"
)

// property checks prop on many histories, each in a bubble of its own with fake time.
func property(t *testing.T, prop func(*rapid.T)) {
	t.Helper()
	rapid.Check(t, func(rt *rapid.T) { rapid.SyncTest(rt, prop) })
}

// event is so much admitted at an instant.
type event struct {
	at time.Time
	n  float64
}

// step is a rate, in events a second, and a burst that hold from an instant on.
type step struct {
	at          time.Time
	rate, burst float64
}

// ledger records what was admitted, under which limits, and holds a bound over every window.
type ledger struct {
	events []event
	steps  []step
	extra  float64 // that may come once on top: a debt, or what a late hint costs
	// gated is what may come on top in a window; nil for nothing.
	gated func(a, b time.Time) float64
}

func (m *ledger) limit(rate, burst float64) {
	m.steps = append(m.steps, step{time.Now(), rate, burst})
}

func (m *ledger) add(n int) {
	if n > 0 {
		m.events = append(m.events, event{time.Now(), float64(n)})
	}
}

// integral of the rate from a to b.
func (m *ledger) integral(a, b time.Time) float64 {
	sum := 0.0
	for i, s := range m.steps {
		from, to := s.at, b
		if i+1 < len(m.steps) && m.steps[i+1].at.Before(b) {
			to = m.steps[i+1].at
		}
		if from.Before(a) {
			from = a
		}
		if to.After(from) {
			sum += s.rate * to.Sub(from).Seconds()
		}
	}
	return sum
}

// burst is the largest that was in force in the window.
func (m *ledger) burst(a, b time.Time) float64 {
	most := 0.0
	for i, s := range m.steps {
		over := i+1 < len(m.steps) && m.steps[i+1].at.Before(a)
		if !over && !s.at.After(b) {
			most = max(most, s.burst)
		}
	}
	return most
}

// check holds every window from one event to another against
// integral + burst + extra. A thousandth of an event is what buckets count in.
func (m *ledger) check(fail func(string, ...any)) {
	for i := range m.events {
		sum := 0.0
		for j := i; j < len(m.events); j++ {
			sum += m.events[j].n
			a, b := m.events[i].at, m.events[j].at
			most := m.integral(a, b) + m.burst(a, b) + m.extra
			if m.gated != nil {
				most += m.gated(a, b)
			}
			if sum > most+0.002 {
				fail("window of %v: admitted %v, bound %.4f", b.Sub(a), sum, most)
			}
		}
	}
}

// few keys make a limiter of one shard, cheap to make.
var few = quotient.MaxKeys(8)

func mustNew(t interface{ Fatal(...any) }, limit quotient.Limit, opts ...quotient.Option) *quotient.Limiter {
	l, err := quotient.New(limit, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// stop ends a history in which something is not as it should be.
func stop(t interface{ Fatalf(string, ...any) }, is bool, format string, args ...any) {
	if is {
		t.Fatalf(format, args...)
	}
}

func must(t interface{ Fatal(...any) }, err error) {
	if err != nil {
		t.Fatal(err)
	}
}

// phase fixes which sparse windows are a replica's own.
func phase(n int64) quotient.Option { return fix(func(c *inside.Chance) { c.Phase = n }) }

func key(i int) string { return fmt.Sprintf("key-%d", i) }

// perSecond is how many events a rate has in a second.
func perSecond(r quotient.Rate) float64 { return r.Events / r.Per.Seconds() }

// shareOf is what division allows.
func shareOf(r quotient.Rate, replicas int) (rate, burst float64) {
	n := float64(replicas)
	return perSecond(r) / n, max(1, burstOf(r)/n)
}
