package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quotient-go/quotient"
)

const (
	fleetSize  = 3
	fleetLimit = 100 // for each path in each window
	pathConns  = 200 // clients of one path: more than twice the limit
	after      = 2   // whole windows that are judged after one proxy was killed
)

// shared is a file whose limit three proxies share.
const shared = endpoints + `
[[proxy.rules]]
pattern = "/"
limiter = "paths"
[pool]
replicas = 3
[limiters.paths]
rates = [{ events = 100, per = "WINDOW", aligned = true }]
in-flight = 100
`

// roundRobin is nginx before the proxies. A request that a proxy has not answered when it dies goes to the
// next one.
const roundRobin = `
  upstream up { SERVERS keepalive 1024; keepalive_requests 100000000; }
  server {
    listen LISTEN backlog=4096;
    location / { proxy_pass http://up; proxy_read_timeout 1h; }
  }
`

// A trio is three proxies behind nginx, their clients and their upstream.
type trio struct {
	ordinals bool
	paths    []string
	ledger   *ledger
	up       *upstream
	nginx    *server
	proxies  []*server
	tallies  []tally
	seen     seen
}

// shifts are what two fleets were seen to do, one without ordinals and one with them.
type shifts []*trio

// threeProxies runs a fleet without ordinals and one with them at the same time, and kills a proxy of each.
func (b *bench) threeProxies(ctx context.Context) (section, error) {
	fleets, err := b.shift(ctx)
	return fleets.section(b.window), err
}

func (b *bench) shift(ctx context.Context) (shifts, error) {
	all := paths("f", b.paths)
	fleets := shifts{{paths: all}, {paths: all, ordinals: true}}
	errs := make([]error, len(fleets))
	var both sync.WaitGroup
	for i, f := range fleets {
		both.Go(func() { errs[i] = f.run(ctx, b) })
	}
	both.Wait()
	return fleets, errors.Join(errs...)
}

func (f *trio) run(ctx context.Context, b *bench) (err error) {
	f.ledger = newLedger(b.window)
	if f.up, err = serveUpstream(f.ledger.arrive); err != nil {
		return err
	}
	defer f.up.close()
	defer func() { err = errors.Join(err, f.end()) }()
	if err := f.start(ctx, b); err != nil {
		return err
	}
	if err := f.midst(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	crowds := make(chan seen)
	go func() { crowds <- f.demand(ctx) }()
	err = f.live(ctx, b.windows)
	cancel()
	f.seen = <-crowds
	return err
}

// midst waits until a window is neither new nor half over. The first request is then admitted and has
// arrived before its end.
func (f *trio) midst(ctx context.Context) error {
	now := time.Now()
	begin := f.ledger.start(f.ledger.index(now))
	if now.Sub(begin) > f.ledger.window/2 {
		begin = begin.Add(f.ledger.window)
	}
	return sleepUntil(ctx, begin.Add(f.ledger.window/10))
}

// start starts the proxies, and nginx before them.
func (f *trio) start(ctx context.Context, b *bench) (err error) {
	text := strings.ReplaceAll(shared, "WINDOW", b.window.String())
	var servers strings.Builder
	for i := range fleetSize {
		var args []string
		if f.ordinals {
			args = []string{"--ordinal", fmt.Sprint(i + 1)}
		}
		s, err := b.startQuotient(ctx, fmt.Sprintf("proxy %d", i+1), text, f.up, args...)
		if err != nil {
			return err
		}
		f.proxies = append(f.proxies, s)
		fmt.Fprintf(&servers, "server %s; ", s.addr)
	}
	conf := strings.ReplaceAll(roundRobin, "SERVERS", servers.String())
	f.nginx, err = startNginx(ctx, "nginx, round robin", 1, conf)
	return err
}

func (f *trio) end() (err error) {
	if f.nginx != nil {
		err = f.nginx.end()
	}
	return errors.Join(err, endAll(f.proxies))
}

// demand is more than the limit, for each path.
func (f *trio) demand(ctx context.Context) (sum seen) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, path := range f.paths {
		all.Go(func() {
			s := crowd{addr: f.nginx.addr, conns: pathConns, paths: []string{path}, abandon: true}.run(ctx)
			mu.Lock()
			defer mu.Unlock()
			sum.add(s)
		})
	}
	all.Wait()
	return sum
}

