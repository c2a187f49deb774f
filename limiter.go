package quotient

import (
	"errors"
	"hash/maphash"
	"maps"
	"math/bits"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/quotient-go/quotient/internal/carry"
	"github.com/quotient-go/quotient/internal/inside"
	"github.com/quotient-go/quotient/internal/meter"
)

const (
	keysPerShard = 1024
	maxShards    = 256
)

// New returns a limiter, or an error that names the first field that is out of range. Limit{} is valid: it admits
// every call, but for those under Plans, an Override or a policy that learns. It starts no goroutine and needs no
// closing.
func New(limit Limit, opts ...Option) (*Limiter, error) {
	l, err := build(limit, opts)
	if err == nil {
		l.warn(limit)
	}
	return l, err
}

// Must returns l, and panics if err is not nil: Must(New(...)). It is for limits that are constants of the program.
func Must(l *Limiter, err error) *Limiter {
	if err != nil {
		panic(err)
	}
	return l
}

// warn logs each rate of the first limits that never decides, and each that has no slot here.
func (l *Limiter) warn(limit Limit) {
	l.warnOfSlots()
	limit.warn(l.log)
	_, plans := l.limits(&l.shards[0], nil)
	for _, name := range slices.Sorted(maps.Keys(plans)) {
		plans[name].Limit.warn(l.log.With("plan", name))
	}
}

// build is New without a line in the log.
func build(limit Limit, opts []Option) (*Limiter, error) {
	o := defaults()
	for _, opt := range opts {
		if err := opt(&o); err != nil {
			return nil, err
		}
	}
	if o.name != "" {
		o.log = o.log.With("limiter", o.name)
	}
	if o.awaits && o.hintMaxAge == 0 {
		return nil, errors.New("quotient: HintMaxAge: 0 after AwaitPool, whose wait must have an end")
	}
	l := &Limiter{
		options: o, base: time.Now(), seed: maphash.MakeSeed(), dryLog: rate.Sometimes{Interval: time.Second},
		planLog: rate.Sometimes{Interval: time.Second}, leakLog: rate.Sometimes{Interval: time.Second},
		shards: makeShards(shardCount(o.maxKeys)), belief: belief{o.pool, o.sized, o.awaits},
	}
	units, err := l.learnUnits(limit, -1)
	if err != nil {
		return nil, err
	}
	l.units = units
	l.mask = uint64(len(l.shards) - 1)
	st := l.resolve(limit.clone(), l.belief, units, 0)
	st.at, st.reshaped = l.wallNow(), true
	l.clock.Store(l.clockFor(st))
	if l.hints.source = "configured"; o.awaits {
		l.hints.source = "awaited"
	}
	l.standing = standing{belief: l.belief, source: l.hints.source}
	l.inForce = make(inForce, 1)
	l.inForce[0].begin(st)
	for i := range l.shards {
		l.shards[i].start(l, st.at)
	}
	if err := l.setPlans(o.plans); err != nil {
		return nil, err
	}
	return l, nil
}

// setPlans sets the plans that a limiter has from the start.
func (l *Limiter) setPlans(plans map[string]Limit) error {
	for _, name := range slices.Sorted(maps.Keys(plans)) {
		limit := plans[name]
		if _, err := l.setPlan(name, &limit, false); err != nil {
			return err
		}
	}
	l.version = 0
	return nil
}

func (s *shard) start(l *Limiter, now meter.Instant) {
	s.l, s.latest = l, now
	s.store, s.left = newStore(), l.chance.Unswept
	s.waiting = make(map[*gate]struct{})
	if l.spokenKeys > 0 {
		s.wanted = new(mentions)
	}
}

// makeShards returns so many. Several begin where a cache line does: Go puts eight bytes in front of what has
// pointers and is of middle size, so they are made large.
func makeShards(n int) []shard {
	if n == 1 {
		return make([]shard, 1)
	}
	return make([]shard, n, max(n, 64))
}

// shardCount returns a power of two. It is large enough that the cores do not wait for each other, nor for a
// map that is rebuilt under its lock. It is small enough that each shard has keys to choose from.
func shardCount(maxKeys int) int {
	n := min(maxKeys/keysPerShard, maxShards, 64*runtime.GOMAXPROCS(0))
	if n <= 1 {
		return 1
	}
	return 1 << (bits.Len(uint(n)) - 1)
}

