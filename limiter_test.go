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
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient/internal/adversary"
	"github.com/quotient-go/quotient/internal/meter"
	"github.com/quotient-go/quotient/policy"
)

// is fails unless a test has got what it wants.
func is[T comparable](t testing.TB, what any, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%+v: got %+v, want %+v", what, got, want)
	}
}

// wrong fails, and says so, if something is not as it should be. What it says is worked out in any case.
func wrong(t testing.TB, is bool, format string, args ...any) {
	t.Helper()
	if is {
		t.Errorf(format, args...)
	}
}

// stats fails unless the statistics of a limiter have these values: names of fields and numbers in turn.
func stats(t testing.TB, l *Limiter, want ...any) {
	t.Helper()
	all := reflect.ValueOf(l.Stats())
	for i := 0; i < len(want); i += 2 {
		got := all.FieldByName(want[i].(string)).Interface()
		is(t, want[i], fmt.Sprint(got), fmt.Sprint(want[i+1]))
	}
}

// refuses fails if the call is admitted now.
func refuses(t testing.TB, l *Limiter, key string, opts ...CallOption) {
	t.Helper()
	if _, d := l.TryAcquire(key, opts...); d.OK {
		t.Errorf("key %q: admitted, want a refusal", key)
	}
}

// Time that is measured must not follow the wall clock's steps.
func TestClockIsMonotonic(t *testing.T) {
	for _, r := range []Rate{PerSecond(1), {Events: 1, Per: time.Minute, Kind: Window}} {
		if base := mustNew(t, Rates(r)).base.String(); !strings.Contains(base, " m=") {
			t.Errorf("%+v: %s has no monotonic reading", r, base)
		}
	}
}

// Must returns a limiter, and panics with the error that names the field.
func TestMust(t *testing.T) {
	wants(t, Must(New(Rates(PerSecond(1)))), "k", 1)
	defer func() {
		err, _ := recover().(error)
		says(t, err, "Events")
	}()
	Must(New(Rates(PerSecond(-1))))
}

// stress is a limiter that many goroutines use at once, in all ways.
type stress struct {
	l      *Limiter
	keys   int
	unit   time.Duration // of all that passes; 0: a microsecond
	expire bool
	deaf   bool // no OnAdmit, so that slots alone need no clock
	limits []Limit
	fixed  int  // > 0: InFlight is constant: check it
	lends  bool // what another replica does not use
	opts   []Option
	held   []atomic.Int64
	wrong  atomic.Int64
}

// user is a goroutine that uses it.
type user struct {
	*rand.Rand
	*stress
}

func (x user) some(n int) time.Duration { return time.Duration(x.IntN(n)) * x.unit }

// feedback is an outcome that may come back at any time.
func (x user) feedback() policy.Feedback {
	f := policy.Feedback{Outcome: policy.Outcome(x.IntN(5))}
	if x.IntN(6) == 0 {
		f.RetryAfter = x.some(500)
		f.Quotas = [4]policy.Quota{{Limit: float64(x.IntN(3)), Remaining: 1},
			{Unit: "tokens", Limit: 9, Remaining: float64(x.IntN(9))}}
	}
	return f
}

// holds holds a permit of key i for a while.
func (x user) holds(p Permit, i, weight int) {
	if n := x.held[i].Add(int64(weight)); x.fixed > 0 && n > int64(x.fixed) {
		x.wrong.Add(1)
	}
	if x.IntN(2) == 0 {
		time.Sleep(x.some(2000))
	}
	if x.IntN(3) == 0 {
		_ = p.Correct("tokens", x.IntN(30))
	}
	if x.expire && x.IntN(3) == 0 {
		p.ExpireIn(x.some(4000) - 1000*x.unit)
	}
	if x.expire && x.IntN(20) == 0 {
		p.ExpireIn(x.some(3000) + x.unit)
		return // leaked; MaxHold
	}
	if x.IntN(3) == 0 {
		p.Report(x.feedback())
	}
	x.held[i].Add(-int64(weight))
	if x.IntN(3) == 0 {
		p.Done(x.feedback())
	} else {
		p.Release()
	}
	if x.IntN(20) == 0 {
		p.Release()
	}
}

