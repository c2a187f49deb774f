package quotient

import (
	"reflect"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// inFlight fails unless so many slots are taken, of all keys.
func inFlight(t *testing.T, l *Limiter, n int) {
	t.Helper()
	if got := l.Stats().InFlight; got != n {
		t.Errorf("%d are in flight, want %d", got, n)
	}
}

func TestReleaseCountsOnce(t *testing.T) {
	l := limiterOf(t, Limit{InFlight: 3})
	p := took(t, l, "k", Weight(2))
	other := took(t, l, "k")
	copied := p
	inFlight(t, l, 3)
	p.Release()
	for range 5 {
		copied.Release()
		p.Done(policy.Feedback{Outcome: policy.Throttled})
	}
	inFlight(t, l, 1)
	if got := l.Stats().DoubleReleases; got != 10 {
		t.Errorf("counted %d double releases, want 10", got)
	}
	took(t, l, "k", Weight(2))
	refusedFor(t, l, ReasonInFlight, "k")
	other.Release()
	inFlight(t, l, 2)
}

// A slot of the permit table is used again; the permit that had it before is not valid for its successor.
func TestStalePermitDoesNotReleaseItsSuccessor(t *testing.T) {
	l := limiterOf(t, Limit{Rates: []Rate{tokensPerMinute(60, 60)}, InFlight: 1})
	stale := took(t, l, "k", Cost("tokens", 1))
	stale.Release()
	for range 10 {
		p := took(t, l, "k", Cost("tokens", 1))
		if p.h != stale.h || p.gen == stale.gen {
			t.Fatalf("permit %+v after %+v, want the same slot and another generation", p, stale)
		}
		stale.Release()
		stale.ExpireIn(-1)
		says(t, stale.Correct("tokens", 5), "released")
		inFlight(t, l, 1)
		p.Release()
	}
	inFlight(t, l, 0)
}

// Failure mode 27: no number of uses makes a permit of long ago good again. There were 2^31 since then.
func TestStalePermitOfLongAgo(t *testing.T) {
	limit := Limit{InFlight: 1, Rates: []Rate{perSecond(1e6, 1e6), tokensPerMinute(6e7, 1e6)}}
	l := limiterOf(t, limit, Policy(policy.AIMD{}))
	stale := took(t, l, "k", Cost("tokens", 1))
	stale.Release()
	for range 2 {
		stale.h.gen += 1<<31 - 1 // together, with the next taking, as if it had been used so often
	}
	p := took(t, l, "k", Cost("tokens", 1))
	if p.h != stale.h || p.h.gen%2 == 0 {
		t.Fatalf("not the same holding: %+v, then %+v", stale, p)
	}
	stale.Release()
	stale.Done(policy.Feedback{Outcome: policy.Throttled})
	stale.Report(policy.Feedback{Outcome: policy.Throttled})
	stale.ExpireIn(1)
	says(t, stale.Correct("tokens", 5), "released")
	says(t, stale.Correct("", 0), "released")
	inFlight(t, l, 1)
	if st := l.Stats(); st.DoubleReleases != 2 || st.Throttled != 0 {
		t.Errorf("%d double releases, throttled %d, want 2 and 0", st.DoubleReleases, st.Throttled)
	}
}

// The reason for which a permit was taken does not affect the next one in the same place.
func TestPermitsLeaveNothingBehind(t *testing.T) {
	limit := Limit{Rates: []Rate{perSecond(1e6, 1e6), tokensPerMinute(600, 600)}, InFlight: 10}
	for _, c := range []struct {
		name    string
		opts    []CallOption
		correct []int // costs, one after the other
	}{
		{"no cost", nil, nil},
		{"no cost, then some", nil, []int{5}},
		{"no cost, then some, then none", nil, []int{5, 0}},
		{"a cost of nothing", []CallOption{Cost("tokens", 0)}, nil},
		{"a cost of nothing, then some", []CallOption{Cost("tokens", 0)}, []int{7}},
		{"a cost", []CallOption{Cost("tokens", 20)}, nil},
		{"a cost, then none", []CallOption{Cost("tokens", 20)}, []int{0}},
		{"a cost, then more", []CallOption{Cost("tokens", 20)}, []int{50}},
		{"a cost, then more, then less", []CallOption{Cost("tokens", 20)}, []int{50, 30}},
		{"a cost, then more, then none", []CallOption{Cost("tokens", 20)}, []int{50, 0}},
		{"weight", []CallOption{Weight(4)}, nil},
	} {
		row(t, c.name, func(t *testing.T) {
			l := limiterOf(t, limit, MaxHold(time.Minute), MaxKeys(10))
			p := took(t, l, "k", c.opts...)
			for _, used := range c.correct {
				if err := p.Correct("tokens", used); err != nil {
					t.Fatal(err)
				}
			}
			p.Release()
			left := *p.h
			left.s, left.gen, left.next = nil, 0, nil
			// each taking sets them
			left.weight, left.slots, left.epoch, left.since, left.place = 0, 0, 0, 0, 0
			if !reflect.DeepEqual(left, holding{}) {
				t.Errorf("left behind: %+v", left)
			}
			// The next one has taken no tokens, so that it has none to give back, and owes what it says.
			took(t, l, "other", Cost("tokens", 100)).Release()
			before := tokensOf(t, l, "other")[1]
			next := took(t, l, "other")
			if next.h != p.h {
				t.Fatal("the permit stands elsewhere")
			}
			if err := next.Correct("tokens", 10); err != nil {
				t.Fatal(err)
			}
			if got := tokensOf(t, l, "other")[1]; got != before-10 {
				t.Errorf("10 tokens were corrected, %v are taken", before-got)
			}
			if err := next.Correct("tokens", 0); err != nil {
				t.Fatal(err)
			}
			if got := tokensOf(t, l, "other")[1]; got != before {
				t.Errorf("none were used, %v are taken", before-got)
			}
			next.Release()
		})
	}
}

func TestPermitTableGrowsByBlocks(t *testing.T) {
	const many = 3*permitBlock + 1
	l := limiterOf(t, Limit{InFlight: many})
	s := l.shard("k")
	for range 3 {
		seen := map[*holding]bool{}
		var permits []Permit
		for range many {
			p := took(t, l, "k")
			seen[p.h] = true
			permits = append(permits, p)
		}
		if len(seen) != many || len(s.permits.blocks) != 4 {
			t.Errorf("%d slots in %d blocks, want %d in 4", len(seen), len(s.permits.blocks), many)
		}
		for _, p := range permits {
			p.Release()
		}
		inFlight(t, l, 0)
	}
}

func TestZeroPermitDoesNothing(t *testing.T) {
	var p Permit
	p.Release()
	p.Release()
	p.Done(policy.Feedback{Outcome: policy.Success})
	p.ExpireIn(time.Second)
	says(t, p.Correct("tokens", 1), "without a Cost")
	l := limiterOf(t, rated(PerSecond(1)))
	if got := took(t, l, "k"); got != p {
		t.Errorf("a permit with nothing to give back is %+v", got)
	}
}

// Failure mode 5: a waiter that is admitted in the instant in which its context ends gives all back.
func TestCancelOfAGrantedWaiter(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{Rates: []Rate{perSecond(1, 1), tokensPerMinute(60, 60)}, InFlight: 1})
		d := demand{weight: 1, costs: [maxUnits]int{60}}
		s := l.shard("k")
		s.mu.Lock()
		now := s.now()
		g := s.gate(l.hash("k"), "k", now, 0)
		w := newWaiter(d)
		w.key = "k"
		l.waiting.Add(1)
		s.enqueue(g, w, now)
		s.mu.Unlock()
		if got := tokensOf(t, l, "k"); len(w.ready) != 1 || got[0] != 0 || got[1] != 0 {
			t.Fatalf("the waiter is not admitted: %v", got)
		}
		(&caller{s, g, w}).cancel()
		if got := tokensOf(t, l, "k"); got[0] != 1 || got[1] != 60 {
			t.Errorf("left %v, want 1 and 60", got)
		}
		inFlight(t, l, 0)
		if st := l.Stats(); st.Admitted != 0 || st.Cancelled != 1 || st.Waiting != 0 {
			t.Errorf("admitted %d, cancelled %d, waiting %d, want 0, 1, 0", st.Admitted, st.Cancelled,
				st.Waiting)
		}
	})
}

