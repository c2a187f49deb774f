package quotient

import (
	"iter"
	"math"
	"time"
)

// counters is what a shard counts, under its lock.
type counters struct {
	admitted, waited, cancelled, evicted, overflowed uint64
	doubleReleases, reclaimed, throttled             uint64
	expired, fired                                   uint64
	refused, dryRun                                  [numReasons]uint64
	inFlight                                         int64
}

// Stats is what a limiter has done since it was made, and where it stands. The numbers of
// different shards are read one after the other, not at one instant.
type Stats struct {
	Version   uint64 // counts what was changed by SetLimit, Override, SetDryRun, SetPool and SetPoolFor; hints do not count
	DryRun    bool   // nobody is stopped
	Overrides int    // keys with a limit of their own

	Limit Limit       // over the fleet
	Rules []RuleStats // the rates, in order, and the in-flight rule if there is one
	Pool  PoolStats

	Keys, MaxKeys int // remembered now, and at most
	Waiting       int // callers in queues
	InFlight      int // weight of the permits that are out and have something to give back: under rates alone those of TryAcquireUpTo

	Admitted       uint64            // asks
	Refused        map[Reason]uint64 // asks, by reason; reasons that never occurred are absent
	Waited         uint64            // asks that were queued
	Cancelled      uint64            // waiters whose context ended
	Evicted        uint64            // idle keys that were dropped
	Overflowed     uint64            // asks decided by an overflow gate, because MaxKeys keys were busy
	DoubleReleases uint64            // releases of a permit that was released, or given back by time, before
	Reclaimed      uint64            // permits given back by time
	Expired        uint64            // turns of a paced rate that were lost, because their caller woke too late
	DryRunAdmitted map[Reason]uint64 // asks that only a dry run has admitted, by what stood in their way; they count as Admitted too
	Throttled      uint64            // feedback that was policy.Throttled; 0 under policy.Fixed, which hears none
}

// RuleStats is one rule of the limit with the part of it that this replica enforces.
type RuleStats struct {
	Name, Unit   string  // of the rate; "in-flight" for the slots
	Limit, Share float64 // events per second, or slots, over the fleet and here
	Burst        float64 // events, here; 0 for windows and slots
}

// PoolStats is the pool in force and how it came to be.
type PoolStats struct {
	Pool
	Source    string        // configured, set, followed, or awaited while AwaitPool admits nothing
	Age       time.Duration // since something usable was last said; 0 when nothing ever was
	Until     time.Time     // when what SetPoolFor said ends; zero: nothing of it is in force
	Reports   uint64        // usable ones
	Errors    uint64        // of the source
	Rejected  uint64        // that were out of range
	LastError string
}

// KeyStats is where one key stands on this replica.
type KeyStats struct {
	Tokens            []float64 // events that each rate has left here; negative: owed
	InFlight, Waiting int
	Overridden        bool    // the key has a limit of its own
	Rate              float64 // events per second, as the policy paces; 0 under policy.Fixed
}

// Version counts what operators have changed: see Stats.Version.
func (l *Limiter) Version() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.version
}

// NeedsFeedback tells whether the policy learns: whether Permit.Done does more than Release.
func (l *Limiter) NeedsFeedback() bool { return l.learns }

// Stats returns the limiter's numbers. Permits whose time is over are given back first.
func (l *Limiter) Stats() Stats {
	out := Stats{
		MaxKeys: l.maxKeys, Waiting: int(l.waiting.Load()),
		Refused: make(map[Reason]uint64), DryRunAdmitted: make(map[Reason]uint64),
	}
	for i := range l.shards {
		s := &l.shards[i]
		s.reclaimAll()
		s.mu.Lock()
		out.add(&s.counts)
		out.Keys += s.lru.Len()
		s.mu.Unlock()
	}
	out.Admitted += l.came.Load()
	l.mu.Lock()
	defer l.mu.Unlock()
	st := l.shards[0].current()
	out.Limit, out.Rules, out.Pool = st.limit.clone(), st.rules(), l.poolStats()
	out.Version, out.DryRun, out.Overrides = l.version, l.dry.Load(), len(l.own.limits)
	return out
}

