package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quotient-go/quotient"
)

const (
	hostileConns = 8
	ordinaryKeys = 1000
	goodPaths    = 20
	goodLimit    = 8                // for each path in each window
	goodWindow   = 10 * time.Second // in which a good path is asked for 10 times
	hostileKeys  = 65_536           // max-keys
	slack        = 64               // MiB
)

// bounded is a file that bounds the keys.
const bounded = endpoints + `
[[proxy.rules]]
pattern = "/k/"
limiter = "known"
[[proxy.rules]]
pattern = "/"
limiter = "paths"
[limiters.paths]
rates = [{ events = 8, per = "10s", aligned = true }]
mode = "refuse"
max-keys = 65536
[limiters.known]
rates = [{ events = 10000000, per = "1m", aligned = true }]
`

// attacked is what was seen of hostile paths.
type attacked struct {
	asked       int       // hostile paths
	distinct    int       // that were answered
	rate        float64   // of hostile requests
	quiet       quantiles // of requests for good paths without other load
	ordinary    quantiles // beside load for paths that are known
	bad         quantiles // beside hostile paths
	windows     int       // that were whole
	least, most int       // requests for a good path in a whole window
	before      memory
	own, peak   int64 // of the memory, while hostile paths came
	bound       int64 // bytes of as many keys as there may be
	keys        int
	evicted     int
}

// hostilePaths asks for distinct paths as fast as it can, and for good ones each second beside.
func (b *bench) hostilePaths(ctx context.Context) (section, error) {
	r, err := b.attack(ctx)
	return r.section(), err
}

func (b *bench) attack(ctx context.Context) (r attacked, err error) {
	book := newLedger(goodWindow)
	u, err := serveUpstream(func(target []byte) {
		if target[1] == 'g' {
			book.arrive(target)
		}
	})
	if err != nil {
		return r, err
	}
	defer u.close()
	s, err := b.startQuotient(ctx, "quotient proxy", bounded, u)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.end()) }()
	began := time.Now()
	idle := func(ctx context.Context) { <-ctx.Done() }
	if r.quiet, err = beside(ctx, s, b.quiet, idle); err != nil {
		return r, err
	}
	known := crowd{addr: s.addr, conns: hostileConns, paths: paths("k", ordinaryKeys)}
	if r.ordinary, err = beside(ctx, s, b.quiet, func(ctx context.Context) { known.run(ctx) }); err != nil {
		return r, err
	}
	if r.before, err = memoryOf(s.pid); err != nil {
		return r, err
	}
	flood := func(ctx context.Context) { r.flood(ctx, s, b.hostile) }
	if r.bad, err = beside(ctx, s, 2*patience, flood); err != nil {
		return r, err
	}
	r.judgeWindows(book, began, time.Now())
	r.bound = bytesOf(hostileKeys)
	state, err := s.admin.Limiter(ctx, "paths")
	r.keys, r.evicted = state.Keys, int(state.Evicted)
	return r, err
}

// hostilePath is a path that is asked for once.
func hostilePath(i int64) string { return fmt.Sprintf("/h/%016x", i*0x9e3779b1) }

// bytesOf measures what so many keys take in a limiter like that of the file.
func bytesOf(keys int) int64 {
	live := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	limit := quotient.Rates(quotient.Rate{Name: "rate", Events: goodLimit, Per: goodWindow, Aligned: true})
	before := live()
	l := quotient.Must(quotient.New(limit, quotient.MaxKeys(keys)))
	for i := range keys {
		l.Allow(hostilePath(int64(i)))
	}
	is := live() - before
	runtime.KeepAlive(l)
	return is
}

// flood asks once for each of so many distinct paths.
func (r *attacked) flood(ctx context.Context, s *server, n int) {
	var next, done atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	watching, cancel := context.WithCancel(ctx)
	all.Go(func() {
		for sleepUntil(watching, time.Now().Add(50*time.Millisecond)) == nil {
			if m, err := memoryOf(s.pid); err == nil {
				r.own, r.peak = max(r.own, m.own), m.most
			}
		}
	})
	var floods sync.WaitGroup
	for range hostileConns {
		floods.Go(func() {
			c := client{addr: s.addr}
			defer c.close()
			for i := next.Add(1); i <= int64(n) && ctx.Err() == nil; i = next.Add(1) {
				if _, err := c.ask(hostilePath(i)); err == nil {
					done.Add(1)
				}
			}
		})
	}
	floods.Wait()
	cancel()
	all.Wait()
	r.asked, r.distinct, r.rate = n, int(done.Load()), float64(done.Load())/time.Since(began).Seconds()
}

