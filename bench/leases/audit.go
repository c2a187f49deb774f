package main

import (
	"fmt"
	"time"

	"github.com/quotient-go/quotient/lease"
)

// An audit looks at a table after every step. More than the maximum may be held only after a restore or a
// lower maximum, and then only a restore may add to it.
type audit struct {
	acquired map[string]int64
	looks    int
	beyond   int // looks at which more than the maximum was held
	totals   lease.Totals
	seen     map[string]lease.Totals
}

func (a *audit) restarted() {
	a.acquired = map[string]int64{}
	for _, t := range a.seen {
		a.totals.Granted += t.Granted
		a.totals.Released += t.Released
		a.totals.Expired += t.Expired
		a.totals.Broken += t.Broken
		a.totals.Restored += t.Restored
		a.totals.Beyond += t.Beyond
	}
	a.seen = map[string]lease.Totals{}
}

func (a *audit) look(t table, now time.Time, restored bool) error {
	a.looks++
	for _, s := range t.Stats(now) {
		held, pending, _ := t.Locks(s.Name, 1000, now)
		sum, waits := int64(0), int64(0)
		for _, l := range held {
			sum += l.Count
		}
		for _, l := range pending {
			waits += l.Count
		}
		before := a.acquired[s.Name]
		a.acquired[s.Name], a.seen[s.Name] = sum, s.Totals
		if sum > s.Max {
			a.beyond++
		}
		switch {
		case sum != s.Acquired || waits != s.Pending || len(held) != s.Holders || len(pending) != s.Waiters:
			return fmt.Errorf("%s: %d held and %d pending in all, its figures say %d and %d", s.Name, sum, waits,
				s.Acquired, s.Pending)
		case sum > s.Max && sum > before && !restored:
			return fmt.Errorf("%s: %d held after %d, its maximum is %d", s.Name, sum, before, s.Max)
		}
	}
	return nil
}
