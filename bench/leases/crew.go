package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/quotient-go/quotient/bench/rig"
	"github.com/quotient-go/quotient/internal/rest"
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
		rest.For(held.Context(), d)
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

// patience is how long one history may take to check. The result of a longer one is unknown.
const patience = time.Minute

// check checks one history against the model. A picture of one that is refuted stays in a file.
func (r rules) check(history []porcupine.Operation) (porcupine.CheckResult, error) {
	foresee(history)
	return linearizable(r.model(), history)
}

// pictures is the folder of the pages; that of temporary files when empty.
var pictures string

// linearizable reports whether an order of the operations explains their answers.
func linearizable(m porcupine.Model, history []porcupine.Operation) (porcupine.CheckResult, error) {
	result := porcupine.CheckOperationsTimeout(m, history, patience)
	if result == porcupine.Ok {
		return result, nil
	}
	_, info := porcupine.CheckOperationsVerbose(m, history, patience)
	f, err := os.CreateTemp(pictures, "quotient-leases-*.html")
	if err == nil {
		defer f.Close()
		err = porcupine.Visualize(m, info, f)
	}
	if err != nil {
		return result, err
	}
	const text = "%v: no order of %d operations explains their answers: %s"
	return result, fmt.Errorf(text, result, len(history), f.Name())
}

// place is where a peer has at most one lock.
type place struct {
	id        uint64
	semaphore int
}

func in(op porcupine.Operation) *input { return op.Input.(*input) }

// foresee gives each call the token that its lock is seen to have later, so that the model needs no guess.
func foresee(history []porcupine.Operation) {
	slices.SortFunc(history, func(a, b porcupine.Operation) int { // a call, then its wait
		return cmp.Or(cmp.Compare(a.Return, b.Return), cmp.Compare(in(a).kind, in(b).kind))
	})
	open := map[place][]porcupine.Operation{} // calls whose lock was pending when they were answered
	for _, op := range history {
		out, at := op.Output.(*output), place{in(op).id, in(op).semaphore}
		switch kind := in(op).kind; {
		case kind == ask && out.token == 0 && out.err == "" && !out.lost:
			open[at] = append(open[at], op)
		case (kind == ask || kind == wait) && out.token != 0:
			in(op).token = out.token
			for _, before := range slices.Backward(open[at]) {
				if before.Call != op.Call && disturbed(history, at.id, before.Call, op.Return) {
					break
				}
				in(before).token = out.token
			}
			delete(open, at)
		case kind == removePeer || kind == restore || out.lost || out.err == unknownPeer:
			for i := range semaphores {
				delete(open, place{at.id, i})
			}
		case kind == release && out.err == "":
			delete(open, at)
		}
	}
}

// disturbed reports whether something may have taken a peer's lock away from outside between two instants:
// the token is then not that of its next lock.
func disturbed(history []porcupine.Operation, id uint64, from, to int64) bool {
	return slices.ContainsFunc(history, func(op porcupine.Operation) bool {
		mine := in(op).kind == restart || in(op).kind == expire && in(op).id == id
		return mine && op.Return >= from && op.Call <= to
	})
}

// holder is an operation of one semaphore as those see it that lock it: a lock is taken, or is given back.
type holder struct {
	takes bool
	token uint64
}

// holders is the model of a semaphore that most may hold at once: no lock begins beyond that, and each has a
// greater token than the one before it.
func holders(most int) porcupine.Model {
	type state struct {
		held int
		last uint64
	}
	return porcupine.Model{
		Init: func() any { return state{} },
		Step: func(st, in, _ any) (bool, any) {
			s, op := st.(state), in.(holder)
			if !op.takes {
				return true, state{s.held - 1, s.last}
			}
			return s.held < most && op.token > s.last, state{s.held + 1, op.token}
		},
		DescribeOperation: func(in, _ any) string { return fmt.Sprintf("%+v", in) },
	}
}

// operations is a lock as its holder believed in it: it was granted between the call of Lock and its return, and was
// given back between the end of that belief and the answer to Unlock. Without that answer nobody knows when.
func (h holding) operations(client int) []porcupine.Operation {
	end := cmp.Or(h.unlocked, math.MaxInt64)
	return []porcupine.Operation{
		{ClientId: client, Input: holder{true, h.token}, Call: int64(h.called), Return: int64(h.from)},
		{ClientId: client, Input: holder{}, Call: int64(h.to), Return: int64(end)},
	}
}