// Copies of a permit may be released by many goroutines at once: one of them counts.
func TestReleaseByManyAtOnce(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{InFlight: 100})
		took(t, l, "k", Weight(50))
		for range 50 {
			p := took(t, l, "k", Weight(2))
			for range 4 {
				go p.Release()
			}
			synctest.Wait()
		}
		inFlight(t, l, 50)
		if got := l.Stats().DoubleReleases; got != 150 {
			t.Errorf("counted %d double releases, want 150", got)
		}
	})
}

// Free holdings pin dropped gates, those pin their setting, and it pins all that followed.
func TestSettingsAreGarbage(t *testing.T) {
	l := limiterOf(t, Limit{InFlight: 10}, MaxKeys(10))
	// 70 permits out: two blocks. Keys are dropped afterwards.
	var ps []Permit
	for i := range 10 {
		for range 7 {
			ps = append(ps, took(t, l, string(rune('a'+i))))
		}
	}
	for _, p := range ps {
		p.Release()
	}
	ps = nil
	for i := range 20 { // other keys push the first ones out
		p := took(t, l, string(rune('A'+i)))
		p.Release()
	}
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	const n = 50_000
	for i := range n {
		setReplicas(t, l, 1+i%2)
	}
	after := heap()
	per := (float64(after) - float64(before)) / n
	t.Logf("%.0f bytes of heap for each change; %d keys", per, l.Stats().Keys)
	count := 0
	for b := range l.shards[0].permits.blocks {
		for i := range l.shards[0].permits.blocks[b] {
			if g := l.shards[0].permits.blocks[b][i].gate; g != nil {
				c := 0
				for st := g.setting; st != nil; st = st.next {
					c++
				}
				count = max(count, c)
			}
		}
	}
	t.Logf("longest chain of settings: %d", count)
	if count > 2*catchUp {
		t.Errorf("a free holding keeps %d settings alive", count)
	}
	runtime.KeepAlive(l)
}
