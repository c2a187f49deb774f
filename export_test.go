package quotient

import (
	"iter"
	"maps"
	"math"
	"time"

	"github.com/quotient-go/quotient/internal/inside"
)

// WithPhase fixes which sparse windows are a replica's own while it knows no ordinal.
func WithPhase(phase int64) Option { return fix(func(c *inside.Chance) { c.Phase = phase }) }

// WithWallClock sets the wall clock of a limiter, and nothing else of its time.
func WithWallClock(wall func(time.Time) int64) Option {
	return fix(func(c *inside.Chance) { c.Wall = wall })
}

// WithMostPlans bounds how many plans a limiter can have at a time.
func WithMostPlans(n int) Option { return fix(func(c *inside.Chance) { c.Plans = n }) }

// WithHash fixes the hash of keys: with it their shards, and the seeds of their controllers.
func WithHash(hash func(key string) uint64) Option {
	return fix(func(c *inside.Chance) { c.Hash = hash })
}

// shard returns the shard of a key.
func (l *Limiter) shard(key string) *shard { return l.shardOf(l.hash(key)) }

// Wire is a replica's end of a network that a test makes: what it says of keys, and what it has heard of each of
// the others.
type Wire struct {
	Own   map[string]Terms
	Heard []Heard
}

// Heard is what a replica has said, as of an instant; the zero instant for nothing.
type Heard struct {
	Sent time.Time
	Said map[string]Terms
}

// Say, Keys, Sum and Bytes are those of Sums.
func (w *Wire) Say(key string, own Terms) {
	if w.Own[key] = own; own == (Terms{}) {
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

func (w *Wire) Sum(key string) (sum Terms, age time.Duration) {
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
