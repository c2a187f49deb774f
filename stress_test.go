package quotient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// stress is a limiter that many goroutines use at once, in all ways.
type stress struct {
	l      *Limiter
	keys   int
	expire bool
	limits []Limit
	fixed  int // > 0: InFlight is constant: check it
	opts   []Option
	held   []atomic.Int64
	wrong  atomic.Int64
}

func (x *stress) in(i, w int) {
	n := x.held[i].Add(int64(w))
	if x.fixed > 0 && n > int64(x.fixed) {
		x.wrong.Add(1)
	}
}

// someFeedback is an outcome that may come back at any time.
func someFeedback(r *rand.Rand) policy.Feedback {
	return policy.Feedback{Outcome: policy.Outcome(r.IntN(5))}
}

func (x *stress) finish(r *rand.Rand, p Permit, i, w int) {
	some := func(n int) time.Duration { return time.Duration(r.IntN(n)) * time.Microsecond }
	if r.IntN(2) == 0 {
		time.Sleep(some(2000))
	}
	if r.IntN(3) == 0 {
		_ = p.Correct("tokens", r.IntN(30))
	}
	if x.expire && r.IntN(3) == 0 {
		p.ExpireIn(some(4000) - ms)
	}
	if x.expire && r.IntN(20) == 0 {
		p.ExpireIn(some(3000) + time.Microsecond)
		return // leaked; MaxHold
	}
	if r.IntN(3) == 0 {
		p.Report(someFeedback(r))
	}
	x.held[i].Add(-int64(w))
	if r.IntN(3) == 0 {
		p.Done(someFeedback(r))
	} else {
		p.Release()
	}
	if r.IntN(20) == 0 {
		p.Release()
	}
}

func (x *stress) one(r *rand.Rand) {
	l, i, w := x.l, int(float64(x.keys)*r.Float64()*r.Float64()), 1
	key, opts := key(i), []CallOption(nil)
	if r.IntN(4) == 0 {
		w = 1 + r.IntN(3)
		opts = append(opts, Weight(w))
	}
	if r.IntN(3) == 0 && x.limits[0].Rates != nil {
		opts = append(opts, Cost("tokens", r.IntN(30)))
	}
	some := func(n int) time.Duration { return time.Duration(r.IntN(n)) * time.Microsecond }
	switch n := r.IntN(100); {
	case n < 40:
		ctx, cancel := context.WithTimeout(context.Background(), some(3000))
		if r.IntN(2) == 0 {
			cancel()
			ctx, cancel = context.WithCancel(context.Background())
			time.AfterFunc(some(3000), cancel)
		}
		if p, err := l.Acquire(ctx, key, opts...); err == nil {
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
	case n < 98:
		x.change(r, key, n)
	default:
		time.Sleep(some(500))
	}
}

// change changes something of the limiter, or looks at it.
func (x *stress) change(r *rand.Rand, key string, what int) {
	l, limit := x.l, x.limits[r.IntN(len(x.limits))]
	switch what {
	case 88, 89, 90:
		_ = l.SetLimit(limit)
	case 91, 92:
		n := 1 + r.IntN(3)
		if x.fixed > 0 {
			n = 1
		}
		_ = l.SetPool(Pool{Replicas: n, Ordinal: r.IntN(n + 1), Fixed: r.IntN(2) == 0}, 0)
	case 93:
		_ = l.Override(key, &limit)
	case 94:
		for key := range l.Overrides() {
			_ = l.Override(key, nil)
		}
	case 95:
		l.Reset(key)
	case 96:
		l.Stats()
	default:
		for range l.Keys() {
			if r.IntN(30) == 0 {
				break
			}
		}
	}
}

// run has the workers use the limiter for a while.
func (x *stress) run(t *testing.T, d time.Duration, workers int, seed uint64) {
	x.l = limiterOf(t, x.limits[0], append([]Option{MaxKeys(20), MaxWaiting(50, 200),
		Logger(slog.New(slog.NewTextHandler(io.Discard, nil))), OnWait(func(string, time.Duration) {}),
		OnAdmit(func(string, time.Duration, time.Duration) {})}, x.opts...)...)
	x.held = make([]atomic.Int64, x.keys)
	end := time.Now().Add(d)
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			for r := rand.New(rand.NewPCG(seed, uint64(i))); time.Now().Before(end); {
				x.one(r)
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(d + 20*time.Second):
		t.Fatal("hangs")
	}
	for key := range x.l.Overrides() {
		override(t, x.l, key, nil)
	}
	setLimit(t, x.l, x.limits[0])
}

// check fails if anything is left when all was released.
func (x *stress) check(t *testing.T) {
	l, n := x.l, 0
	stats(t, l, "Waiting", 0, "InFlight", 0)
	is(t, "waiting in all", l.waiting.Load(), 0)
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		n += s.order.Len()
		is(t, "queues", len(s.waiting), 0)
		later := s.latest.later(24 * time.Hour)
		for _, g := range s.order.Keys() {
			if !s.spare(g, later) || g.ext != nil && (g.ext.timer != nil || g.ext.queue.len != 0 ||
				g.ext.backlog != nil || len(g.ext.expiring) != 0) {
				t.Errorf("%s is not idle: held %d used %d more %+v", g.name, g.held, g.used, g.ext)
			}
		}
		if o := s.overflow; o.gate != nil && (!s.spare(o.gate, later) || len(o.callers) != 0) {
			t.Errorf("overflow: %+v callers %v", o.gate, o.callers)
		}
		for _, b := range s.permits.blocks {
			for j := range b {
				if b[j].out() || b[j].end != 0 || b[j].named || b[j].key != "" || b[j].stack != nil ||
					b[j].costs != [maxUnits]int{} {
					t.Errorf("a holding is out: %+v", b[j])
				}
			}
		}
		s.mu.Unlock()
	}
	is(t, "keys by the counter", l.keys.Load(), int64(n))
	is(t, []any{"times in flight above", x.fixed}, x.wrong.Load(), 0)
}

