package quotient

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Limiter holds one limit for each key, over all replicas of a pool, by enforcing this replica's share of it.
// All methods are safe for concurrent use; none waits for the network.
type Limiter struct {
	options
	base       time.Time // the origin of instants
	seed       maphash.Seed
	mask       uint64
	shards     []shard
	keys       atomic.Int64
	broom      atomic.Uint64 // the shard that was swept last for another one
	waiting    atomic.Int64
	collected  atomic.Uint64 // waiters that were admitted and have returned to their callers
	overridden atomic.Int64  // keys that have a limit of their own
	clock      atomic.Uint32 // which clock a call reads: one of the below
	dry        atomic.Bool   // no call is stopped
	dryLog     rate.Sometimes
	planLog    rate.Sometimes
	leakLog    rate.Sometimes

	mu        sync.Mutex // guards what follows; taken before any shard's lock
	belief    belief
	known     bool // the pool was known once
	units     []string
	plans     []namedLimit
	changes   uint
	version   uint64 // counts what operators change
	overrides overrides
	hints     hints
	standing  standing

	exchange exchange
}

// namedLimit is a plan's limit. A plan that is off has no limit.
type namedLimit struct {
	id    planID
	name  string
	limit Limit
	off   bool
}

// overrides are the limits of single keys. Limiter.mu guards them.
type overrides struct {
	limits map[string]Limit
	clocks int // how many need a clock
	walls  int // how many need the wall's
}

// standing is the pool by the configuration and the source. It counts again when a SetPool with a ttl ends.
// Limiter.mu guards it.
type standing struct {
	belief belief
	source string
	until  time.Time   // when a SetPool with a ttl ends; zero: none is in force
	timer  *time.Timer // ends it
}

// hints counts the reports about the pool. Limiter.mu guards it.
type hints struct {
	source                    string
	began                     time.Time // when the wait for the first usable report did
	last                      time.Time // when the last usable report came
	reports, errors, rejected uint64
	lastError                 string
	log                       hintLog
}

// hintKind is what was wrong with a hint.
type hintKind int

// The kinds, which have lines of their own.
const (
	hintFailed  hintKind = iota // the source has failed
	hintRefused                 // the source has reported what is no pool
	hintKinds
)

var hintTexts = [hintKinds]string{hintFailed: "pool hint failed", hintRefused: "pool hint refused"}

// hintLog is a run of failures of a source, and what was logged of it. Limiter.mu guards it.
type hintLog struct {
	began, last time.Time // the first and the last failure
	failures    uint64
	kinds       [hintKinds]struct {
		last     time.Time // when there was a line; zero: there was none
		unlogged uint64    // failures since
	}
	well    time.Time // the first usable report since the last failure; zero: there was none
	mixed   bool      // a failure has come after a usable report
	failing bool      // the last line is of a failure
}

// now reads the clock.
func (l *Limiter) now() instant {
	if l.clock.Load() == clockWall {
		return l.wallNow()
	}
	return instant{at: time.Since(l.base)}
}

// wallNow reads both clocks.
func (l *Limiter) wallNow() instant {
	t := time.Now()
	if l.wall != nil {
		return instant{t.Sub(l.base), l.wall(t)}
	}
	return instant{t.Sub(l.base), t.UnixNano()}
}

