package quotient

import (
	"context"
	"log/slog"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// A learned rate that is forgotten after 10 minutes must wake the head (adaptive.go forget, wait.go arm).
func TestForgetWakesTheHead(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(Rate{Name: "r", Events: 1, Per: time.Minute, Burst: 20}), Policy(policy.AIMD{Decrease: 0.02}, CeilingShare))
		p := took(t, l, "k")
		time.Sleep(time.Second)
		p.Done(policy.Feedback{Outcome: policy.Throttled}) // one in 50 min from now on
		learned := func() (x float64) {
			for _, ks := range l.Keys() {
				x = ks.Rate
			}
			return x
		}
		w := asking(t, l, "k")
		time.Sleep(12 * time.Minute)
		if !w.ended() {
			t.Errorf("still queued 12 min after the last feedback; it was forgotten after 10, and the rate is one a minute again: %v/s", learned())
			for d := range 60 {
				if time.Sleep(time.Minute); w.ended() {
					t.Logf("admitted only %d min later", d+1)
					break
				}
			}
		}
		w.cancel()
		synctest.Wait()
	})
}

// Behind a head that waits for a slot, an aligned window with room must not count as a wait for the next window.
func TestAlignedTurnBehindASlot(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		limit := Limit{InFlight: 1, Rates: []Rate{{Name: "day", Events: 1000, Per: 24 * time.Hour, Aligned: true}}}
		l := limiterOf(t, limit, MaxWait(time.Minute))
		p := took(t, l, "k")
		a := asking(t, l, "k")
		b := asking(t, l, "k") // 998 of 1000 are left today
		a.waits(t)
		b.waits(t)
		_, d := l.TryAcquire("k")
		if d.RetryAfter > time.Minute {
			t.Errorf("RetryAfter %v with 998 of 1000 left in the window", d.RetryAfter)
		}
		p.Release()
		for _, c := range []*call{a, b} {
			c.cancel()
		}
		synctest.Wait()
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

// Correct gives tokens back to a bucket that has refilled since.
func TestCorrectAfterRefill(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(Rate{Name: "tokens", Unit: "tokens", Events: 10, Per: time.Second, Burst: 1000}))
		var held []Permit
		for range 10 {
			held = append(held, took(t, l, "k", Cost("tokens", 1000)))
			time.Sleep(100 * time.Second) // full again
		}
		// at one instant:
		admitted := 0
		for i := 0; ; i++ {
			for {
				if _, d := l.TryAcquire("k", Cost("tokens", 1000)); !d.OK {
					break
				}
				admitted += 1000
			}
			if i == len(held) {
				break
			}
			if err := held[i].Correct("tokens", 0); err != nil {
				t.Fatal(err)
			}
		}
		if admitted > 1000 {
			t.Errorf("%d tokens admitted at one instant, burst 1000", admitted)
		}
	})
}

// Correct gives back what a rate never took.
func TestCorrectToAnotherRate(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		r := Rate{Name: "tokens", Unit: "tokens", Events: 1, Per: time.Hour, Burst: 1000}
		l := limiterOf(t, rated(r))
		setLimit(t, l, Limit{})
		p := took(t, l, "k", Cost("tokens", 1000)) // no rate counts it
		setLimit(t, l, rated(r))
		took(t, l, "k", Cost("tokens", 1000))
		_ = p.Correct("tokens", 0)
		refusedFor(t, l, ReasonRate, "k", Cost("tokens", 1000))
	})
}

// A SetLimit that changes nothing must not open the share that a smaller pool brings.
func TestSameLimitIsNoRaise(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		limit := rated(Rate{Name: "m", Events: 10, Per: time.Minute, Aligned: true})
		a := limiterOf(t, limit, StartPool(Pool{Replicas: 2, Ordinal: 1, Fixed: true}))
		b := limiterOf(t, limit, StartPool(Pool{Replicas: 2, Ordinal: 2, Fixed: true}))
		wants(t, a, "k", 5)
		wants(t, b, "k", 5) // b leaves
		if err := a.SetPool(Pool{Replicas: 1, Ordinal: 1, Fixed: true}); err != nil {
			t.Fatal(err)
		}
		wants(t, a, "k", 0)
		setLimit(t, a, limit)
		wants(t, a, "k", 0)
	})
}

// The same for a joiner's first window.
func TestSameLimitDoesNotOpenAJoiner(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		limit := rated(Rate{Name: "m", Events: 10, Per: time.Minute, Aligned: true})
		a := limiterOf(t, limit, JoinPool(Pool{Replicas: 2}))
		wants(t, a, "k", 0)
		setLimit(t, a, limit)
		wants(t, a, "k", 0)
	})
}

// Check must answer what TryAcquire would.
func TestCheckWithOverflow(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{InFlight: 1}, MaxKeys(1))
		a := took(t, l, "a")
		b := took(t, l, "b") // through the overflow gate
		a.Release()          // a is idle: there is room for c
		check := l.Check("c")
		p, d := l.TryAcquire("c")
		if check.OK != d.OK {
			t.Errorf("Check says %+v, TryAcquire %+v", check, d)
		}
		p.Release()
		b.Release()
	})
}