// fastLimits are limits that workers in real time reach many times a second.
func fastLimits() []Limit {
	return mixedLimits(mix{unit: "tokens", speed: 1000, window: 20, later: 20})
}

func fixedLimits(n int) (out []Limit) {
	for _, l := range fastLimits() {
		if !l.Deny {
			l.InFlight = n
			out = append(out, l)
		}
	}
	return out
}

func stresses() map[string]*stress {
	hold, four, two := MaxHold(3*ms), Limit{InFlight: 4}, Limit{InFlight: 2}
	return map[string]*stress{
		"all": {keys: 50, expire: true, limits: fastLimits(), opts: []Option{hold, Policy(policy.AIMD{}),
			MaxWait(2 * ms), LeakCheck(func(Leak) {})}},
		"nolaw": {keys: 50, expire: true, limits: fastLimits(), opts: []Option{hold}},
		"ceiling": {keys: 50, limits: fastLimits(), opts: []Option{Policy(policy.AIMD{}), BeyondShare(),
			Replicas(2), StartEmpty()}},
		"adversary": {keys: 50, limits: fastLimits(),
			opts: []Option{Policy(adversary{7, true}), BeyondShare()}},
		"fixed":     {keys: 50, limits: fixedLimits(4), fixed: 4},
		"slots":     {keys: 50, limits: []Limit{four}, fixed: 4},
		"slotsexp":  {keys: 50, expire: true, limits: []Limit{four, two}, opts: []Option{hold}},
		"slotsexp2": {keys: 50, limits: []Limit{four, two, {Deny: true}, {}}},
		"shards":    {keys: 6000, expire: true, limits: fastLimits(), opts: []Option{hold, MaxKeys(4096)}},
	}
}