// Limiter holds one limit for each key, over all replicas of a pool, by enforcing this replica's share of it. All
// methods are safe for concurrent use; none waits for the network. Use it in the testing/synctest bubble in which it
// was made.
type Limiter struct {
	options
	base       time.Time // the origin of instants
	seed       maphash.Seed
	mask       uint64
	shards     []shard
	keys       atomic.Int64
	broom      atomic.Uint64 // the shard that was swept last for another one
	waiting    atomic.Int64
	waiters    sync.Pool     // that do not wait any more: of this limiter, as a channel belongs to one synctest bubble
	collected  atomic.Uint64 // waiters that were admitted and have returned to their callers
	overridden atomic.Int64  // keys that have a limit of their own
	clock      atomic.Uint32 // which clock a call reads: one of the below
	dry        atomic.Bool   // no call is stopped
	dryLog     rate.Sometimes
	planLog    rate.Sometimes
	leakLog    rate.Sometimes
	awaitLog   awaitLog

	mu        sync.Mutex // guards what follows; taken before any shard's lock
	belief    belief
	known     bool // the pool was known once
	units     []string
	changes   uint
	version   uint64 // counts what operators change
	overrides overrides
	hints     hints
	standing  standing

	exchange exchange
	inForce  inForce
}

// now reads the clock.
func (l *Limiter) now() meter.Instant {
	if l.clock.Load() == clockWall {
		return l.wallNow()
	}
	return meter.Instant{At: time.Since(l.base)}
}

// wallNow reads both clocks.
func (l *Limiter) wallNow() meter.Instant {
	t := time.Now()
	if wall := l.chance.Wall; wall != nil {
		return meter.Instant{At: t.Sub(l.base), Wall: wall(t)}
	}
	return meter.Instant{At: t.Sub(l.base), Wall: t.UnixNano()}
}

// arrival is now for a call that has come, or the zero instant, which is before every instant of a shard,
// where no clock is needed.
func (l *Limiter) arrival() meter.Instant {
	if l.clock.Load() == clockNone {
		return meter.Instant{}
	}
	return l.now()
}

// clockFor returns which clock calls need under st.
func (o *options) clockFor(st *setting) uint32 {
	if st.clock == clockNone && (o.maxHold > 0 || o.onAdmit != nil) {
		return clockMonotonic
	}
	return st.clock
}

// shard is a part of the keys under one lock: their gates, the store that finds and drops them, and their permits.
//
// All methods of a shard, and of the gates, queues, resources and stores in it, are called with its lock held. Those
// whose name ends in AndUnlock give it back. Methods of Limiter, Permit and caller take it themselves.
type shard struct {
	l        *Limiter
	plans    []planHere // by their places, as far as they were asked for
	overflow overflow

	// A call for a known key touches one cache line of a shard, which cores take from each other. It begins
	// with the last field of the store and ends with the first of the counters.
	store
	mu     sync.Mutex
	left   uint32        // calls until the next sweep
	latest meter.Instant // that was acted on
	counts counters

	permits permits
	waiting map[*gate]struct{} // gates with a queue
	wanted  *mentions          // nil without Demand; a shard ends where a cache line does
}

// counters is what a shard counts, under its lock.
type counters struct {
	admitted                               uint64
	inFlight                               int64
	waited, cancelled, evicted, overflowed uint64
	doubleReleases, reclaimed, throttled   uint64
	expired, fired                         uint64
	refused, dryRun                        [numReasons]uint64
}

// newest returns the setting in force.
func (l *Limiter) newest() *setting {
	s := &l.shards[0]
	s.mu.Lock()
	defer s.mu.Unlock()
	return l.inForce[0].setting
}

// waitsForPool reports whether the pool has to be known before a limit here or of a plan admits. Under Deny
// keys may have limits of their own (Override).
func (l *Limiter) waitsForPool() bool {
	s := &l.shards[0]
	s.mu.Lock()
	defer s.mu.Unlock()
	own := l.inForce[0].setting
	waits := own.limit.Deny
	for _, st := range l.inForce.settings() {
		waits = waits || st.awaiting
	}
	return waits && own.belief.awaits
}

// hash returns the hash of a key. A collision of the 56 bits that count errs on the safe side: two keys then
// share one gate.
func (l *Limiter) hash(key string) uint64 {
	if l.chance.Hash != nil {
		return l.chance.Hash(key)
	}
	return maphash.String(l.seed, key)
}

func (l *Limiter) shardOf(hash uint64) *shard { return &l.shards[hash&l.mask] }

// lock returns the key's shard, locked, and its hash.
func (l *Limiter) lock(key string) (*shard, uint64) {
	h := l.hash(key)
	s := l.shardOf(h)
	s.mu.Lock()
	return s, h
}