// live waits for the windows to pass, kills a proxy in the middle of one, and tallies.
func (f *trio) live(ctx context.Context, whole int) error {
	first := f.ledger.index(time.Now())
	kill := first + int64(whole) + 1
	if err := sleepUntil(ctx, f.ledger.start(kill).Add(f.ledger.window/2)); err != nil {
		return err
	}
	if err := f.shrink(ctx); err != nil {
		return err
	}
	if err := sleepUntil(ctx, f.ledger.start(kill+after+1)); err != nil {
		return err
	}
	exact := fleetLimit
	if !f.ordinals {
		exact = fleetLimit / fleetSize * fleetSize
	}
	f.tally("the first, which had begun", first, 0)
	for i := range whole {
		f.tally(fmt.Sprintf("whole window %d", i+1), first+1+int64(i), exact)
	}
	f.tally("one is killed", kill, 0)
	for i := range after {
		f.tally(fmt.Sprintf("two are left, window %d", i+1), kill+1+int64(i), fleetLimit)
	}
	return nil
}

func (f *trio) tally(name string, w int64, want int) {
	t := f.ledger.tally(name, w, f.paths)
	t.want, t.atMost = want, fleetLimit
	f.tallies = append(f.tallies, t)
}

// shrink kills the last proxy and has the others know it.
func (f *trio) shrink(ctx context.Context) error {
	last := len(f.proxies) - 1
	if err := f.proxies[last].kill(); err != nil {
		return err
	}
	if err := f.proxies[last].forget(); err != nil {
		return err
	}
	f.proxies = f.proxies[:last]
	for i, s := range f.proxies {
		pool := quotient.Pool{Replicas: last}
		if f.ordinals {
			pool.Ordinal = i + 1
		}
		if _, err := s.admin.SetReplicas(ctx, "", pool, 0); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

func sleepUntil(ctx context.Context, t time.Time) error {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (fs shifts) section(window time.Duration) section {
	paths := 0
	if len(fs) > 0 {
		paths = len(fs[0].paths)
	}
	s := section{
		title: "A fleet",
		note: fmt.Sprintf(
			"%d proxies behind nginx's round robin, %d a window of %v for each of %d paths, and %d "+
				"clients a path that always want more. In the middle of a window one proxy is killed, and "+
				"the others get to know that there are two. The upstream counts what arrives, by its own "+
				"clock: windows are comparable since no request arrives near the end of one.",
			fleetSize, fleetLimit, window, paths, pathConns),
		header: []string{"ordinals", "window", "least and most for a path", "goal",
			"latest arrival in the window"},
	}
	for _, f := range fs {
		name := "without"
		if f.ordinals {
			name = "with"
		}
		for _, t := range f.tallies {
			goal := fmt.Sprintf("at most %d", t.atMost)
			if t.want > 0 {
				goal = fmt.Sprintf("exactly %d", t.want)
				s.verdicts = append(s.verdicts, t.exact(name))
			} else {
				s.verdicts = append(s.verdicts, t.never(name))
			}
			s.rows = append(s.rows, []string{name, t.name, fmt.Sprintf("%d and %d", t.least, t.most), goal,
				fmt.Sprintf("%.3f s", t.latest.Seconds())})
		}
		s.verdicts = append(s.verdicts, answered(name+" ordinals", f.seen, 200))
	}
	return s
}

// exact is the goal that each path got what it must get, and that the count is of one window.
func (t tally) exact(name string) verdict {
	return verdict{
		fmt.Sprintf("%s ordinals, %s: exactly %d for each path, none in the last tenth", name, t.name,
			t.want),
		fmt.Sprintf("%d to %d, until %.3f s", t.least, t.most, t.latest.Seconds()),
		t.least == t.want && t.most == t.want && !t.late(),
	}
}

// late reports whether requests arrived in the last tenth of a window: others may then have arrived after its
// end.
func (t tally) late() bool { return t.latest > t.window*9/10 }

// late reports whether a fleet has such a window.
func (fs shifts) late() bool {
	for _, f := range fs {
		if slices.ContainsFunc(f.tallies, tally.late) {
			return true
		}
	}
	return false
}

// never is the goal that no path got more than the limit.
func (t tally) never(name string) verdict {
	return verdict{fmt.Sprintf("%s ordinals, %s: never more than %d", name, t.name, t.atMost),
		fmt.Sprint(t.most), t.most <= t.atMost}
}