// Everything at once, by the real clock, for the race detector; when all is released and drained nothing is
// left.
func TestConcurrentUse(t *testing.T) {
	for name, x := range stresses() {
		t.Run(name, func(t *testing.T) {
			x.run(t, 250*ms, 8, rand.Uint64())
			for x.l.Stats().InFlight > 0 { // the forgotten ones end by themselves, soon
				runtime.Gosched()
			}
			x.check(t)
		})
	}
}

// The same in fake time.
func TestConcurrentUseInFakeTime(t *testing.T) {
	for i := range uint64(2) {
		for name, x := range stresses() {
			row(t, fmt.Sprint(name, i), func(t *testing.T) {
				x.run(t, 60*ms, 20, i)
				time.Sleep(time.Second)
				x.check(t)
			})
		}
	}
}

// oracle recounts the state of a limiter of one shard after a step of a history.
type oracle struct {
	*testing.T
	l    *Limiter
	s    *shard
	now  instant
	step string
}

func (o *oracle) wrong(format string, args ...any) {
	o.Helper()
	o.Errorf(o.step+": "+format, args...)
}

// inspect recounts all keys, permits and queues.
func (o *oracle) inspect() {
	s := o.s
	s.mu.Lock()
	defer s.mu.Unlock()
	o.now = o.l.wallNow()
	gates, names := o.gates(), map[string]int{}
	held, used, expiring := o.permits(gates, names)
	total := 0
	for g, k := range gates {
		if g.held != held[g] || g.used != used[g] {
			o.wrong("%s held %d/%d used %d/%d", k, g.held, held[g], g.used, used[g])
		}
		q := 0
		if g.ext != nil {
			if q = g.ext.queue.len; len(g.ext.expiring) != expiring[g] {
				o.wrong("%s expiring %d want %d", k, len(g.ext.expiring), expiring[g])
			}
		}
		total += q
		if _, ok := s.waiting[g]; ok != (q > 0) {
			o.wrong("%s waiting %v queue %d", k, ok, q)
		}
		if q > 0 && g.setting != s.setting {
			o.wrong("%s stale setting with a queue", k)
		} else if q > 0 {
			o.queue(g, names)
			o.head(g)
		}
	}
	if int64(total) != o.l.waiting.Load() {
		o.wrong("waiting %d, queued %d", o.l.waiting.Load(), total)
	}
	if s.overflow.gate != nil && !maps.Equal(names, s.overflow.callers) {
		o.wrong("callers %v want %v", s.overflow.callers, names)
	}
	if int(o.l.keys.Load()) != s.order.Len() {
		o.wrong("keys %d %d", o.l.keys.Load(), s.order.Len())
	}
}

// gates are those of the map, which finds each of them and nothing else, and the overflow gate.
func (o *oracle) gates() map[*gate]string {
	gates := map[*gate]string{}
	for _, g := range o.s.order.Keys() {
		gates[g] = g.name
		if o.s.find(o.l.hash(g.name)) != g {
			o.wrong("%s is not found by its hash", g.name)
		}
	}
	for _, ln := range slices.Concat(o.s.old, o.s.index) {
		for _, g := range ln.gates {
			if g != nil && gates[g] != g.name {
				o.wrong("%s was dropped and is still found", g.name)
			}
		}
	}
	if o.s.overflow.gate != nil {
		gates[o.s.overflow.gate] = "OVERFLOW"
	}
	return gates
}

// permits counts what permits hold of each gate.
func (o *oracle) permits(gates map[*gate]string, names map[string]int) (held, used map[*gate]int32,
	expiring map[*gate]int) {
	held, used, expiring = map[*gate]int32{}, map[*gate]int32{}, map[*gate]int{}
	for _, b := range o.s.permits.blocks {
		for i := range b {
			h := &b[i]
			if !h.out() {
				continue
			}
			held[h.gate]++
			used[h.gate] += h.slots
			if h.end != 0 {
				expiring[h.gate]++
			}
			if o.s.overflow.is(h.gate) {
				names[h.key]++
			}
			if _, ok := gates[h.gate]; !ok || h.epoch > h.gate.epoch {
				o.wrong("a permit's gate is not in the map, or it is of an epoch to come")
			}
		}
	}
	return held, used, expiring
}

