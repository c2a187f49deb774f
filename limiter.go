package quotient

import (
	"context"
	"errors"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Limiter holds one limit for each key, over all replicas of a pool, by enforcing this replica's
// share of it. All methods are safe for concurrent use; none waits for the network.
type Limiter struct {
	options
	base    time.Time // the origin of the monotonic clock
	seed    uint64
	mask    uint64
	shards  []shard
	keys    atomic.Int64
	broom   atomic.Uint64 // the shard that was swept last for another one
	waiting atomic.Int64
	came    atomic.Uint64 // waiters that were admitted and have come for it
	owned   atomic.Int64  // keys that have a limit of their own
	clock   atomic.Uint32 // which clock an ask reads: one of the below
	dry     atomic.Bool   // nobody is stopped
	dryTold atomic.Int64  // when a dry run was last logged, from base

	mu      sync.Mutex // guards what follows; taken before any shard's lock
	view    view
	units   []string
	changes uint
	version uint64 // counts what operators change
	own     overrides
	hints   hints
	below   underlying
}

// shard is a part of the keys under one lock: the map, its order, its gates and their permits.
type shard struct {
	mu        sync.Mutex
	l         *Limiter
	now       time.Time // the latest instant that was acted on
	setting   *setting  // the newest
	untouched *gate     // what a key never seen is equal to
	overflow  *gate     // of keys for which there is no room; nil while there is none
	store
	permits permits
	waiting map[*gate]struct{} // gates with a queue
	counts  counters

	_ [64]byte // keeps the next shard's lock off this one's cache line
}

const (
	keysPerShard = 1024
	mostShards   = 256
	catchUp      = 1024 // changes after which all gates replay, so that no gate ever has more to replay
)

// The clocks. Without an aligned rate the monotonic clock is enough, at little more than half the price
// of time.Now; slots alone need no clock at all unless somebody has to wait.
const (
	clockMonotonic uint32 = iota
	clockWall
	clockNone
)

// New returns a limiter for limit, or an error that names the first field that is out of range.
// It starts no goroutine and needs no closing.
func New(limit Limit, opts ...Option) (*Limiter, error) {
	o := defaults()
	for _, opt := range opts {
		if err := opt(&o); err != nil {
			return nil, err
		}
	}
	o.sign()
	o.watches = o.maxHold > 0 || o.leakCheck != nil
	if o.awaits && (o.stale == 0 || !o.fallsBack()) {
		return nil, errors.New("quotient: AwaitPool: it takes a HintMaxAge above 0, and a StartPool or JoinPool that counts after it: " +
			"else a source that never speaks would shut this replica for ever, or leave it the whole limit")
	}
	units, err := learnUnits(nil, limit)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	l := &Limiter{
		options: o, base: now, seed: rand.Uint64(),
		shards: make([]shard, shardCount(o.maxKeys)), view: view{o.pool, o.sized, o.awaits}, units: units,
	}
	l.mask = uint64(len(l.shards) - 1)
	st := l.resolve(limit.clone(), l.view, units)
	st.at, st.origin = now, l.base
	l.clock.Store(l.clockFor(st))
	l.dry.Store(o.dryRun)
	l.below = underlying{view: l.view, source: "configured"}
	for i := range l.shards {
		l.shards[i].start(l, st)
	}
	return l, nil
}

func (s *shard) start(l *Limiter, st *setting) {
	s.l, s.now, s.setting, s.untouched = l, st.at, st, new(gate)
	s.untouched.begin(st)
	s.store = newStore(l.maxKeys)
	s.ticks = ticksAt(st.at.Sub(l.base))
	s.waiting = make(map[*gate]struct{})
}

// shardCount is a power of two: enough that neither the cores nor a map that is rebuilt under
// its lock stand in each other's way, and few enough that each has keys to choose from.
func shardCount(maxKeys int) int {
	n := min(maxKeys/keysPerShard, mostShards, 64*runtime.GOMAXPROCS(0))
	if n <= 1 {
		return 1
	}
	return 1 << (bits.Len(uint(n)) - 1)
}

// now reads the clock.
func (l *Limiter) now() time.Time {
	if l.clock.Load() == clockWall {
		return time.Now()
	}
	return l.base.Add(time.Since(l.base))
}

// arrival is now for an ask that has come, or the zero time, which is before every
// instant of a shard, where no clock is needed.
func (l *Limiter) arrival() time.Time {
	if l.clock.Load() == clockNone {
		return time.Time{}
	}
	return l.now()
}

// clockFor tells which clock asks need under st.
func (o *options) clockFor(st *setting) uint32 {
	for i := range st.rations {
		if st.rations[i].window != nil || st.rations[i].turn != nil {
			return clockWall
		}
	}
	if len(st.rations) == 0 && len(st.laws) == 0 && o.maxHold == 0 && o.leakCheck == nil && o.onAdmit == nil {
		return clockNone
	}
	return clockMonotonic
}

func (l *Limiter) shard(key string) *shard {
	if l.mask == 0 {
		return &l.shards[0]
	}
	return &l.shards[shardHash(l.seed, key)&l.mask]
}

// tick returns now, or the latest instant that the shard has acted on if that is later:
// a caller may have read the clock long before it got the lock. Time never goes back here.
func (s *shard) tick(now time.Time) time.Time {
	if now.After(s.now) {
		s.now = now
	}
	return s.now
}

// gate returns the key's gate under the newest setting.
func (s *shard) gate(key string, now time.Time) *gate {
	g := s.last.gate
	if s.left--; s.left == 0 || !s.last.is(key) {
		g = s.find(key, now)
	}
	if g.setting != s.setting {
		g.sync(s.setting)
	}
	g.seen = s.ticks
	return g
}

// find looks the key up, and makes its gate if there is none.
func (s *shard) find(key string, now time.Time) *gate {
	if s.left == 0 {
		s.sweep() // before the look-up: it may drop the very key
	}
	if g := s.get(key); g != nil {
		return g
	}
	return s.newKey(key, now)
}

// admit is gate.admit, but takes back first what was held for too long.
func (s *shard) admit(g *gate, now time.Time, d *demand) verdict {
	if g.more != nil && len(g.more.expiring) > 0 {
		s.reclaim(g, now) // or a hot key that is never short of slots would pile up what nobody releases
	}
	if !d.priced && g.admitAtOnce(now, d.weight) {
		return verdict{}
	}
	g.settle(now, s.l.policy)
	v := g.admit(now, d)
	if v.reason == ReasonInFlight && g.more != nil && len(g.more.expiring) > 0 {
		now = s.tick(s.l.now()) // slots alone are decided on without a clock
		s.reclaim(g, now)
		v = g.admit(now, d)
	}
	if i := v.law(); i >= 0 {
		g.more.learned.heldBack(i)
	}
	return v
}

// Acquire admits the ask, waiting for its turn if it must. Waiters of a key are served first in,
// first out within their Priority, by whatever limit and pool hold when their turn comes.
//
// It fails at once with a *LimitedError when the queue is full, when the turn is known to come
// later than MaxWait or the context's deadline, or when the ask can never be admitted; later when
// MaxWait has passed, a changed limit refuses it or one of a higher Priority takes its place in a full queue; and with ctx.Err() when the context ends, and then
// the limiter is as if it had never been asked. An ask that is not valid fails with an error that names it.
//
// On a paced rate of at most one event a second, who wakes later than a tenth of the interval after its turn has lost that turn: acting on
// it late would come too close to the next one. It waits again, before all others of its class, three times at most (Stats.Expired).
func (l *Limiter) Acquire(ctx context.Context, key string, asks ...Ask) (Permit, error) {
	if err := ctx.Err(); err != nil {
		return Permit{}, err
	}
	now := l.arrival()
	s := l.shard(key)
	s.mu.Lock()
	arrived := now
	now = s.tick(now)
	d := oneRequest
	if len(asks) > 0 {
		var err error
		if d, err = newDemand(asks, s.setting.units); err != nil {
			s.counts.refused[ReasonAsk]++
			s.mu.Unlock()
			return Permit{}, err
		}
	}
	g := s.gate(key, now)
	if g.behind(d.class) {
		return s.wait(ctx, g, key, d, arrived)
	}
	if v := s.admit(g, now, &d); v.reason != ReasonNone {
		return s.wait(ctx, g, key, d, arrived)
	}
	s.counts.admitted++
	if g.waited() {
		g.more.queue.passed++
	}
	p := s.hold(g, key, &d, now)
	s.overtaken(g)
	s.mu.Unlock()
	if l.onAdmit != nil {
		l.admitted(key, arrived, arrived, p)
	}
	return p, nil
}

// admitted tells the hook how long a caller waited and how much of it was overhead. Should the hook
// panic, the permit is released: nobody else can.
func (l *Limiter) admitted(key string, arrived, due time.Time, p Permit) {
	returned := false
	defer func() {
		if !returned {
			p.Release()
		}
	}()
	now := l.now()
	l.onAdmit(key, now.Sub(arrived), now.Sub(due))
	returned = true
}