// tick returns now, or the latest instant that the shard has acted on if that is later: a caller may have
// read the clock long before it got the lock. Time never goes back here. The time by the wall clock is
// carried on where it was not read.
func (s *shard) tick(now meter.Instant) meter.Instant {
	if now.At > s.latest.At {
		if now.Wall == 0 {
			now.Wall = s.latest.Wall + int64(now.At-s.latest.At)
		}
		s.latest = now
	}
	return s.latest
}

// tickWall is tick for an instant after which the wall clock matters: its time so far may have been carried on.
func (s *shard) tickWall(now meter.Instant) meter.Instant {
	if late := s.latest.At - now.At; late > 0 {
		now.At, now.Wall = s.latest.At, now.Wall+int64(late)
	}
	s.latest = now
	return now
}

// latest is the present instant, and no earlier than that of any shard. All shards are locked.
func (l *Limiter) latest() meter.Instant {
	at := l.wallNow()
	for i := range l.shards {
		at = l.shards[i].tickWall(at)
	}
	return at
}

// now reads the clock for the shard.
func (s *shard) now() meter.Instant { return s.tick(s.l.now()) }

// gate returns the key's gate under the newest setting of a plan, and makes it if there is none.
func (s *shard) gate(hash uint64, key string, plan planID) *gate {
	if s.left--; s.left == 0 {
		s.sweep() // before the look-up: it may drop the very key
	}
	g := s.find(hash)
	if g == nil {
		g = s.newKey(hash, key, s.latest)
	}
	if st := g.setting; st.next != nil || st.special {
		g = s.current(g, key, plan)
	}
	g.seen = ticksAt(s.latest)
	return g
}

// current brings the gate up to the newest setting of a plan. A key whose hash is that of one with a limit of
// its own shares the overflow gate instead.
func (s *shard) current(g *gate, key string, plan planID) *gate {
	g.sync()
	if g.part() > 0 {
		g.endLoan(s.now()) // slots alone need no clock otherwise
	}
	if g.name != key && g.setting.overridden() {
		g = s.overflowed()
		g.sync()
	}
	s.enter(g, plan, s.latest)
	return g
}

// The clocks that calls read. Without a window the monotonic clock is enough, at little more than half
// the price of both. Slots alone need no clock at all unless a caller has to wait.
const (
	clockNone uint32 = iota
	clockMonotonic
	clockWall
	numClocks
)

// What other packages of this module may do to a limiter: see package inside.
func init() {
	inside.SetLimit, inside.SetPlan, inside.Override = (*Limiter).setLimit, (*Limiter).setPlan, (*Limiter).override
	inside.SetPool, inside.SetDryRun, inside.Reset = setPoolUnlogged, (*Limiter).setDryRun, (*Limiter).reset
	inside.WarnOf = (*Limiter).warnOf
	inside.Fix, inside.Count, inside.ForgetPromises = fix, (*Limiter).counted, (*Limiter).forgetPromises
	inside.MoreOf = func(s *Stats) *inside.More { return &s.more }
	inside.Lend, inside.Report = (*Limiter).lendKey, (*Limiter).reportKey
}

func fix(f func(*inside.Chance)) Option {
	return func(o *options) error { f(&o.chance); return nil }
}

func (l *Limiter) counted() (n inside.Counts) {
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		n.Fired += s.counts.fired
		n.Overflowed += s.counts.overflowed
		n.Expired += s.counts.expired
		for _, dry := range s.counts.dryRun {
			n.Dry += dry
		}
		s.mu.Unlock()
	}
	return n
}

func (l *Limiter) forgetPromises() {
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		s.promises = nil
		s.mu.Unlock()
	}
}

func (l *Limiter) lendKey(key string, part float64, lasts time.Duration) bool {
	s, hash := l.lock(key)
	g, now := s.ownGate(hash, key), s.now()
	if g == nil {
		s.mu.Unlock()
		return false
	}
	if s.touch(g, now); g.tally() == nil {
		s.speak(g, &tally{since: now.At}, 0)
	}
	g.tally().ends = now.At + lasts
	s.speak(g, g.tally(), part)
	s.serveAndUnlock(g)
	return true
}

func (l *Limiter) reportKey(key string, rate Rate, others int64, lasts time.Duration) bool {
	rule := countedID(id{name: rate.Name, unit: rate.Unit, per: int64(rate.Per), zone: rate.Zone})
	s, g, r, w := l.countedGate(carry.Count{Rule: rule, Key: key})
	if r == nil {
		s.mu.Unlock()
		return false
	}
	w.Learn(s.latest, r.Schedule, others, s.latest.At+lasts)
	s.serveAndUnlock(g)
	return true
}