// acquire waits until its context ends.
func (x user) acquire(key string, opts []CallOption) (p Permit, admitted bool) {
	ctx, cancel := context.WithTimeout(context.Background(), x.some(3000))
	defer func() { cancel() }()
	if x.IntN(2) == 0 {
		cancel()
		ctx, cancel = context.WithCancel(context.Background())
		time.AfterFunc(x.some(3000), cancel)
	}
	p, err := x.l.Acquire(ctx, key, opts...)
	if err != nil && !errors.Is(err, ErrLimited) && !errors.Is(err, context.Canceled) &&
		!errors.Is(err, context.DeadlineExceeded) {
		panic(err)
	}
	return p, err == nil
}

// acts takes one step.
func (x user) acts() {
	i, weight := int(float64(x.keys)*x.Float64()*x.Float64()), 1
	key, opts := key(i), []CallOption(nil)
	if x.IntN(4) == 0 {
		weight = 1 + x.IntN(3)
		opts = append(opts, Weight(weight))
	}
	if x.IntN(3) == 0 && x.limits[0].Rates != nil {
		opts = append(opts, Cost("tokens", x.IntN(30)))
	}
	if x.IntN(2) == 0 {
		opts = append(opts, Priority(x.IntN(numClasses)-1).Option())
	}
	switch n := x.IntN(100); {
	case n < 40:
		if p, admitted := x.acquire(key, opts); admitted {
			x.holds(p, i, weight)
		}
	case n < 65:
		if p, d := x.l.TryAcquire(key, opts...); d.OK {
			x.holds(p, i, weight)
		}
	case n < 75:
		x.l.Allow(key)
	case n < 82:
		if p, got := x.l.TryAcquireUpTo(key, 1+x.IntN(4)); got > 0 {
			x.holds(p, i, got)
		}
	case n < 88:
		x.l.Check(key, opts...)
	case n < 98:
		x.changes(key, n)
	default:
		time.Sleep(x.some(500))
	}
}

// changes changes something of the limiter, or looks at it.
func (x user) changes(key string, what int) {
	l, limit := x.l, x.limits[x.IntN(len(x.limits))]
	switch what {
	case 88, 89, 90:
		_ = l.SetLimit(limit)
	case 91, 92:
		n := 1 + x.IntN(3)
		if x.fixed > 0 {
			n = 1
		}
		_ = l.SetPool(Pool{Replicas: n, Ordinal: x.IntN(n + 1), Fixed: x.IntN(2) == 0}, 0)
	case 93:
		_ = l.Override(key, &limit, 0)
	case 94:
		for k := range l.Keys() {
			_ = l.Override(k.Key, nil, 0)
		}
	case 95:
		l.Reset(key)
	case 96:
		l.Stats()
	default:
		for range l.Keys() {
			if x.IntN(30) == 0 {
				break
			}
		}
	}
}

// begin makes the limiter.
func (x *stress) begin(t *testing.T) {
	hook := func(string, time.Duration, time.Duration) {}
	if x.deaf {
		hook = nil
	}
	x.l = mustNew(t, x.limits[0], append([]Option{MaxKeys(20), MaxWaiting(50, 200), OnAdmit(hook),
		Logger(slog.New(slog.NewTextHandler(io.Discard, nil)))}, x.opts...)...)
	x.held, x.unit = make([]atomic.Int64, x.keys), max(x.unit, time.Microsecond)
}

