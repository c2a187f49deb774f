package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/quotient-go/quotient/admin"
	"github.com/quotient-go/quotient/bench/rig"
)

// pause is between an answer and the next request of a client in the overhead part.
const pause = 10 * time.Millisecond

// A contender is one proxy, and what it did in each round.
type contender struct {
	server
	rate, p50, p99, cpu []float64 // of cpu: µs of processor time of its processes, a request
	asked               int
}

type race struct {
	rounds, paths        int
	all                  []*contender // quotient first, then the bare proxy; the last may be no proxy
	arrived              int          // at the upstream
	admitted, remembered int          // requests and paths, by quotient's own count
}

// race lets all proxies work in turn, in another order each round. Direct adds the upstream without a proxy.
func (b *bench) race(ctx context.Context, pause time.Duration, direct bool) (r race, err error) {
	if err := b.build(ctx); err != nil {
		return r, err
	}
	u, err := serveUpstream()
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, u.close()) }()
	r = race{rounds: b.rounds, paths: b.paths}
	defer func() {
		for _, c := range r.all {
			err = errors.Join(err, c.end())
		}
	}()
	for _, p := range b.proxies() {
		s, err := b.launch(ctx, u, p)
		if err != nil {
			return r, fmt.Errorf("%s does not start: %w", p[0], err)
		}
		r.all = append(r.all, &contender{server: *s})
	}
	if direct {
		r.all = append(r.all, &contender{server: server{name: "no proxy", addr: u.addr}})
	}
	return r, b.play(ctx, u, &r, pause)
}

// play plays all rounds. The first one warms up.
func (b *bench) play(ctx context.Context, u *upstream, r *race, pause time.Duration) error {
	for round := range b.rounds + 1 {
		for _, i := range rand.Perm(len(r.all)) {
			c := r.all[i]
			who := crowd{addr: c.addr, paths: paths(b.paths), pause: pause}
			if err := c.play(ctx, who, b.slice, round > 0); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	client, err := admin.NewClient("http://" + r.all[0].admin)
	if err != nil {
		return err
	}
	defer client.Close()
	state, err := client.Limiter(ctx, "paths")
	r.arrived, r.admitted, r.remembered = int(u.arrived.Load()), int(state.Admitted), state.Keys
	return err
}

func (c *contender) play(ctx context.Context, who crowd, slice time.Duration, counts bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, slice)
	defer cancel()
	before, err1 := c.used()
	took, during, err := who.run(ctx)
	after, err2 := c.used()
	if err := errors.Join(err, err1, err2); err != nil {
		return err
	}
	n := len(took)
	c.asked += n
	if counts {
		c.rate = append(c.rate, float64(n)/during.Seconds())
		c.cpu = append(c.cpu, rig.Micros(after-before)/float64(n))
		c.p50 = append(c.p50, rig.Quantile(took, .5))
		c.p99 = append(c.p99, rig.Quantile(took, .99))
	}
	return nil
}

// parts are how much a proxy does where clients always want more, and what it adds where nothing is scarce.
func (b *bench) parts() []rig.Part {
	of := func(name string, pause time.Duration, direct bool, report func(race) rig.Section) rig.Part {
		return rig.Part{Name: name, Run: func(ctx context.Context) (s rig.Section, err error) {
			r, err := b.race(ctx, pause, direct)
			if err == nil {
				s = report(r)
			}
			return s, err
		}}
	}
	return []rig.Part{of("throughput", 0, false, race.throughput), of("overhead", pause, true, race.overhead)}
}

func (r race) throughput() rig.Section {
	s := rig.Section{Title: "Throughput", Note: fmt.Sprintf(`
%d connections, each of which asks again as soon as it was answered, for one of %d paths; %d rounds, in which
all proxies work in turn. Medians of the rounds, with the least and the greatest; times are in µs. A ratio is
that of one round. Processor time is that of a proxy's processes for one request.`, conns, r.paths, r.rounds)}
	s.Header = []string{"proxy", "requests/s", "of bare", "p50", "p99", "p99 of bare", "processor time"}
	ours, bare := r.all[0], r.all[1]
	for _, c := range r.all {
		s.Add(c.name, rig.SpreadOf(c.rate), rig.Ratio(c.rate, bare.rate), rig.Number(rig.SpreadOf(c.p50).Median),
			rig.SpreadOf(c.p99), rig.Ratio(c.p99, bare.p99), rig.Number(rig.SpreadOf(c.cpu).Median))
	}
	s.Verdicts = append(r.counted(),
		rig.Exactly("paths that quotient proxy remembers", r.remembered, r.paths),
		rig.AtMost("p99 beside the bare ReverseProxy", rig.Ratio(ours.p99, bare.p99).Median, 1, " x"))
	for _, c := range r.all {
		if least := leastRate[c.name]; least > 0 {
			seen := rig.Ratio(ours.rate, c.rate).Median
			s.Verdicts = append(s.Verdicts, rig.AtLeast("requests/s beside "+c.name, seen, least, " x"))
		}
	}
	return s
}

// leastRate is how many requests a second quotient proxy has to pass on beside others.
var leastRate = map[string]float64{"bare ReverseProxy": 1.25, "nginx, limit_req": .48, "Caddy, rate_limit": 2}

// counted is that nothing else was measured than what was meant.
func (r race) counted() []rig.Verdict {
	asked := 0
	for _, c := range r.all {
		asked += c.asked
	}
	return []rig.Verdict{
		rig.Exactly("requests at the upstream, as many as were sent", r.arrived, asked),
		rig.Exactly("admitted, as many as quotient proxy received", r.admitted, r.all[0].asked),
	}
}

func (r race) overhead() rig.Section {
	s := rig.Section{Title: "Overhead", Note: fmt.Sprintf(`
The same connections, each of which waits %v before it asks again. Added is the median beside no proxy at
all, in one round. Times are in µs.`, pause)}
	s.Header = []string{"proxy", "p50", "p99", "added to p50", "processor time"}
	none := r.all[len(r.all)-1]
	added := func(c *contender) rig.Spread {
		return rig.Rounds(c.p50, none.p50, func(a, b float64) float64 { return a - b })
	}
	for _, c := range r.all {
		s.Add(c.name, rig.SpreadOf(c.p50), rig.SpreadOf(c.p99), added(c), rig.Number(rig.SpreadOf(c.cpu).Median))
	}
	ours, bare := r.all[0], r.all[1]
	s.Verdicts = append(r.counted(),
		rig.AtMost("added to p50, beside the bare one", added(ours).Median/added(bare).Median, 2, " x"),
		rig.AtMost("p99 beside the bare ReverseProxy", rig.Ratio(ours.p99, bare.p99).Median, 2, " x"))
	return s
}
