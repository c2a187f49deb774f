package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/quotient-go/quotient/lease"
)

// counts are what the histories of a figure hold, so that none of them is empty praise.
type counts struct {
	mu                                   sync.Mutex
	histories, operations, looks, beyond int
	violations, unknown                  int
	kinds, refused                       map[string]int
	granted, waited, pending, lost       int
	totals                               lease.Totals
	slowest                              time.Duration
	errs                                 []error
}

// add adds a history that was checked.
func (c *counts) add(history []porcupine.Operation, result porcupine.CheckResult, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kinds == nil {
		c.kinds, c.refused = map[string]int{}, map[string]int{}
	}
	c.histories++
	c.operations += len(history)
	c.slowest = max(c.slowest, took)
	switch result {
	case porcupine.Illegal:
		c.violations++
	case porcupine.Unknown:
		c.unknown++
	}
	for _, op := range history {
		out := op.Output.(*output)
		c.kinds[in(op).kind.String()]++
		switch {
		case out.lost:
			c.lost++
		case out.err != "":
			c.refused[reason(out.err)]++
		case out.token != 0 && in(op).kind == wait:
			c.waited++
		case out.token != 0:
			c.granted++
		case in(op).kind == ask:
			c.pending++
		}
	}
}

// reason is the first words of an error.
func reason(text string) string {
	for _, known := range []string{"Lock can never", "Lock hierachy", "Lock count can only shrink"} {
		if len(text) > len(known) && text[:len(known)] == known {
			return known
		}
	}
	return text
}

// fakeTime plays histories against the table in fake time, and checks each.
func (b *bench) fakeTime(ctx context.Context) (section, error) {
	c, began := &counts{}, time.Now()
	var wg sync.WaitGroup
	work := make(chan uint64)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for seed := range work {
				if err := oneHistory(seed, b.clients, b.requests, realTable, c); err != nil {
					c.mu.Lock()
					c.errs = append(c.errs, fmt.Errorf("seed %d: %w", seed, err))
					c.mu.Unlock()
				}
			}
		})
	}
	for i := range b.histories {
		select {
		case work <- b.seed*1_000_000 + uint64(i):
		case <-ctx.Done():
		}
	}
	close(work)
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return section{}, err
	}
	s := section{title: "Histories in fake time", note: fmt.Sprintf("%d clients send %d requests each to a "+
		"lease.Table in fake time, where each request takes a while. Porcupine looks for an order of the "+
		"operations that explains all answers, by a model that shares no code with the table. Servers restart "+
		"or another takes over, answers are lost, peers expire and are restored, waits are given up, an "+
		"operator breaks locks and changes maxima. After each step the locks that are held are counted. It "+
		"took %.0f s.",
		b.clients, b.requests, time.Since(began).Seconds())}
	return c.judge(s, b.histories, b.clients*b.requests), firstErrors(c.errs)
}

// firstErrors joins at most three errors.
func firstErrors(errs []error) error { return errors.Join(errs[:min(3, len(errs))]...) }

// oneHistory plays and checks one history.
func oneHistory(seed uint64, clients, requests int, make newTable, c *counts) error {
	w, err := newWorld(seed, clients, requests, make)
	if err != nil {
		return err
	}
	err = w.play()
	result := porcupine.Illegal
	start := time.Now()
	if err == nil {
		result, err = w.rules.check(w.history)
	}
	c.add(w.history, result, time.Since(start))
	w.audit.restarted()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looks += w.audit.looks
	c.beyond += w.audit.beyond
	t := w.audit.totals
	c.totals.Expired += t.Expired
	c.totals.Beyond += t.Beyond
	return err
}

// judge makes the table and the verdicts of the histories.
func (c *counts) judge(s section, histories, least int) section {
	s.header = []string{"what", "how often"}
	row := func(what string, n int) { s.rows = append(s.rows, []string{what, fmt.Sprint(n)}) }
	row("operations", c.operations)
	for _, k := range slices.Sorted(maps.Keys(c.kinds)) {
		row("operation "+k, c.kinds[k])
	}
	row("granted at once, or repeated", c.granted)
	row("granted after a wait", c.waited)
	row("answered as pending", c.pending)
	row("answers lost", c.lost)
	for _, k := range slices.Sorted(maps.Keys(c.refused)) {
		row("refused: "+k, c.refused[k])
	}
	if c.looks > 0 {
		row("steps at which the locks were counted", c.looks)
		row("steps at which more than the maximum was held, after a restore or a lower maximum", c.beyond)
		row("locks that expired", int(c.totals.Expired))
		row("locks restored beyond the maximum", int(c.totals.Beyond))
	}
	row("longest check of a history, in ms", int(c.slowest.Milliseconds()))
	s.verdicts = append(s.verdicts,
		exactly("histories", c.histories, histories),
		verdict{fmt.Sprintf("operations, at least %d a history", least), number(float64(c.operations) /
			float64(max(c.histories, 1))), c.operations >= least*histories},
		exactly("violations", c.violations, 0),
		exactly("unknown", c.unknown, 0),
		verdict{"each kind of fault and of answer was there", fmt.Sprintf("least: %d", c.least()), c.least() > 0})
	return s
}

// least is how often the rarest was there of what a figure must hold.
func (c *counts) least() int {
	least := min(c.granted, c.waited, c.pending, c.lost, c.kinds[restart.String()], c.kinds[restore.String()],
		c.kinds[release.String()], c.refused[unknownPeer], c.refused[alreadyPending], c.refused["Lock hierachy"],
		c.refused["Lock count can only shrink"])
	if c.looks > 0 {
		least = min(least, int(c.totals.Expired), int(c.totals.Beyond), c.kinds[breakLock.String()],
			c.kinds[configure.String()])
	}
	return least
}
