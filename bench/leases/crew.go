package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/quotient-go/quotient/bench/rig"
	"github.com/quotient-go/quotient/lease"
)

// holding is a lock as its holder believed in it. Times are since the start of the crew.
type holding struct {
	token            uint64
	called, from, to time.Duration // of Lock, of its return, and of the call of Unlock or of the loss
	unlocked         time.Duration // when Unlock had succeeded; 0: it had not
	lost             bool
}

// A crew is clients that lock and unlock one semaphore, and write down what they held.
type crew struct {
	name    string
	n, most int           // clients, and those that may hold at once
	long    time.Duration // one hold of eight: long enough for a restart
	began   time.Time
	cancel  context.CancelFunc
	workers sync.WaitGroup

	mu      sync.Mutex // guards what follows
	all     []porcupine.Operation
	holds   []holding
	got     map[int]time.Duration // when each worker got its last lock
	longest time.Duration         // that a Lock waited
	failed  int                   // calls of Lock and Unlock that did
}

// A trial is crews that work while something strikes.
type trial struct {
	crews    []*crew
	client   func() *lease.Client
	times    int
	strike   func(i int) (at time.Time, err error)
	survives time.Duration // so long after a strike a lease that was held has been restored
	beyond   func() int    // locks that may be held beyond the maximum, since restores report them
}

// run plays a trial, and adds a row and verdicts for each crew.
func (t trial) run(ctx context.Context, seed int, s *rig.Section) error {
	s.Header = []string{"semaphore", "maximum", "locks taken", "restored and held on", "lost by their holder",
		"calls that failed", "longest wait"}
	for i, c := range t.crews {
		c.hire(ctx, seed+i, t.client)
		defer c.cancel()
	}
	var struck []time.Time
	for i := range t.times {
		at, err := t.strike(i)
		if err := errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		struck = append(struck, at)
	}
	served := make([]int, len(t.crews))
	for i, c := range t.crews {
		served[i] = c.dismiss(ctx)
	}
	var err error
	for i, c := range t.crews {
		err = errors.Join(err, c.report(s, served[i], t.beyond(), c.survived(struck, t.survives)))
	}
	return err
}

// hire starts the workers.
func (c *crew) hire(ctx context.Context, seed int, client func() *lease.Client) {
	c.began, c.got = time.Now(), map[int]time.Duration{}
	ctx, c.cancel = context.WithCancel(ctx)
	for i := range c.n {
		rng := rand.New(rand.NewPCG(uint64(seed), uint64(i)))
		c.workers.Go(func() {
			for k := client(); ctx.Err() == nil; {
				c.work(ctx, i, k, rng)
			}
		})
	}
}

func (c *crew) now() time.Duration { return time.Since(c.began) }

// work locks, holds and unlocks once.
func (c *crew) work(ctx context.Context, i int, client *lease.Client, rng *rand.Rand) {
	h := holding{called: c.now()}
	held, err := client.Lock(ctx, c.name, 1)
	h.from = c.now()
	if err == nil {
		d := time.Duration(1+rng.IntN(20)) * time.Millisecond
		if rng.IntN(8) == 0 {
			d = c.long
		}
		rig.Pause(held.Context(), d)
		h.token, h.to, h.lost = held.Token(), c.now(), held.Err() != nil
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		if err = held.Unlock(ending); err == nil {
			h.unlocked = c.now()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.longest = max(c.longest, h.from-h.called)
	if err != nil && ctx.Err() == nil && !errors.Is(err, lease.ErrLost) {
		c.failed++
	}
	if h.token != 0 {
		c.got[i], c.holds = h.from, append(c.holds, h)
		c.all = append(c.all, h.operations(i)...)
	}
}

// dismiss waits until each worker has got one more lock, and ends the workers. It returns how many did.
func (c *crew) dismiss(ctx context.Context) (served int) {
	after := c.now()
	_ = rig.Until(ctx, stuckAfter, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		served = 0
		for _, at := range c.got {
			served += asBit(at > after)
		}
		if served < c.n {
			return errors.New("not all are served yet")
		}
		return nil
	})
	c.cancel()
	c.workers.Wait()
	return served
}

// survived is how many leases were held at one of these instants, and so long after it.
func (c *crew) survived(instants []time.Time, after time.Duration) (n int) {
	for _, h := range c.holds {
		n += asBit(slices.ContainsFunc(instants, func(t time.Time) bool {
			at := t.Sub(c.began)
			return !h.lost && h.from < at && h.to > at+after
		}))
	}
	return n
}

// report adds a row and verdicts of a crew that has ended. As many locks may be held beyond the maximum as
// restores report.
func (c *crew) report(s *rig.Section, served, beyond, survived int) error {
	result, err := linearizable(holders(c.most+beyond), c.all)
	lost := 0
	for _, h := range c.holds {
		lost += asBit(h.lost)
	}
	s.Add(c.name, c.most, len(c.holds), survived, lost, c.failed, c.longest.Round(time.Millisecond))
	s.Verdicts = append(s.Verdicts,
		rig.Exactly(c.name+": violations, with "+fmt.Sprint(beyond)+" more that restores report",
			asBit(result == porcupine.Illegal), 0),
		rig.Exactly(c.name+": unknown", asBit(result == porcupine.Unknown), 0),
		rig.Exactly(c.name+": clients that got a lock after the last start", served, c.n),
		rig.AtLeast(c.name+": leases that were restored and held on", float64(survived), 1, ""))
	return err
}
