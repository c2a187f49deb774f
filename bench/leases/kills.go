package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/quotient-go/quotient/bench/rig"
	"github.com/quotient-go/quotient/lease"
)

// Settings of kills. Clients restore within the grace time.
const (
	killGrace   = 600 * time.Millisecond
	killExpires = 2 * time.Second
	stuckAfter  = 30 * time.Second
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

// hire starts n workers.
func hire(ctx context.Context, c *crew, seed int, client func() *lease.Client) *crew {
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
	return c
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
		pause(held.Context(), d)
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
func (c *crew) dismiss(ctx context.Context, within time.Duration) (served int, err error) {
	after := c.now()
	_ = rig.Until(ctx, within, func() error {
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
	ended := make(chan struct{})
	go func() {
		c.workers.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return served, nil
	case <-time.After(stuckAfter):
		return served, fmt.Errorf("%s: a client is stuck", c.name)
	}
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

// crewHeader is that of the table of crews.
var crewHeader = []string{"semaphore", "maximum", "locks taken", "restored and held on",
	"lost by their holder", "calls that failed", "longest wait"}

// manyKills kills the server again and again while clients work.
func (b *bench) manyKills(ctx context.Context) (s rig.Section, err error) {
	port, err := rig.FreePort()
	if err != nil {
		return s, err
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	defer transport.CloseIdleConnections()
	client := func() *lease.Client {
		return &lease.Client{URLs: []string{"http://" + rig.At(port)}, ExpiresIn: killExpires,
			HTTP: &http.Client{Transport: transport}, BlockFor: 300 * time.Millisecond, Timeout: time.Second}
	}
	flags := []string{"-s", "one=1", "-s", "some=3", "--grace", fmt.Sprintf("%dms", killGrace.Milliseconds())}
	p, err := b.leases(ctx, port, flags...)
	if err != nil {
		return s, err
	}
	one := hire(ctx, &crew{name: "one", n: 12, most: 1, long: 2 * killGrace}, b.seed, client)
	some := hire(ctx, &crew{name: "some", n: 12, most: 3, long: 2 * killGrace}, b.seed+1, client)
	rng := rand.New(rand.NewPCG(uint64(b.seed), 17))
	var kills []time.Time
	beyond := 0
	for len(kills) < b.kills && ctx.Err() == nil && err == nil {
		pause(ctx, killGrace+time.Duration(rng.Int64N(int64(killGrace))))
		kills = append(kills, time.Now())
		err = p.Kill()
		beyond += beyondIn(p)
		if rng.IntN(10) == 0 {
			pause(ctx, killGrace) // the holders lose their leases
		}
		if err == nil {
			p, err = b.leases(ctx, port, flags...)
		}
	}
	if err != nil {
		one.cancel()
		some.cancel()
		return s, err
	}
	s = rig.Section{Title: "Kills", Note: fmt.Sprintf(`
quotient leases is killed %d times and started again under load: 12 clients (lease.Client) lock a semaphore of
1, as many one of 3. The grace time is %v, leases last %v. Some starts come so late that holders give up. Each
holder writes down from when to when it believed in its lease; porcupine looks for an order in which no lock
begins beyond the maximum, and tokens rise.`, len(kills), killGrace, killExpires)}
	s.Header = crewHeader
	served := map[*crew]int{}
	for _, c := range []*crew{one, some} {
		var err1 error
		served[c], err1 = c.dismiss(ctx, stuckAfter)
		err = errors.Join(err, err1)
	}
	beyond += beyondIn(p)
	for _, c := range []*crew{one, some} {
		err = errors.Join(err, c.report(&s, served[c], beyond, c.survived(kills, killGrace/2)))
	}
	return s, errors.Join(err, p.Stop())
}

// beyondIn is how many restores beyond the maximum a server has reported.
func beyondIn(p *rig.Process) int { return strings.Count(p.Said(), "restored beyond the maximum") }

// pause waits for a while, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
