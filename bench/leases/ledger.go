package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quotient-go/quotient/lease"
)

// holding is a lock as its holder believed in it.
type holding struct {
	token            uint64
	called, from, to time.Duration // since the start of the ledger; from is when Lock had returned
	lost             bool
}

// ledger is what all holders of one semaphore wrote down.
type ledger struct {
	began   time.Time
	most    int           // that may hold at once
	long    time.Duration // one hold of eight: long enough for a restart
	mu      sync.Mutex
	all     []holding
	got     map[int]time.Duration // when each worker got its last lock
	longest time.Duration         // that a Lock waited
	errs    map[string]int        // of Lock, by text
}

func newLedger(most int, long time.Duration) *ledger {
	return &ledger{began: time.Now(), most: most, long: long, got: map[int]time.Duration{},
		errs: map[string]int{}}
}

func (l *ledger) now() time.Duration { return time.Since(l.began) }

// tooMany is how often a lock was taken while as many as may hold held theirs.
func (l *ledger) tooMany() (n int) {
	type edge struct {
		at time.Duration
		by int
	}
	var edges []edge
	for _, h := range l.all {
		edges = append(edges, edge{h.from, 1}, edge{max(h.to, h.from), -1})
	}
	slices.SortFunc(edges, func(a, b edge) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by))
	})
	held := 0
	for _, e := range edges {
		held += e.by
		if e.by > 0 && held > l.most {
			n++
		}
	}
	return n
}

// fallen is how often a lock that was surely granted after another has no greater token. Where one may hold,
// that is a lock that began after another's end. Otherwise it is one whose Lock was called after another's had
// returned: a lock that was granted early may be noticed late.
func (l *ledger) fallen() (n int) {
	start := func(h holding) time.Duration { return h.called }
	end := func(h holding) time.Duration { return h.from }
	if l.most == 1 {
		start, end = end, func(h holding) time.Duration { return h.to }
	}
	starts, ends := slices.Clone(l.all), slices.Clone(l.all)
	slices.SortFunc(starts, func(a, b holding) int { return cmp.Compare(start(a), start(b)) })
	slices.SortFunc(ends, func(a, b holding) int { return cmp.Compare(end(a), end(b)) })
	newest, next := uint64(0), 0
	for _, h := range starts {
		for ; next < len(ends) && end(ends[next]) < start(h); next++ {
			newest = max(newest, ends[next].token)
		}
		n += asBit(h.token <= newest)
	}
	return n
}

// lost is how many leases their holders lost.
func (l *ledger) lost() (n int) {
	for _, h := range l.all {
		n += asBit(h.lost)
	}
	return n
}

// survived is how many leases were held at one of these instants, and so long after it.
func (l *ledger) survived(instants []time.Time, after time.Duration) (n int) {
	for _, h := range l.all {
		for _, t := range instants {
			at := t.Sub(l.began)
			n += asBit(!h.lost && h.from < at && h.to > at+after)
		}
	}
	return n
}

// worker locks and unlocks until ctx ends.
func (l *ledger) worker(ctx context.Context, i int, c *lease.Client, name string, rng *rand.Rand) {
	for ctx.Err() == nil {
		called := l.now()
		held, err := c.Lock(ctx, name, 1)
		from := l.now()
		l.mu.Lock()
		l.longest = max(l.longest, from-called)
		if err != nil && ctx.Err() == nil {
			l.errs[err.Error()]++
		}
		l.mu.Unlock()
		if err != nil {
			continue
		}
		d := time.Duration(1+rng.IntN(20)) * time.Millisecond
		if rng.IntN(8) == 0 {
			d = l.long
		}
		h := l.hold(held, d)
		h.called, h.from = called, from
		l.mu.Lock()
		l.all = append(l.all, h)
		l.got[i] = from
		l.mu.Unlock()
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		if err := held.Unlock(ending); err != nil && !errors.Is(err, lease.ErrLost) {
			l.mu.Lock()
			l.errs[err.Error()]++
			l.mu.Unlock()
		}
		cancel()
	}
}

// hold holds a lease for a while, or until it is lost.
func (l *ledger) hold(held *lease.Lease, d time.Duration) holding {
	h := holding{token: held.Token()}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		h.to = l.now()
		h.lost = held.Err() != nil
	case <-held.Lost():
		h.to, h.lost = l.now(), true
	}
	return h
}

// crew is clients that lock and unlock.
type crew struct {
	*ledger
	n      int
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// hire starts n workers that share one semaphore.
func (l *ledger) hire(
	ctx context.Context, n int, name string, seed uint64, client func(i int) *lease.Client,
) *crew {
	c := &crew{ledger: l, n: n}
	ctx, c.cancel = context.WithCancel(ctx)
	for i := range n {
		c.wg.Go(func() { l.worker(ctx, i, client(i), name, rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
	return c
}

// served waits until each worker got a lock after an instant, and returns how many did within a time.
func (c *crew) served(ctx context.Context, after, within time.Duration) (n int) {
	_ = until(ctx, within, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		n = 0
		for _, at := range c.got {
			n += asBit(at > after)
		}
		if n < c.n {
			return fmt.Errorf("%d of %d", n, c.n)
		}
		return nil
	})
	return n
}

// dismiss ends the workers, and reports whether all ended in time.
func (c *crew) dismiss(within time.Duration) bool {
	c.cancel()
	ended := make(chan struct{})
	go func() {
		c.wg.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return true
	case <-time.After(within):
		return false
	}
}

// cable is a network that can be cut: requests then get no answer, and answers are lost.
type cable struct {
	http.Transport
	cut  atomic.Bool
	last atomic.Int64 // when the last request that renewed a lease was sent, in nanoseconds since the epoch
}

// RoundTrip sends a request unless the cable is cut.
func (c *cable) RoundTrip(r *http.Request) (*http.Response, error) {
	began := time.Now()
	if !c.cut.Load() {
		answer, err := c.Transport.RoundTrip(r)
		if err == nil && renews(r) && answer.StatusCode == http.StatusOK {
			c.last.Store(began.UnixNano())
		}
		if err != nil || !c.cut.Load() {
			return answer, err
		}
		_ = answer.Body.Close() // the answer is lost
	}
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// renews reports whether a request sets when its peer expires.
func renews(r *http.Request) bool {
	return r.Method == http.MethodPost || r.Method == http.MethodPut && strings.Count(r.URL.Path, "/") == 2
}
