package quotient

import (
	"iter"
	"maps"
	"math"
	"time"

	"github.com/quotient-go/quotient/internal/carry"
)

// TestPropertyEverything, which is outside the package, needs to see or to set these.

// WithPhase fixes which sparse windows are a replica's own while it knows no ordinal.
func WithPhase(phase int64) Option {
	return func(o *options) error { o.phase = phase; return nil }
}

// WithWallClock sets the wall clock of a limiter, and nothing else of its time.
func WithWallClock(wall func(time.Time) int64) Option {
	return func(o *options) error { o.wall = wall; return nil }
}

// WithMostPlans bounds how many plans a limiter can have at a time.
func WithMostPlans(n int) Option {
	return func(o *options) error { o.mostPlans = n; return nil }
}

// IsDry reports whether only a dry run has admitted the permit.
func IsDry(p Permit) bool { return p == dryPermit }

// IsKept reports whether the permit is remembered until it is released.
func IsKept(p Permit) bool { return p.h != nil }

// Counted is what a limiter has counted, read without giving back what was held for too long, as Stats does.
type Counted struct{ Fired, Overflowed, Expired, Dry uint64 }

// CountsOf returns what a limiter has counted.
func CountsOf(l *Limiter) (n Counted) {
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		n.Fired += s.counts.fired
		n.Overflowed += s.counts.overflowed
		n.Expired += s.counts.expired
		for _, d := range s.counts.dryRun {
			n.Dry += d
		}
		s.mu.Unlock()
	}
	return n
}

// Awaits reports whether nothing is admitted because the pool is not known.
func Awaits(l *Limiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.belief.awaits
}

// IsLocked reports whether one of a limiter's locks is held.
func IsLocked(l *Limiter) bool {
	if !l.mu.TryLock() {
		return true
	}
	l.mu.Unlock()
	for i := range l.shards {
		if !l.shards[i].mu.TryLock() {
			return true
		}
		l.shards[i].mu.Unlock()
	}
	return false
}

// IsOut reports whether the permit was neither released nor given back by time.
func IsOut(p Permit) bool {
	p.h.s.mu.Lock()
	defer p.h.s.mu.Unlock()
	return p.h.gen == p.gen
}

// Report has a counted rule of a key know what the others have admitted in the present window, as a turn of
// sums would. The reports are fresh for a while. It returns false when there is no such rule, or no room for
// the key.
func Report(l *Limiter, key string, r Rate, others int64, lasts time.Duration) bool {
	s, g, x, w := l.countedGate(carry.Count{Rule: countedID(id{name: r.Name, unit: r.Unit, per: int64(r.Per)}), Key: key})
	if x == nil {
		s.mu.Unlock()
		return false
	}
	w.Learn(s.latest, x.Schedule, others, s.latest.At+lasts)
	s.serveAndUnlock(g)
	return true
}

// shard returns the shard of a key.
func (l *Limiter) shard(key string) *shard { return l.shardOf(l.hash(key)) }

// WithHash fixes the hash of keys: with it their shards, and the seeds of their controllers.
func WithHash(hash func(key string) uint64) Option {
	return func(o *options) error { o.hashKey = hash; return nil }
}

// Lend has a replica use a part of a key's limit for a while, as a turn of sums would. It reports whether the
// key is remembered. Part 0 is the share.
func Lend(l *Limiter, key string, part float64, lasts time.Duration) bool {
	s, hash := l.lock(key)
	g := s.find(hash)
	if g == nil || g.name != key {
		s.mu.Unlock()
		return false
	}
	now := s.now()
	s.touch(g, now)
	if g.tally() == nil {
		s.speak(g, &tally{since: now.At}, 0)
	}
	g.tally().ends = now.At + lasts
	s.speak(g, g.tally(), part)
	s.serveAndUnlock(g)
	return true
}

// Wire is a replica's end of a network that a test makes: what it says of keys, and what it has heard of each of
// the others.
type Wire struct {
	Own   map[string]carry.Terms
	Heard []Heard
}

// Heard is what a replica has said, as of an instant; the zero instant for nothing.
type Heard struct {
	Sent time.Time
	Said map[string]carry.Terms
}

// Say, Keys, Sum and Bytes are those of Sums.
func (w *Wire) Say(key string, own carry.Terms) {
	if w.Own[key] = own; own == (carry.Terms{}) {
		delete(w.Own, key)
	}
}

func (w *Wire) Keys() iter.Seq[string] {
	all := maps.Clone(w.Own)
	for _, h := range w.Heard {
		maps.Copy(all, h.Said)
	}
	return maps.Keys(all)
}

func (w *Wire) Sum(key string) (sum carry.Terms, age time.Duration) {
	sum = w.Own[key]
	for _, h := range w.Heard {
		for i, n := range h.Said[key] {
			sum[i] += n
		}
		if age = max(age, time.Since(h.Sent)); h.Sent.IsZero() {
			age = math.MaxInt64
		}
	}
	return sum, age
}

func (w *Wire) Bytes() (sent, received uint64) { return 0, 0 }
