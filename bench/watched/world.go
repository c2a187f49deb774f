package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/httplimit"
	"github.com/quotient-go/quotient/metrics"
	"github.com/quotient-go/quotient/policy"
)

// world is the process that is watched: three limiters, and the calls to them.
type world struct {
	limiters  quotient.Registry
	collector *metrics.Collector
	api       http.Handler      // behind httplimit.Middleware; remembers all keys
	small     *quotient.Limiter // asked for all keys, with room for a few of them
	upstream  *quotient.Limiter // adaptive, twenty keys
	names     []string
	seen      []atomic.Bool // by key
	asks      atomic.Uint64
}

const (
	keyHeader     = "X-Tenant"
	upstreams     = 20
	batch         = 500                  // calls between two breaths of a worker
	breath        = 5 * time.Millisecond // so a worker asks at most 100,000 times a second and leaves room on a small machine
	workers       = 2
	roomyMaxKeys  = 1_250_000 // with room for uneven shards
	smallFraction = 16        // the small limiter remembers a sixteenth of the keys
)

func newWorld(keys int) (*world, error) {
	w := &world{names: make([]string, keys), seen: make([]atomic.Bool, keys)}
	for i := range w.names {
		w.names[i] = fmt.Sprintf("tenant-%07d", i)
	}
	w.collector = metrics.New(&w.limiters)
	// An event takes longer to come back than a sweep over all keys: none of them is idle, all are remembered.
	limit := quotient.Rates(quotient.Rate{Name: "hour", Events: 10, Per: time.Hour, Burst: 10})
	api, err := w.limiters.Limiter("api", limit, quotient.MaxKeys(roomyMaxKeys), w.collector.Observe())
	small, err2 := w.limiters.Limiter("small", quotient.Limit{InFlight: 4, Rates: []quotient.Rate{quotient.PerSecond(100)}},
		quotient.MaxKeys(keys/smallFraction), w.collector.Observe())
	up, err3 := w.limiters.Limiter("upstream", quotient.Rates(quotient.PerSecond(10_000)),
		quotient.Policy(policy.AIMD{}), quotient.BeyondShare(), quotient.MaxWait(time.Second), w.collector.Observe())
	if err := errors.Join(err, err2, err3); err != nil {
		return nil, err
	}
	w.small, w.upstream = small, up
	w.api = httplimit.Middleware(api, httplimit.Header(keyHeader))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	return w, nil
}

// fill calls every limiter for each of its keys once, before the measurement begins. A map that grows is no
// leak, and the least learned rate is a series only once there is one.
func (w *world) fill() {
	a := newAsker(w)
	for i := range w.names {
		a.ask(i)
	}
	for _, key := range w.names[:upstreams] {
		w.callUpstream(context.Background(), key, policy.Success)
	}
}

// start lets the workers ask until the context ends.
func (w *world) start(ctx context.Context) *sync.WaitGroup {
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() { w.work(ctx, uint64(i)) })
	}
	return &wg
}

// work asks half of the time for the keys in a row, and half for popular ones; the upstream answers one call in
// fifty with 429.
func (w *world) work(ctx context.Context, id uint64) {
	random := rand.New(rand.NewPCG(id, 1))
	zipf := rand.NewZipf(random, 1.1, 1, uint64(len(w.names)-1))
	a, next := newAsker(w), int(id)*len(w.names)/workers
	tick := time.NewTicker(breath)
	defer tick.Stop()
	for ctx.Err() == nil {
		for range batch / 2 {
			a.ask(next)
			a.ask(int(zipf.Uint64()))
			next = (next + 1) % len(w.names)
		}
		outcome := policy.Success
		if random.IntN(50) == 0 {
			outcome = policy.Throttled
		}
		w.callUpstream(ctx, w.names[random.IntN(upstreams)], outcome)
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// callUpstream is one call of an upstream that answers with the outcome.
func (w *world) callUpstream(ctx context.Context, key string, outcome policy.Outcome) {
	p, err := w.upstream.Acquire(ctx, key)
	if err != nil {
		return // refused, or the end
	}
	p.Done(policy.Feedback{Outcome: outcome})
	w.asks.Add(1)
}

// asker is one goroutine's request and the writer of its answers, which are used again and again: the load is not what is measured.
type asker struct {
	w   *world
	req *http.Request
	out *discard
}

func newAsker(w *world) *asker {
	req, _ := http.NewRequest(http.MethodGet, "http://127.0.0.1/", nil)
	return &asker{w, req, &discard{header: http.Header{}}}
}

// ask asks both large limiters for a key.
func (a *asker) ask(i int) {
	name := a.w.names[i]
	a.w.seen[i].Store(true)
	a.req.Header[keyHeader] = []string{name}
	clear(a.out.header)
	a.w.api.ServeHTTP(a.out, a.req)
	if p, d := a.w.small.TryAcquire(name); d.OK {
		p.Release()
	}
	a.w.asks.Add(2)
}

// distinct is how many keys have been asked for.
func (w *world) distinct() (n int) {
	for i := range w.seen {
		if w.seen[i].Load() {
			n++
		}
	}
	return n
}

// remembered is how many keys the limiter has that remembers all.
func (w *world) remembered() int {
	l, ok := w.limiters.Get("api")
	if !ok {
		return 0
	}
	return l.Stats().Keys
}

// discard is a ResponseWriter that keeps nothing.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(int)             {}
