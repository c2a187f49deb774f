package quotient

import (
	"context"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient/policy"
)

type outcall struct {
	cancel context.CancelFunc
	done   atomic.Bool
	p      Permit
	err    error
}

func inspect(t *testing.T, l *Limiter, step int, op string) {
	s := &l.shards[0]
	s.mu.Lock()
	defer s.mu.Unlock()
	now := l.wallNow()
	gates := map[*gate]string{}
	for _, g := range s.order.Keys() {
		gates[g] = g.name
		if s.find(l.hash(g.name)) != g {
			t.Errorf("step %d %s: %s is not found by its hash", step, op, g.name)
		}
	}
	for _, ln := range slices.Concat(s.old, s.index) {
		for _, g := range ln.gates {
			if g != nil && gates[g] != g.name {
				t.Errorf("step %d %s: %s was dropped and is still found", step, op, g.name)
			}
		}
	}
	if s.overflow.gate != nil {
		gates[s.overflow.gate] = "OVERFLOW"
	}
	total := 0
	held := map[*gate]int32{}
	used := map[*gate]int32{}
	exp := map[*gate]int{}
	names := map[string]int{}
	for _, b := range s.permits.blocks {
		for i := range b {
			h := &b[i]
			if !h.out() {
				continue
			}
			held[h.gate]++
			used[h.gate] += h.slots
			if h.end != 0 {
				exp[h.gate]++
			}
			if s.overflow.is(h.gate) {
				names[h.key]++
			}
			if h.epoch > h.gate.epoch {
				t.Errorf("step %d %s: a permit is of an epoch to come", step, op)
			}
			if _, ok := gates[h.gate]; !ok {
				t.Errorf("step %d %s: a permit's gate is not in the map", step, op)
			}
		}
	}
	for g, k := range gates {
		if g.held != held[g] || g.used != used[g] {
			t.Errorf("step %d %s: %s held %d/%d used %d/%d", step, op, k, g.held, held[g], g.used, used[g])
		}
		q := 0
		if g.ext != nil {
			q = g.ext.queue.len
			if len(g.ext.expiring) != exp[g] {
				t.Errorf("step %d %s: %s expiring %d want %d", step, op, k, len(g.ext.expiring), exp[g])
			}
		}
		total += q
		if _, ok := s.waiting[g]; ok != (q > 0) {
			t.Errorf("step %d %s: %s waiting %v queue %d", step, op, k, ok, q)
		}
		if q == 0 {
			continue
		}
		m := g.ext
		if g.setting != s.setting {
			t.Errorf("step %d %s: %s stale setting with a queue", step, op, k)
			continue
		}
		var want backlog
		var last [numClasses]*waiter
		var oldest *waiter
		for w := m.queue.head; w != nil; w = w.next {
			class := int(w.d.class - PriorityLow)
			want[class][0] += w.d.weight
			for unit, n := range w.d.costs {
				want[class][1+unit] += n
			}
			if w.next == nil || w.next.d.class != w.d.class {
				last[class] = w
			}
			if w.next != nil &&
				(w.next.d.class > w.d.class || w.next.d.class == w.d.class && w.next.older(w)) {
				t.Errorf("step %d %s: %s is not in order", step, op, k)
			}
			if oldest == nil || w.older(oldest) {
				oldest = w
			}
			if s.overflow.is(g) {
				names[w.key]++
			}
		}
		if m.backlog == nil || *m.backlog != want {
			t.Errorf("step %d %s: %s backlog %v want %v", step, op, k, m.backlog, want)
		}
		if l := m.learned; l != nil && l.due != 0 && now.at >= l.due {
			t.Errorf("step %d %s: %s is stale with a queue", step, op, k)
		}
		if last != m.queue.last || oldest != m.queue.oldest() || m.queue.passed >= trickle {
			t.Errorf("step %d %s: %s: the ends of the classes are wrong, or %d have passed", step, op, k,
				m.queue.passed)
		}
		v := g.look(now, &m.queue.next().d)
		if v.wait < never {
			v.wait = g.pacerOf(v).wakes(now.at, v.wait)
		}
		soon := m.ready.known && m.timer != nil && m.ready.at <= now.at+2 // rounded up
		switch {
		case v.reason == ReasonNone && soon:
		case v.reason == ReasonNone:
			t.Errorf("step %d %s: %s head waits though there is room", step, op, k)
		case v.final():
			t.Errorf("step %d %s: %s head waits though refused %v", step, op, k, v.reason)
		case v.wait < never: // a float64 has 52 bits, and several are added
			if !m.ready.known || m.ready.at > now.at+v.wait+2+v.wait>>43 || m.timer == nil {
				t.Errorf("step %d %s: %s head's turn in %v, timer in %v (%v)",
					step, op, k, v.wait, m.ready.at-now.at, m.timer)
			}
		case v.reason == ReasonInFlight && len(m.expiring) > 0:
			if m.timer == nil {
				t.Errorf("step %d %s: %s no timer for the expiring", step, op, k)
			}
			for _, h := range m.expiring {
				// A caller that waits for a rate learns at its turn that slots are what it waits for now.
				if h.end <= now.at && m.blocked == ReasonInFlight {
					t.Errorf("step %d %s: %s expired and not given back with a queue", step, op, k)
				}
				if h.end < m.nextEnd {
					t.Errorf("step %d %s: %s nextEnd too late", step, op, k)
				}
			}
		}
		if l.maxWait > 0 && now.at-oldest.since >= l.maxWait {
			t.Errorf("step %d %s: %s one waits beyond MaxWait", step, op, k)
		}
	}
	if int64(total) != l.waiting.Load() {
		t.Errorf("step %d %s: waiting %d, queued %d", step, op, l.waiting.Load(), total)
	}
	if s.overflow.gate != nil && !maps.Equal(names, s.overflow.callers) {
		t.Errorf("step %d %s: callers %v want %v", step, op, s.overflow.callers, names)
	}
	if int(l.keys.Load()) != s.order.Len() {
		t.Errorf("step %d: keys %d %d", step, l.keys.Load(), s.order.Len())
	}
}