// run has the workers use the limiter for a while.
func (x *stress) run(t *testing.T, d time.Duration, workers int, seed uint64) {
	x.begin(t)
	end := time.Now().Add(d)
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			for u := (user{rand.New(rand.NewPCG(seed, uint64(i))), x}); time.Now().Before(end); {
				u.acts()
			}
		})
	}
	if x.lends {
		x.l.beginExchange()
		wg.Go(func() {
			for sums := newIdle(); time.Now().Before(end); {
				x.l.turn(sums)
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
	x.l.endExchange()
	is(t, "keys that are said", x.l.Stats().more.Demand.Keys, 0)
	x.drain(t)
}

// drain puts all keys under one limit, under which nobody waits for ever.
func (x *stress) drain(t *testing.T) {
	for k := range x.l.Keys() {
		override(t, x.l, k.Key, nil)
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
		n += int(s.n)
		is(t, "queues", len(s.waiting), 0)
		later := meter.Instant{At: s.latest.At + 24*time.Hour, Wall: s.latest.Wall + int64(24*time.Hour)}
		for _, g := range s.gates() {
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
				b[j].charged.epoch = 0 // each taking sets it
				if b[j].out() || b[j].end != 0 || b[j].key != "" ||
					b[j].costs != [maxUnits]int{} || b[j].charged != (charged{}) {
					t.Errorf("a holding is out: %+v", b[j])
				}
			}
		}
		s.mu.Unlock()
	}
	is(t, "keys by the counter", l.keys.Load(), int64(n))
	is(t, []any{"times in flight above", x.fixed}, x.wrong.Load(), 0)
}

// mixedLimits are limits of every shape over the same few rates. At a speed of 1 those are of a few events a second.
func mixedLimits(speed, window float64) []Limit {
	tok := Rate{Name: "tokens", Unit: "tokens", Events: 20 * speed, Per: time.Second, Burst: 60}
	al := Rate{Name: "al", Events: window, Per: time.Duration(float64(5*time.Second) / speed), Kind: Window}
	s := Rate{Name: "s", Events: 3 * speed, Per: time.Second, Burst: 10}
	s2 := Rate{Name: "s2", Events: 2 * speed, Per: time.Second, Burst: 3}
	return []Limit{
		{Rates: []Rate{tok, s}, InFlight: 3}, {Rates: []Rate{s, tok, al}, InFlight: 6},
		{Rates: []Rate{al, tok}}, {InFlight: 2}, {Deny: true}, {}, {Rates: []Rate{s2, s}, InFlight: 4},
		{Rates: []Rate{tok, al}, InFlight: 1}, {Rates: []Rate{s}}, {Rates: []Rate{s2}, InFlight: 9},
	}
}

// fastLimits are limits that workers in real time reach many times a second.
func fastLimits() []Limit { return mixedLimits(1000, 20) }

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
			MaxWait(2 * ms)}},
		"nolaw": {keys: 50, expire: true, limits: fastLimits(), opts: []Option{hold}},
		"ceiling": {keys: 50, limits: fastLimits(), opts: []Option{Policy(policy.AIMD{}), BeyondShare(),
			Replicas(2), StartEmpty()}},
		"adversary": {keys: 50, limits: fastLimits(),
			opts: []Option{Policy(adversary.Policy{Seed: 7, Calm: true}), BeyondShare()}},
		"fixed":     {keys: 50, limits: fixedLimits(4), fixed: 4},
		"slots":     {keys: 50, limits: []Limit{four}, fixed: 4},
		"slotsexp":  {keys: 50, expire: true, limits: []Limit{four, two}, opts: []Option{hold}},
		"slotsexp2": {keys: 50, limits: []Limit{four, two, {Deny: true}, {}}},
		"lent": {keys: 9, lends: true, limits: fastLimits(), opts: []Option{MaxKeys(6), Replicas(2),
			Demand(4, 50*ms)}},
		"shards": {keys: 6000, expire: true, limits: fastLimits(), opts: []Option{hold, MaxKeys(4096)}},
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

// oracle recounts the state of a limiter of one shard after a step of a history.
type oracle struct {
	*testing.T
	l    *Limiter
	s    *shard
	now  meter.Instant
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
			if q = g.ext.queue.len; len(g.ext.expiring) != expiring[g] || q == 0 && g.ext.queue.passed > 0 {
				o.wrong("%s expiring %d want %d, or %d have passed nobody", k, len(g.ext.expiring), expiring[g],
					g.ext.queue.passed)
			}
		}
		total += q
		if _, ok := s.waiting[g]; ok != (q > 0) {
			o.wrong("%s waiting %v queue %d", k, ok, q)
		}
		if q > 0 && g.setting != s.newest(0) && !g.setting.overridden() {
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
	if o.l.keys.Load() != int64(s.n) {
		o.wrong("keys %d %d", o.l.keys.Load(), s.n)
	}
}