// beside asks for each good path once a second while a load is there, and returns how long the requests took
// that were admitted.
func beside(ctx context.Context, s *server, during time.Duration, load func(context.Context)) (
	quantiles, error,
) {
	ctx, cancel := context.WithTimeout(ctx, during)
	defer cancel()
	var mu sync.Mutex
	var took []time.Duration
	errs := make([]error, goodPaths)
	var all sync.WaitGroup
	for i, path := range paths("g", goodPaths) {
		all.Go(func() {
			mine, err := eachSecond(ctx, s.addr, path, time.Duration(i)*40*time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			took, errs[i] = append(took, mine...), err
		})
	}
	load(ctx)
	cancel()
	all.Wait()
	return quantilesOf(took), errors.Join(errs...)
}

// eachSecond asks for a path once in each second of the clock, so long after its start and a little more:
// never near the end of a window.
func eachSecond(ctx context.Context, addr, path string, late time.Duration) (
	took []time.Duration, err error,
) {
	c := client{addr: addr}
	defer c.close()
	for {
		next := time.Now().Truncate(time.Second).Add(25*time.Millisecond + late)
		if time.Until(next) <= 0 {
			next = next.Add(time.Second)
		}
		if sleepUntil(ctx, next) != nil {
			return took, nil
		}
		began := time.Now()
		status, err := c.ask(path)
		switch {
		case err != nil:
			return took, fmt.Errorf("%s: %w", path, err)
		case status == 200:
			took = append(took, time.Since(began))
		case status != 429:
			return took, fmt.Errorf("%s: status %d", path, status)
		}
	}
}

// judgeWindows counts what the upstream saw in the windows that are whole.
func (r *attacked) judgeWindows(book *ledger, began, ended time.Time) {
	for w := book.index(began) + 1; w < book.index(ended); w++ {
		t := book.tally("", w, paths("g", goodPaths))
		if r.windows == 0 || t.least < r.least {
			r.least = t.least
		}
		r.most = max(r.most, t.most)
		r.windows++
	}
}

func (r attacked) section() section {
	row := func(name string, q quantiles) []string {
		return []string{name, fmt.Sprint(q.Count), micros(q.P50), micros(q.P99)}
	}
	s := section{
		title: fmt.Sprintf("%d hostile paths", r.asked),
		note: fmt.Sprintf(
			"%d connections request distinct paths as fast as they are answered, %s a second, and %d "+
				"good paths are requested once a second each. %d of 10 are within their limit. Times are in "+
				"µs, of good requests that were admitted. max-keys is %d; %d keys were evicted. %d keys "+
				"take %s MiB in a limiter of this limit. The proxy's memory does not include its program, "+
				"which the system reads from a file. With it, it had %s MiB before and %s MiB at most.",
			hostileConns, number(r.rate), goodPaths, goodLimit, hostileKeys, r.evicted,
			hostileKeys, number(mib(r.bound)), number(mib(r.before.resident)), number(mib(r.peak))),
		header: []string{"beside", "good requests", "p50", "p99"},
		rows: [][]string{row("nothing", r.quiet),
			row(fmt.Sprintf("as many connections for %d paths", ordinaryKeys), r.ordinary),
			row("hostile paths", r.bad)},
	}
	times := func(a, b quantiles) float64 { return float64(a.P99) / float64(max(1, b.P99)) }
	return s.judge(
		atMost("memory at its most, beside its bound and 64 MiB", mib(r.own), mib(r.bound)+slack, " MiB"),
		verdict{fmt.Sprintf("a good path gets exactly %d in each whole window", goodLimit),
			fmt.Sprintf("%d to %d in %d windows", r.least, r.most, r.windows),
			r.windows > 0 && r.least == goodLimit && r.most == goodLimit},
		atMost("p99 of good paths, beside a quiet run", times(r.bad, r.quiet), 3, " x"),
		atMost("p99 of good paths, beside as much ordinary load", times(r.bad, r.ordinary), 3, " x"),
		exactly("distinct hostile paths that were answered", r.distinct, r.asked),
		atMost("keys", float64(r.keys), hostileKeys, ""),
	)
}
