package quotient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient/policy"
)

type stress struct {
	l      *Limiter
	keys   int
	expire bool
	limits []Limit
	fixed  int // > 0: InFlight is constant: check it
	held   []atomic.Int64
	wrong  atomic.Int64
}

func (x *stress) pick(r *rand.Rand) (string, int) {
	i := int(float64(x.keys) * r.Float64() * r.Float64())
	return fmt.Sprintf("key-%d", i), i
}

func (x *stress) in(i, w int) {
	n := x.held[i].Add(int64(w))
	if x.fixed > 0 && n > int64(x.fixed) {
		x.wrong.Add(1)
	}
}

func (x *stress) finish(r *rand.Rand, p Permit, i, w int) {
	if r.IntN(2) == 0 {
		time.Sleep(time.Duration(r.IntN(2000)) * time.Microsecond)
	}
	if r.IntN(3) == 0 {
		_ = p.Correct("tokens", r.IntN(30))
	}
	if x.expire && r.IntN(3) == 0 {
		p.ExpireIn(time.Duration(r.IntN(4000)-1000) * time.Microsecond)
	}
	if x.expire && r.IntN(20) == 0 {
		p.ExpireIn(time.Duration(1+r.IntN(3000)) * time.Microsecond)
		return // leaked; MaxHold
	}
	if r.IntN(3) == 0 {
		p.Report(policy.Feedback{Outcome: policy.Outcome(r.IntN(5))})
	}
	x.held[i].Add(-int64(w))
	if r.IntN(3) == 0 {
		p.Done(policy.Feedback{Outcome: policy.Outcome(r.IntN(5))})
	} else {
		p.Release()
	}
	if r.IntN(20) == 0 {
		p.Release()
	}
}

func asksOf(r *rand.Rand) (opts []CallOption, w int) {
	w = 1
	if r.IntN(4) == 0 {
		w = 1 + r.IntN(3)
		opts = append(opts, Weight(w))
	}
	if r.IntN(3) == 0 {
		opts = append(opts, Cost("tokens", r.IntN(30)))
	}
	return
}

func (x *stress) one(r *rand.Rand) {
	l := x.l
	key, i := x.pick(r)
	opts, w := asksOf(r)
	if x.limits[0].Rates == nil && len(opts) > 0 && opts[len(opts)-1].unit != "" {
		opts = opts[:len(opts)-1]
	}
	switch n := r.IntN(100); {
	case n < 40:
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(r.IntN(3000))*time.Microsecond)
		if r.IntN(2) == 0 {
			cancel()
			ctx, cancel = context.WithCancel(context.Background())
			time.AfterFunc(time.Duration(r.IntN(3000))*time.Microsecond, cancel)
		}
		p, err := l.Acquire(ctx, key, opts...)
		if err == nil {
			x.in(i, w)
			x.finish(r, p, i, w)
		} else if !errors.Is(err, ErrLimited) && !errors.Is(err, context.Canceled) &&
			!errors.Is(err, context.DeadlineExceeded) {
			panic(err)
		}
		cancel()
	case n < 65:
		if p, d := l.TryAcquire(key, opts...); d.OK {
			x.in(i, w)
			x.finish(r, p, i, w)
		}
	case n < 75:
		l.Allow(key)
	case n < 82:
		if p, got := l.TryAcquireUpTo(key, 1+r.IntN(4)); got > 0 {
			x.in(i, got)
			x.finish(r, p, i, got)
		}
	case n < 88:
		l.Check(key, opts...)
	case n < 91:
		_ = l.SetLimit(x.limits[r.IntN(len(x.limits))])
	case n < 93:
		n := 1 + r.IntN(3)
		if x.fixed > 0 {
			n = 1
		}
		_ = l.SetPool(Pool{Replicas: n, Ordinal: r.IntN(n + 1), Fixed: r.IntN(2) == 0}, 0)
	case n < 95:
		l.Stats()
	case n < 96:
		for range l.Keys() {
			if r.IntN(30) == 0 {
				break
			}
		}
	default:
		time.Sleep(time.Duration(r.IntN(500)) * time.Microsecond)
	}
}