func runOracle(t *testing.T, seed uint64, steps int, opts ...Option) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(seed, 1))
		classes := seed%2 == 1 // calls have a priority
		limits := mixedLimits(mix{unit: "tokens", speed: 1, window: 7.5, later: 7.5})
		l := limiterOf(t, limits[0], append([]Option{MaxKeys(3), MaxWaiting(30, 60)}, opts...)...)
		var calls []*outcall
		var ps []Permit
		for step := range steps {
			key := string(rune('a' + r.IntN(7)))
			opts := []CallOption{}
			if r.IntN(3) == 0 {
				opts = append(opts, Weight(1+r.IntN(3)))
			}
			if r.IntN(3) == 0 {
				opts = append(opts, Cost("tokens", r.IntN(40)))
			}
			if classes {
				opts = append(opts, Priority(r.IntN(numClasses)-1).Option())
			}
			op := ""
			switch n := r.IntN(100); {
			case n < 30:
				op = "acquire"
				ctx, cancel := context.WithCancel(t.Context())
				if r.IntN(3) == 0 {
					ctx, cancel = context.WithTimeout(t.Context(),
						time.Duration(r.IntN(5000))*time.Millisecond)
				}
				c := &outcall{cancel: cancel}
				calls = append(calls, c)
				go func() { c.p, c.err = l.Acquire(ctx, key, opts...); c.done.Store(true) }()
			case n < 42:
				op = "try"
				if p, d := l.TryAcquire(key, opts...); d.OK {
					ps = append(ps, p)
				}
			case n < 46:
				op = "upto"
				if p, got := l.TryAcquireUpTo(key, 1+r.IntN(5)); got > 0 {
					ps = append(ps, p)
				}
			case n < 48:
				op = "allow"
				l.Allow(key)
			case n < 51:
				op = "check"
				l.Check(key, opts...)
			case n < 55:
				op = "cancel"
				if len(calls) > 0 {
					i := r.IntN(len(calls))
					calls[i].cancel()
				}
			case n < 75 && len(ps) > 0:
				i := r.IntN(len(ps))
				p := ps[i]
				switch r.IntN(6) {
				case 0:
					op = "correct"
					_ = p.Correct("tokens", r.IntN(60))
				case 1:
					op = "expire"
					p.ExpireIn(time.Duration(r.IntN(3000)-500) * time.Millisecond)
				case 2:
					op = "report"
					p.Report(policy.Feedback{Outcome: policy.Outcome(r.IntN(5)), Quotas: [4]policy.Quota{
						{Limit: float64(r.IntN(3)), Remaining: 1},
						{Unit: "tokens", Limit: 9, Remaining: float64(r.IntN(9))},
					}})
				case 3:
					op = "done"
					p.Done(policy.Feedback{Outcome: policy.Outcome(r.IntN(5)),
						RetryAfter: time.Duration(r.IntN(2)*r.IntN(5000)) * time.Millisecond})
					ps[i] = ps[len(ps)-1]
					ps = ps[:len(ps)-1]
				default:
					op = "release"
					p.Release()
					ps[i] = ps[len(ps)-1]
					ps = ps[:len(ps)-1]
				}
			case n < 79:
				op = "limit"
				_ = l.SetLimit(limits[r.IntN(len(limits))])
			case n < 82:
				op = "pool"
				n := 1 + r.IntN(3)
				_ = l.SetPool(Pool{Replicas: n, Ordinal: r.IntN(n + 1), Fixed: r.IntN(2) == 0}, 0)
			case n < 83:
				op = "stats"
				l.Stats()
			case n < 84:
				op = "keys"
				for range l.Keys() {
				}
			default:
				op = "sleep"
				time.Sleep(time.Duration(math.Exp(r.Float64()*21.3)) * time.Microsecond) // up to half an hour
			}
			synctest.Wait()
			inspect(t, l, step, op)
			if t.Failed() {
				t.Logf("seed %d", seed)
				break
			}
			synctest.Wait() // no caller is on its way between the limiter and its answer
			kept := calls[:0]
			for _, c := range calls {
				if !c.done.Load() {
					kept = append(kept, c)
				} else {
					c.cancel()
					if c.err == nil {
						ps = append(ps, c.p)
					}
				}
			}
			calls = kept
		}
		for _, c := range calls {
			c.cancel()
		}
		synctest.Wait()
	})
}

// After every step of a random history the state is recounted from the outside. The head never waits while
// there is room, its timer is not late, and every counter is right.
func TestStateAfterEveryStep(t *testing.T) {
	for seed := range uint64(30) {
		runOracle(t, seed, 600)
		runOracle(t, seed, 600, MaxHold(2*time.Second), MaxWait(4*time.Second))
		runOracle(t, seed, 600, policyOf(policy.Tracking{}, []bool{withinShare, beyondShare}[seed%2]))
		runOracle(t, seed, 600, MaxHold(2*time.Second), Policy(policy.AIMD{}))
		runOracle(t, seed, 600, Policy(policy.AIMD{Decrease: 0.1}), BeyondShare(), MaxWait(20*time.Second))
		runOracle(t, seed, 600, policyOf(adversary{seed, true}, []bool{withinShare, beyondShare}[seed%2]),
			MaxHold(5*time.Second))
		if t.Failed() {
			return
		}
	}
}