// MaxHold must bound what is remembered of permits nobody releases, without somebody reading Stats.
func TestMaxHoldBoundsMemory(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(Rate{Name: "tokens", Unit: "tokens", Events: 1000, Per: time.Second, Burst: 1000}), MaxHold(time.Second))
		for range 100 {
			for range 1000 {
				took(t, l, "k", Cost("tokens", 1))
			}
			time.Sleep(time.Second)
		}
		if n := len(l.shard("k").permits.blocks) * permitBlock; n > 3000 {
			t.Errorf("%d holdings, though no more than 2000 are within MaxHold", n)
		}
	})
}

// A law that panics must not keep the shard's lock.
type panicky struct{}

func (panicky) Next(s policy.Sample, b policy.Bounds) policy.Pace {
	if s.Outcome == policy.Throttled {
		panic("law")
	}
	return policy.Pace{Rate: 1}
}

type panickyPolicy struct{}

func (panickyPolicy) New(uint64) policy.Law { return panicky{} }

func TestPanickingLaw(t *testing.T) {
	l := limiterOf(t, rated(PerSecond(10)), Policy(panickyPolicy{}, CeilingShare))
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

// A log handler that looks at the limiter.
type lookingHandler struct {
	slog.Handler
	l **Limiter
}

func (h lookingHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h lookingHandler) Handle(context.Context, slog.Record) error {
	if (*h.l) != nil && !(*h.l).mu.TryLock() {
		panic("Limiter.mu is held while the user's handler runs: l.Stats() or l.Pool() here hangs for ever")
	}
	(*h.l).mu.Unlock()
	return nil
}

func TestLogHandlerMayLook(t *testing.T) {
	var l *Limiter
	l = limiterOf(t, rated(PerSecond(10)), Logger(slog.New(lookingHandler{slog.DiscardHandler, &l})))
	defer func() {
		if r := recover(); r != nil {
			t.Error(r)
		}
	}()
	_ = l.SetPool(Pool{Replicas: 2})
}

// OnAdmit that panics loses the permit.
func TestPanickingOnAdmit(t *testing.T) {
	l := limiterOf(t, Limit{InFlight: 1}, OnAdmit(func(string, time.Duration, time.Duration) { panic("hook") }))
	func() {
		defer func() { _ = recover() }()
		_, _ = l.Acquire(t.Context(), "k")
	}()
	if n := l.Stats().InFlight; n != 0 {
		t.Errorf("%d in flight that nobody can release", n)
	}
}

// Follow again after a source failed: hold-down must still hold.
func TestFollowAgainKeepsTheHoldDown(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(PerSecond(10)))
		once := func(n int) {
			ctx, cancel := context.WithCancel(t.Context())
			go func() { synctest.Wait(); cancel() }()
			_ = l.Follow(ctx, Static(Pool{Replicas: n}))
		}
		once(8)
		if l.Pool().Replicas != 8 {
			t.Fatal(l.Pool())
		}
		once(1)
		if got := l.Pool().Replicas; got != 8 {
			t.Errorf("pool %d right after a restart of Follow, want 8 within the hold-down", got)
		}
	})
}

// JoinPool with a limit that comes later.
func TestJoinerWithLateLimit(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Deny(), JoinPool(Pool{Replicas: 2}))
		setLimit(t, l, rated(perSecond(10, 10)))
		wants(t, l, "k", 0)
	})
}

// A granted waiter that is cancelled gives back to a bucket that has refilled meanwhile (OnWait holds its goroutine up).
func TestUndoAfterRefill(t *testing.T) {
	hit := false
	for range 20 {
		inFakeTime(t, func(t *testing.T) {
			hold := make(chan struct{})
			l := limiterOf(t, rated(perSecond(10, 10)), OnWait(func(string, time.Duration) { <-hold }))
			wants(t, l, "k", 10)
			c := asking(t, l, "k", Weight(10))
			time.Sleep(10 * time.Second) // granted after 1 s, full again after 2
			c.cancel()
			n := 0
			for l.Allow("k") {
				n++
			}
			close(hold)
			synctest.Wait()
			for l.Allow("k") {
				n++
			}
			hit = hit || n > 10
		})
	}
	if hit {
		t.Error("20 admitted at one instant, burst 10")
	}
}

type badCtx struct{ context.Context }

func (badCtx) Deadline() (time.Time, bool) { panic("context") }

func TestDeadlineUnderLock(t *testing.T) {
	l := limiterOf(t, rated(perSecond(1, 1)))
	l.Allow("k")
	func() {
		defer func() { _ = recover() }()
		_, _ = l.Acquire(badCtx{context.Background()}, "k")
	}()
	if !l.shard("k").mu.TryLock() {
		t.Error("a caller's context method runs under the shard's lock")
	}
}
