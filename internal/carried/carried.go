// Package carried is a fleet for tests, of which one replica is real. The others need nothing of any key, so
// that the real one borrows what it wants.
package carried

import (
	"context"
	"errors"
	"iter"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/carry"
	"github.com/quotient-go/quotient/internal/fairshare"
	"github.com/quotient-go/quotient/internal/inside"
)

// DemandOf is what a limiter's Stats tell admin and metrics of the reports on keys.
func DemandOf(s quotient.Stats) inside.Demand {
	return inside.MoreOf.(func(*quotient.Stats) *inside.More)(&s).Demand
}

// Source is the carry.Carrier of the real replica. Its fields but for Replicas and Every may be left out.
// They must not change while Watch runs.
type Source struct {
	Replicas int           // with the real one: 2 or more
	Every    time.Duration // from one turn to the next
	Others   carry.Terms   // what the limiters of the others have done together, in the order of quotient.FleetStats
	Age      time.Duration // of all reports, until Silence

	mu     sync.Mutex
	silent bool
	turns  map[string]func(carry.Sums)
	turned chan struct{}
	sent   uint64
}

// Turned is closed when a turn has been called.
func (s *Source) Turned() <-chan struct{} { s.mu.Lock(); defer s.mu.Unlock(); return s.first() }

// first is the channel of Turned. Call with s.mu held.
func (s *Source) first() chan struct{} {
	if s.turned == nil {
		s.turned = make(chan struct{})
	}
	return s.turned
}

// Silence has all reports be missing from now on.
func (s *Source) Silence() { s.mu.Lock(); defer s.mu.Unlock(); s.silent = true }

// Watch reports the pool once, and then calls each turn in each interval.
func (s *Source) Watch(ctx context.Context, report func(quotient.Pool, error)) error {
	report(quotient.Pool{Replicas: s.Replicas}, nil)
	tick := time.NewTicker(s.Every)
	defer tick.Stop()
	own := make(map[string]sums)
	for {
		s.mu.Lock()
		maps.DeleteFunc(own, func(name string, _ sums) bool { return s.turns[name] == nil })
		for name, turn := range s.turns {
			if own[name] == nil {
				own[name] = make(sums)
			}
			turn(said{own[name], s})
			if s.sent += 100; s.sent == 100 {
				close(s.first())
			}
		}
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// Carry is that of carry.Carrier.
func (s *Source) Carry(name string, turn func(carry.Sums)) (stop func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.turns[name] != nil {
		return nil, errors.New("carried: " + name + ": it is in use")
	}
	if s.turns == nil {
		s.turns = make(map[string]func(carry.Sums))
	}
	s.turns[name] = turn
	return func() { s.mu.Lock(); defer s.mu.Unlock(); delete(s.turns, name) }, nil
}

// sums are what the real replica says, by text.
type sums map[string]carry.Terms

// said is what all replicas say, in one turn.
type said struct {
	own sums
	*Source
}

// Say is that of carry.Sums.
func (t said) Say(text string, own carry.Terms) {
	if t.own[text] = own; own == (carry.Terms{}) {
		delete(t.own, text)
	}
}

// Keys is that of carry.Sums.
func (t said) Keys() iter.Seq[string] { return slices.Values(slices.Collect(maps.Keys(t.own))) }

// Sum is that of carry.Sums. The totals are the text that is not of a key.
func (t said) Sum(text string) (sum carry.Terms, age time.Duration) {
	others := carry.Terms{fairshare.Known: int64(t.Replicas - 1)}
	if text == carry.Totals {
		others = t.Others
	}
	for i, n := range t.own[text] {
		sum[i] = n + others[i]
	}
	if t.silent {
		return sum, math.MaxInt64
	}
	return sum, t.Age
}

// Bytes is that of carry.Sums: 100 sent by each turn before, and three times as many received.
func (t said) Bytes() (sent, received uint64) { return t.sent, 3 * t.sent }