func (x *stress) check(t *testing.T) {
	l := x.l
	st := l.Stats()
	if st.Waiting != 0 || st.InFlight != 0 || l.waiting.Load() != 0 {
		t.Errorf("left: waiting %d, in flight %d", st.Waiting, st.InFlight)
	}
	n := 0
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		n += s.order.Len()
		if len(s.waiting) != 0 {
			t.Errorf("s.waiting: %d", len(s.waiting))
		}
		later := s.latest
		later.at += 24 * time.Hour
		later.wall += int64(24 * time.Hour)
		for _, g := range s.order.Keys() {
			if !s.spare(g, later) {
				t.Errorf("%s is not idle: held %d used %d more %+v", g.name, g.held, g.used, g.ext)
			}
			if g.ext != nil &&
				(g.ext.timer != nil || g.ext.queue.len != 0 || g.ext.backlog != nil ||
					len(g.ext.expiring) != 0) {
				t.Errorf("%s left: %+v", g.name, g.ext)
			}
		}
		if o := s.overflow; o.gate != nil {
			if !s.spare(o.gate, later) || len(o.callers) != 0 {
				t.Errorf("overflow: %+v callers %v", o.gate, o.callers)
			}
		}
		out := 0
		for _, b := range s.permits.blocks {
			for j := range b {
				if b[j].out() || b[j].end != 0 || b[j].named || b[j].key != "" || b[j].stack != nil ||
					b[j].costs != [maxUnits]int{} {
					out++
				}
			}
		}
		if out > 0 {
			t.Errorf("%d holdings are out", out)
		}
		s.mu.Unlock()
	}
	if int64(n) != l.keys.Load() || n > l.maxKeys {
		t.Errorf("%d keys, counter %d, most %d", n, l.keys.Load(), l.maxKeys)
	}
	if x.wrong.Load() > 0 {
		t.Errorf("in flight above %d: %d times", x.fixed, x.wrong.Load())
	}
	t.Logf("%+v", st)
}

// fastLimits are limits that workers in real time reach many times a second.
func fastLimits() []Limit {
	return mixedLimits(mix{unit: "tokens", speed: 1000, window: 20, later: 20})
}

func fixedLimits(n int) []Limit {
	ls := fastLimits()
	var out []Limit
	for _, l := range ls {
		if !l.Deny {
			l.InFlight = n
			out = append(out, l)
		}
	}
	return out
}

func (x *stress) run(t *testing.T, d time.Duration, workers int, seed uint64) {
	x.held = make([]atomic.Int64, x.keys)
	end := time.Now().Add(d)
	var wg sync.WaitGroup
	for i := range workers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			for time.Now().Before(end) {
				x.one(r)
			}
		}()
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(d + 20*time.Second):
		t.Fatal("hangs")
	}
}

func logger() Option { return Logger(slog.New(slog.NewTextHandler(io.Discard, nil))) }

var onWait = OnWait(func(string, time.Duration) {})
var onAdmit = OnAdmit(func(string, time.Duration, time.Duration) {})

func configs() map[string]func(t testing.TB) *stress {
	base := []Option{MaxKeys(20), logger(), onWait, onAdmit, MaxWaiting(50, 200)}
	mk := func(x *stress, opts ...Option) func(t testing.TB) *stress {
		return func(t testing.TB) *stress {
			y := &stress{keys: x.keys, expire: x.expire, limits: x.limits, fixed: x.fixed}
			y.l = limiterOf(t, y.limits[0], append(append([]Option(nil), base...), opts...)...)
			return y
		}
	}
	return map[string]func(t testing.TB) *stress{
		"all": mk(&stress{keys: 50, expire: true, limits: fastLimits()}, MaxHold(3*time.Millisecond),
			Policy(policy.AIMD{}), MaxWait(2*time.Millisecond), LeakCheck(func(Leak) {})),
		"nolaw": mk(&stress{keys: 50, expire: true, limits: fastLimits()}, MaxHold(3*time.Millisecond)),
		"ceiling": mk(&stress{keys: 50, limits: fastLimits()}, Policy(policy.AIMD{}), BeyondShare(),
			Replicas(2), StartEmpty()),
		"adversary": mk(&stress{keys: 50, limits: fastLimits()}, Policy(adversary{7, true}), BeyondShare()),
		"fixed":     mk(&stress{keys: 50, limits: fixedLimits(4), fixed: 4}),
		"slots":     mk(&stress{keys: 50, limits: []Limit{{InFlight: 4}}, fixed: 4}),
		"slotsexp": mk(&stress{keys: 50, expire: true, limits: []Limit{{InFlight: 4}, {InFlight: 2}}},
			MaxHold(3*time.Millisecond)),
		"slotsexp2": mk(&stress{keys: 50,
			limits: []Limit{{InFlight: 4}, {InFlight: 2}, Limit{Deny: true}, {}}}),
		"shards": mk(&stress{keys: 6000, expire: true, limits: fastLimits()}, MaxKeys(4096),
			MaxHold(3*time.Millisecond)),
	}
}

// Everything at once, by the real clock, for the race detector; when all is released and drained nothing is
// left.
func TestConcurrentUse(t *testing.T) {
	for name, mk := range configs() {
		t.Run(name, func(t *testing.T) {
			x := mk(t)
			x.run(t, 250*time.Millisecond, 8, rand.Uint64())
			for x.l.Stats().InFlight > 0 { // the forgotten ones end by themselves, soon
				runtime.Gosched()
			}
			x.check(t)
		})
	}
}

// The same in fake time.
func TestConcurrentUseInFakeTime(t *testing.T) {
	for name, mk := range configs() {
		for i := range 2 {
			t.Run(fmt.Sprint(name, i), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					x := mk(t)
					x.run(t, 60*time.Millisecond, 20, uint64(i))
					time.Sleep(time.Second)
					x.check(t)
				})
			})
		}
	}
}