// poolStats is what is believed about the pool. Call with l.mu held.
func (l *Limiter) poolStats() PoolStats {
	h := &l.hints
	out := PoolStats{
		Pool: l.view.pool, Source: h.source, Reports: h.reports, Errors: h.errors, Rejected: h.rejected, LastError: h.lastError,
		Until: l.below.until,
	}
	switch {
	case l.view.shut:
		out.Source = "awaited"
	case out.Source == "":
		out.Source = "configured"
	}
	if !h.last.IsZero() {
		out.Age = l.now().Sub(h.last)
	}
	return out
}

func (out *Stats) add(c *counters) {
	out.Admitted += c.admitted
	out.Waited += c.waited
	out.Cancelled += c.cancelled
	out.Evicted += c.evicted
	out.Overflowed += c.overflowed
	out.DoubleReleases += c.doubleReleases
	out.Reclaimed += c.reclaimed
	out.Throttled += c.throttled
	out.Expired += c.expired
	out.InFlight += int(c.inFlight)
	for r := range numReasons {
		if n := c.refused[r]; n > 0 {
			out.Refused[r] += n
		}
		if n := c.dryRun[r]; n > 0 {
			out.DryRunAdmitted[r] += n
		}
	}
}

func (st *setting) rules() []RuleStats {
	var rules []RuleStats
	for i := range st.rations {
		r := &st.rations[i]
		rule := RuleStats{Name: r.name, Unit: r.unit, Limit: r.limit, Share: r.share, Burst: float64(r.burst) / milli}
		if r.window != nil {
			rule.Burst = 0
		}
		rules = append(rules, rule)
	}
	if n := st.limit.InFlight; n > 0 {
		rules = append(rules, RuleStats{Name: inFlightRule, Limit: float64(n), Share: float64(st.slots)})
	}
	return rules
}

// reclaimAll gives back what was held for too long, block by block.
func (s *shard) reclaimAll() {
	for b := 0; ; b++ {
		s.mu.Lock()
		if b >= len(s.permits.blocks) {
			s.mu.Unlock()
			return
		}
		gates := s.reclaimBlock(s.permits.blocks[b])
		s.mu.Unlock()
		for _, g := range gates {
			s.mu.Lock()
			s.serveAndUnlock(g)
		}
	}
}

func (s *shard) reclaimBlock(block *[permitBlock]holding) (gates []*gate) {
	var now time.Time
	for i := range block {
		h := &block[i]
		if !h.out() || h.end == 0 {
			continue
		}
		if now.IsZero() {
			now = s.tick(s.l.now())
		}
		if g := h.gate; h.end <= now.Sub(s.l.base) {
			s.reclaim(g, now)
			gates = append(gates, g)
		}
	}
	return gates
}

// Keys iterates over the keys that are remembered, in no order. It copies the names of one shard at a time and looks
// at each key on its own, so that the limiter goes on meanwhile; keys that come or go during it may be missing.
func (l *Limiter) Keys() iter.Seq2[string, KeyStats] {
	return func(yield func(string, KeyStats) bool) {
		for i := range l.shards {
			if !l.shards[i].each(yield) {
				return
			}
		}
	}
}

func (s *shard) each(yield func(string, KeyStats) bool) bool {
	s.mu.Lock()
	keys := s.lru.Keys()
	s.mu.Unlock()
	for _, key := range keys {
		s.mu.Lock()
		g, ok := s.lru.Peek(key)
		var ks KeyStats
		if ok {
			ks = s.keyStats(g)
		}
		s.mu.Unlock()
		if ok && !yield(key, ks) {
			return false
		}
	}
	return true
}

func (s *shard) keyStats(g *gate) KeyStats {
	now := s.tick(s.l.now())
	s.reclaim(g, now)
	g.sync(s.setting)
	g.settle(now, nil)
	ks := KeyStats{InFlight: int(g.used), Overridden: g.setting.own != nil, Tokens: make([]float64, len(g.setting.rations))}
	for i := range g.setting.rations {
		if c := g.setting.rations[i].window; c != nil {
			w := &g.more.windows[i]
			w.roll(now, c)
			ks.Tokens[i] = float64(w.quota - w.used)
		} else {
			ks.Tokens[i] = math.Round(g.bucket(i).tokens(now)) / milli
		}
	}
	if g.more != nil {
		ks.Waiting = g.more.queue.len
		if g.more.learned != nil {
			ks.Rate = g.more.learned.pacers[0].pace
		}
	}
	return ks
}