// queue recounts a queue.
func (o *oracle) queue(g *gate, names map[string]int) {
	m, q := g.ext, &g.ext.queue
	var want backlog
	var last [numClasses]*waiter
	var oldest *waiter
	for w := q.head; w != nil; w = w.next {
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
			o.wrong("%s is not in order", g.name)
		}
		if oldest == nil || w.older(oldest) {
			oldest = w
		}
		if o.s.overflow.is(g) {
			names[w.key]++
		}
	}
	if m.backlog == nil || *m.backlog != want {
		o.wrong("%s backlog %v want %v", g.name, m.backlog, want)
	}
	if l := m.learned; l != nil && l.due != 0 && o.now.at >= l.due {
		o.wrong("%s is stale with a queue", g.name)
	}
	if last != q.last || oldest != q.oldest() || q.passed >= trickle {
		o.wrong("%s: the ends of the classes are wrong, or %d have passed", g.name, q.passed)
	}
	if o.l.maxWait > 0 && o.now.at-oldest.since >= o.l.maxWait {
		o.wrong("%s one waits beyond MaxWait", g.name)
	}
}

// head checks that who is next waits for a reason, and that a timer is set for the end of that.
func (o *oracle) head(g *gate) {
	m, now := g.ext, o.now
	v := g.look(now, &m.queue.next().d)
	if v.wait < never {
		v.wait = g.pacerOf(v).wakes(now.at, v.wait)
	}
	soon := m.ready.known && m.timer != nil && m.ready.at <= now.at+2 // rounded up
	switch {
	case v.reason == ReasonNone && soon:
	case v.reason == ReasonNone, v.final():
		o.wrong("%s head waits for %v", g.name, v.reason)
	case v.wait < never: // a float64 has 52 bits, and several are added
		if !m.ready.known || m.ready.at > now.at+v.wait+2+v.wait>>43 || m.timer == nil {
			o.wrong("%s head's turn in %v, timer in %v (%v)", g.name, v.wait, m.ready.at-now.at, m.timer)
		}
	case v.reason == ReasonInFlight && len(m.expiring) > 0:
		if m.timer == nil {
			o.wrong("%s no timer for the expiring", g.name)
		}
		for _, h := range m.expiring {
			// A caller that waits for a rate learns at its turn that slots are what it waits for now.
			if h.end <= now.at && m.blocked == ReasonInFlight || h.end < m.nextEnd {
				o.wrong("%s expired and not given back with a queue, or nextEnd is too late", g.name)
			}
		}
	}
}

// oracleHistory is a random history of one limiter.
type oracleHistory struct {
	*rand.Rand
	l       *Limiter
	limits  []Limit
	classes bool // calls have a priority
	calls   []*call
	ps      []Permit
}

// play takes a step, and returns its name.
func (o *oracleHistory) play(t *testing.T) string {
	l, key, opts := o.l, string(rune('a'+o.IntN(7))), []CallOption{}
	if o.IntN(3) == 0 {
		opts = append(opts, Weight(1+o.IntN(3)))
	}
	if o.IntN(3) == 0 {
		opts = append(opts, Cost("tokens", o.IntN(40)))
	}
	if o.classes {
		opts = append(opts, Priority(o.IntN(numClasses)-1).Option())
	}
	switch n := o.IntN(100); {
	case n < 30:
		deadline := time.Duration(0)
		if o.IntN(3) == 0 {
			deadline = time.Duration(1+o.IntN(5000)) * ms
		}
		o.calls = append(o.calls, askingUntil(t, l, deadline, key, opts...))
		return "acquire"
	case n < 42:
		if p, d := l.TryAcquire(key, opts...); d.OK {
			o.ps = append(o.ps, p)
		}
		return "try"
	case n < 46:
		if p, got := l.TryAcquireUpTo(key, 1+o.IntN(5)); got > 0 {
			o.ps = append(o.ps, p)
		}
		return "upto"
	case n < 48:
		l.Allow(key)
		return "allow"
	case n < 51:
		l.Check(key, opts...)
		return "check"
	case n < 55:
		if len(o.calls) > 0 {
			o.calls[o.IntN(len(o.calls))].cancel()
		}
		return "cancel"
	case n < 75 && len(o.ps) > 0:
		return o.permit(o.IntN(len(o.ps)))
	case n < 79:
		_ = l.SetLimit(o.limits[o.IntN(len(o.limits))])
		return "limit"
	case n < 82:
		n := 1 + o.IntN(3)
		_ = l.SetPool(Pool{Replicas: n, Ordinal: o.IntN(n + 1), Fixed: o.IntN(2) == 0}, 0)
		return "pool"
	case n < 84:
		l.Stats()
		for range l.Keys() {
		}
		return "stats"
	}
	time.Sleep(time.Duration(math.Exp(o.Float64()*21.3)) * time.Microsecond) // up to half an hour
	return "sleep"
}