// gates are those of the map, which finds each of them and nothing else, and the overflow gate.
func (o *oracle) gates() map[*gate]string {
	gates := map[*gate]string{}
	for _, g := range o.s.gates() {
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
		want[class][0] += int64(w.d.weight)
		for unit, n := range w.d.costs {
			want[class][1+unit] += int64(n)
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
	if l := m.learned; l != nil && l.due != 0 && o.now.At >= l.due {
		o.wrong("%s is stale with a queue", g.name)
	}
	if last != q.last || oldest != q.oldest() || q.passed >= trickle {
		o.wrong("%s: the ends of the classes are wrong, or %d have passed", g.name, q.passed)
	}
	if o.l.maxWait > 0 && o.now.At-oldest.since >= o.l.maxWait {
		o.wrong("%s one waits beyond MaxWait", g.name)
	}
}

// head checks that who is next waits for a reason, and that a timer is set for the end of that.
func (o *oracle) head(g *gate) {
	m, now := g.ext, o.now
	v := g.look(now, &m.queue.next().d)
	if v.wait < meter.Never {
		v.wait = g.pacerOf(v).wakes(now.At, v.wait)
	}
	soon := m.ready.known && m.timer != nil && m.ready.at <= now.At+2 // rounded up
	switch {
	case v.reason == ReasonNone && soon:
	case v.reason == ReasonNone, v.final():
		o.wrong("%s head waits for %v", g.name, v.reason)
	case v.wait < meter.Never: // a float64 has 52 bits, and several are added
		if !m.ready.known || m.ready.at > now.At+v.wait+2+v.wait>>43 || m.timer == nil {
			o.wrong("%s head's turn in %v, timer in %v (%v)", g.name, v.wait, m.ready.at-now.At, m.timer)
		}
	case v.reason == ReasonInFlight && len(m.expiring) > 0:
		if m.timer == nil {
			o.wrong("%s no timer for the expiring", g.name)
		}
		for _, h := range m.expiring {
			// A caller that waits for a rate learns at its turn that slots are what it waits for now.
			if h.end <= now.At && m.blocked == ReasonInFlight || h.end < m.nextEnd {
				o.wrong("%s expired and not given back with a queue, or nextEnd is too late", g.name)
			}
		}
	}
}

func runOracle(t *testing.T, seed uint64, steps int, limits []Limit, opts ...Option) {
	inFakeTime(t, func(t *testing.T) {
		x := &stress{keys: 7, unit: []time.Duration{10 * ms, 2 * time.Second}[seed/2%2], expire: true, opts: append([]Option{MaxKeys(3),
			MaxWaiting(30, 60)}, opts...),
			limits: limits, deaf: len(opts) == 0}
		if len(limits) == 1 {
			x.fixed, x.expire = limits[0].InFlight, false
		}
		x.begin(t)
		r := rand.New(rand.NewPCG(seed, 1))
		for step := range steps {
			go user{rand.New(rand.NewPCG(seed, uint64(2+step))), x}.acts()
			synctest.Wait()
			o := oracle{T: t, l: x.l, s: &x.l.shards[0], step: fmt.Sprint("seed ", seed, " step ", step)}
			if o.inspect(); t.Failed() {
				break
			}
			if r.IntN(3) == 0 {
				time.Sleep(time.Duration(math.Exp(r.Float64()*21.3)) * time.Microsecond) // up to half an hour
			}
		}
		x.drain(t)
		time.Sleep(4 * time.Hour)
		x.check(t)
	})
}

// After every step of a random history the state is recounted from the outside. The head never waits while
// there is room, its timer is not late, and every counter is right.
func TestStateAfterEveryStep(t *testing.T) {
	mixed, slots := mixedLimits(1, 7.5), []Limit{{InFlight: 3}, {InFlight: 2}, {InFlight: 5}, {Deny: true}}
	for seed := range uint64(30) {
		beyond := seed%2 == 1
		runOracle(t, seed, 600, slots)
		runOracle(t, seed, 600, slots[:1])
		runOracle(t, seed, 600, mixed)
		runOracle(t, seed, 600, mixed, MaxHold(2*time.Second), MaxWait(4*time.Second))
		runOracle(t, seed, 600, mixed, policyOf(policy.Tracking{}, beyond))
		runOracle(t, seed, 600, mixed, MaxHold(2*time.Second), Policy(policy.AIMD{}))
		runOracle(t, seed, 600, mixed, Policy(policy.AIMD{Decrease: 0.1}), BeyondShare(), MaxWait(20*time.Second))
		runOracle(t, seed, 600, mixed, policyOf(adversary.Policy{Seed: seed, Calm: true}, beyond), MaxHold(5*time.Second))
		if t.Failed() {
			return
		}
	}
}