// arrival is now for a call that has come, or the zero instant, which is before every instant of a shard,
// where no clock is needed.
func (l *Limiter) arrival() instant {
	if l.clock.Load() == clockNone {
		return instant{}
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

// shard is a part of the keys under one lock: their gates, the store that finds and drops them, and their
// permits.
//
// All methods of a shard, and of the gates, queues, resources and stores in it, are called with its lock
// held. Those whose name ends in AndUnlock give it back. Methods of Limiter, Permit and caller take it
// themselves.
type shard struct {
	l         *Limiter
	setting   *setting // the newest
	untouched *gate    // what a key never seen is equal to
	overflow  overflow
	waiting   map[*gate]struct{} // gates with a queue

	// A call for a known key touches one cache line of a shard, which cores take from each other. It begins
	// with the last field of the store and ends with the first of the counters.
	store
	mu     sync.Mutex
	left   uint32  // calls until the next sweep
	latest instant // that was acted on
	counts counters

	permits permits
	plans   *plans
	wanted  *mentions // nil without Demand; a shard ends where a cache line does
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
	return s.setting
}

// waitsForPool reports whether the pool has to be known before a limit here or of a plan admits. Under Deny
// keys may have limits of their own (Override).
func (l *Limiter) waitsForPool() bool {
	s := &l.shards[0]
	s.mu.Lock()
	defer s.mu.Unlock()
	waits := s.setting.awaiting || s.setting.limit.Deny
	for _, p := range *s.plans {
		waits = waits || p.setting.awaiting
	}
	return waits && s.setting.belief.awaits
}

// hash returns the hash of a key. A collision of the 56 bits that count errs on the safe side: two keys then
// share one gate.
func (l *Limiter) hash(key string) uint64 {
	if l.hashKey != nil {
		return l.hashKey(key)
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
func (s *shard) tick(now instant) instant {
	if now.at > s.latest.at {
		if now.wall == 0 {
			now.wall = s.latest.wall + int64(now.at-s.latest.at)
		}
		s.latest = now
	}
	return s.latest
}

// tickWall is tick for an instant after which the wall clock matters: its time so far may have been carried
// on.
func (s *shard) tickWall(now instant) instant {
	if late := s.latest.at - now.at; late > 0 {
		now.at, now.wall = s.latest.at, now.wall+int64(late)
	}
	s.latest = now
	return now
}

// now reads the clock for the shard.
func (s *shard) now() instant { return s.tick(s.l.now()) }

// gate returns the key's gate under the newest setting of a plan, and makes it if there is none.
func (s *shard) gate(hash uint64, key string, now instant, plan planID) *gate {
	if s.left--; s.left == 0 {
		s.sweep() // before the look-up: it may drop the very key
	}
	g := s.find(hash)
	if g == nil {
		g = s.newKey(hash, key, now)
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
	if g.setting.overridden() && g.name != key {
		g = s.overflowed()
		g.sync()
	}
	s.enter(g, plan, s.latest)
	return g
}

// touch brings a gate up to now: first the settings, then the controllers. It starts no controller, and
// takes no permit back: reclaim comes behind it.
func (s *shard) touch(g *gate, now instant) {
	g.sync()
	g.advance(now, nil)
}

// admit is gate.admit, but takes back first what was held for too long.
func (s *shard) admit(g *gate, now instant, d *demand) verdict {
	fast := !d.priced
	if g.ext != nil {
		s.reclaim(g, now) // or a hot key that is never short of slots would pile up what is never released
		fast = fast && len(g.ext.plans) == 0
	}
	if fast && g.admitNow(now, d.weight) {
		return verdict{}
	}
	g.advance(now, s.l.policy)
	v := g.admit(now, d)
	if v.reason == ReasonInFlight && g.ext != nil && len(g.ext.expiring) > 0 {
		now = s.now() // slots alone are decided on without a clock
		s.reclaim(g, now)
		v = g.admit(now, d)
	}
	if v.reason == ReasonNone {
		g.spread(now, d)
	} else if v.rule != ruleNone {
		g.noteHeldBack(&g.setting.rules[v.rule])
		s.noteWanted(g, &g.setting.rules[v.rule])
	}
	if g.setting.census {
		s.noteCounted(g, v)
	}
	return v
}

// try admits d if all has room and it must not queue behind others. The caller counts a refusal, with stops.
func (s *shard) try(g *gate, now instant, d *demand) verdict {
	var v verdict
	if !g.mustQueue(d.class) {
		v = s.admit(g, now, d)
	} else {
		v = g.probe(now, d)
	}
	if v.reason == ReasonNone {
		s.countAdmission(g)
		return v
	}
	if s.overflow.is(g) && !v.final() {
		v.reason = ReasonKeys
	}
	return v
}

// countAdmission counts a call that g has admitted, past those that wait if there are any.
func (s *shard) countAdmission(g *gate) {
	s.counts.admitted++
	if g.waited() {
		g.ext.queue.passed++
	}
}

// stops counts a call that has been refused, and reports whether it stays refused: a dry run admits it all
// the same.
func (s *shard) stops(v verdict) bool {
	if s.l.dry.Load() {
		s.admitDry(v.reason)
		return false
	}
	s.counts.refused[v.reason]++
	return true
}

// refuseAsk counts a call that is not valid, and logs now and then that there are such of an unknown plan.
func (s *shard) refuseAsk(err error) {
	s.counts.refused[ReasonBadRequest]++
	plan, ok := err.(unknownPlan)
	if l := s.l; ok {
		l.planLog.Do(func() {
			time.AfterFunc(0, func() { // a lock is held here
				l.log.Warn("a call names a plan that the limiter does not have", "plan", string(plan))
			})
		})
	}
}

// dryPermit is that of a call which only a dry run has admitted: there is nothing to give back, and nothing
// to correct.
var dryPermit = Permit{gen: 2}

// admitDry counts a call that only a dry run admits, and logs now and then that there are such.
func (s *shard) admitDry(r Reason) {
	s.counts.admitted++
	s.counts.dryRun[r]++
	l := s.l
	l.dryLog.Do(func() {
		time.AfterFunc(0, func() { // a lock is held here
			l.log.Info("dry run: admitted what would have been stopped",
				"reason", r, "so_far", l.Stats().DryRunAdmitted)
		})
	})
}

// probe returns what stands between d and its admission, the waiters included.
func (g *gate) probe(now instant, d *demand) verdict {
	if !g.mustQueue(d.class) {
		return g.look(now, d)
	}
	if v := g.setting.refuses(d); v.reason != ReasonNone {
		return v
	}
	return g.waitBehind(now, d)
}

// peek returns the gate of a key for a mere look, in the plan that it is in. A key that is not remembered has
// the gate it would start with.
func (s *shard) peek(hash uint64, key string, now instant) *gate {
	g := s.find(hash)
	switch {
	case g != nil && (!g.setting.overridden() || g.name == key):
	case s.overflow.gate != nil && !s.spare(s.overflow.gate, now):
		if g = s.overflow.gate; !s.overflow.has(key) && s.hasRoom(now) {
			g = newGate(key, g, now, 0)
		}
	default:
		g = s.untouched
	}
	s.touch(g, now)
	s.reclaim(g, now)
	return g
}

// answer returns what a call would be answered now, behind what has been promised. A refusal by the overflow gate has
// the reason ReasonKeys.
func (s *shard) answer(g *gate, d *demand, p promises) Decision {
	v := g.probe(s.latest, d)
	if v.reason == ReasonNone {
		return Decision{OK: true}
	}
	if s.overflow.is(g) && !v.final() {
		v.reason = ReasonKeys
	}
	dec, _ := g.decision(s.latest, d, v, p)
	return dec
}