func (o *oracleHistory) permit(i int) string {
	p := o.ps[i]
	f := someFeedback(o.Rand)
	switch o.IntN(6) {
	case 0:
		_ = p.Correct("tokens", o.IntN(60))
		return "correct"
	case 1:
		p.ExpireIn(time.Duration(o.IntN(3000)-500) * ms)
		return "expire"
	case 2:
		f.Quotas = [4]policy.Quota{{Limit: float64(o.IntN(3)), Remaining: 1},
			{Unit: "tokens", Limit: 9, Remaining: float64(o.IntN(9))}}
		p.Report(f)
		return "report"
	case 3:
		f.RetryAfter = time.Duration(o.IntN(2)*o.IntN(5000)) * ms
		p.Done(f)
	default:
		p.Release()
	}
	o.ps = slices.Delete(o.ps, i, i+1)
	return "release"
}

func runOracle(t *testing.T, seed uint64, steps int, opts ...Option) {
	inFakeTime(t, func(t *testing.T) {
		limits := mixedLimits(mix{unit: "tokens", speed: 1, window: 7.5, later: 7.5})
		l := limiterOf(t, limits[0], append([]Option{MaxKeys(3), MaxWaiting(30, 60)}, opts...)...)
		h := &oracleHistory{Rand: rand.New(rand.NewPCG(seed, 1)), l: l, limits: limits, classes: seed%2 == 1}
		for step := range steps {
			name := h.play(t)
			synctest.Wait()
			at := fmt.Sprint("seed ", seed, " step ", step, " ", name)
			o := oracle{T: t, l: l, s: &l.shards[0], step: at}
			if o.inspect(); t.Failed() {
				break
			}
			h.calls = slices.DeleteFunc(h.calls, func(c *call) bool {
				if !c.ended() {
					return false
				}
				if c.cancel(); c.err == nil {
					h.ps = append(h.ps, c.permit)
				}
				return true
			})
		}
		for _, c := range h.calls {
			c.cancel()
		}
	})
}

// After every step of a random history the state is recounted from the outside. The head never waits while
// there is room, its timer is not late, and every counter is right.
func TestStateAfterEveryStep(t *testing.T) {
	for seed := range uint64(30) {
		beyond := seed%2 == 1
		runOracle(t, seed, 600)
		runOracle(t, seed, 600, MaxHold(2*time.Second), MaxWait(4*time.Second))
		runOracle(t, seed, 600, policyOf(policy.Tracking{}, beyond))
		runOracle(t, seed, 600, MaxHold(2*time.Second), Policy(policy.AIMD{}))
		runOracle(t, seed, 600, Policy(policy.AIMD{Decrease: 0.1}), BeyondShare(), MaxWait(20*time.Second))
		runOracle(t, seed, 600, policyOf(adversary{seed, true}, beyond), MaxHold(5*time.Second))
		if t.Failed() {
			return
		}
	}
}
