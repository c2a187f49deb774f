package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"
)

const throughputConns = 32

// plenty is a file whose limit is out of reach.
const plenty = endpoints + `
[[proxy.rules]]
pattern = "/"
limiter = "paths"
[limiters.paths]
rates = [{ events = 10000000, per = "1m", aligned = true }]
in-flight = 100000
`

// A contender is one proxy and what it did in each round.
type contender struct {
	name     string
	rate     []float64
	p50, p99 []time.Duration
	cpu      []float64 // µs of processor time of its processes, a request
	keys     int       // distinct ones, the fewest of a round
	asked    int
}

// raced is what was seen of throughput.
type raced struct {
	rounds     int
	keys       int         // distinct paths
	contenders []contender // quotient first, then the bare proxy
	arrived    int         // at the upstream
	admitted   int         // by quotient's own count
	remembered int         // keys, by quotient
}

// throughput lets all proxies work in turn, in another order each round.
func (b *bench) throughput(ctx context.Context) (section, error) {
	r, err := b.race(ctx)
	return r.section(), err
}

func (b *bench) race(ctx context.Context) (r raced, err error) {
	var arrived atomic.Int64
	u, err := serveUpstream(func([]byte) { arrived.Add(1) })
	if err != nil {
		return r, err
	}
	defer u.close()
	servers, err := b.contenders(ctx, u)
	defer func() { err = errors.Join(err, endAll(servers)) }()
	if err != nil {
		return r, err
	}
	for _, s := range servers {
		r.contenders = append(r.contenders, contender{name: s.name})
	}
	for round := -1; round < b.rounds; round++ { // the first one warms up
		for _, i := range rand.Perm(len(servers)) {
			if err := r.contenders[i].play(ctx, servers[i], b, round >= 0); err != nil {
				return r, err
			}
		}
	}
	state, err := servers[0].admin.Limiter(ctx, "paths")
	r.rounds, r.keys, r.arrived = b.rounds, b.keys, int(arrived.Load())
	r.admitted, r.remembered = int(state.Admitted), state.Keys
	return r, err
}

// contenders starts all proxies.
func (b *bench) contenders(ctx context.Context, u *upstream) (all []*server, err error) {
	for _, start := range []func() (*server, error){
		func() (*server, error) { return b.startQuotient(ctx, "quotient proxy", plenty, u) },
		func() (*server, error) { return bareProxy(ctx, u) },
		func() (*server, error) { return nginxLimiter(ctx, u) },
		func() (*server, error) { return haproxyLimiter(ctx, u) },
	} {
		s, err := start()
		if err != nil {
			return all, err
		}
		all = append(all, s)
	}
	return all, nil
}

func endAll(servers []*server) (err error) {
	for _, s := range servers {
		err = errors.Join(err, s.end())
	}
	return err
}

// play is one slice of a contender. A refusal or a lost request is an error: something else was measured
// then.
func (c *contender) play(ctx context.Context, s *server, b *bench, counts bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, b.slice)
	defer cancel()
	before, err1 := cpuOf(s.pid)
	got := crowd{addr: s.addr, conns: throughputConns, paths: paths("k", b.keys)}.run(ctx)
	after, err2 := cpuOf(s.pid)
	if err := errors.Join(got.all(200), err1, err2); err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	c.asked += got.asked
	if !counts {
		return nil
	}
	slices.Sort(got.took)
	c.rate, c.cpu = append(c.rate, got.rate()), append(c.cpu,
		inMicros([]time.Duration{after - before})[0]/float64(got.asked))
	c.p50, c.p99 = append(c.p50, quantile(got.took, 0.5)), append(c.p99, quantile(got.took, 0.99))
	if c.keys == 0 || got.keys < c.keys {
		c.keys = got.keys
	}
	return nil
}

func inMicros(ds []time.Duration) (vs []float64) {
	for _, d := range ds {
		vs = append(vs, float64(d)/float64(time.Microsecond))
	}
	return vs
}

// ratio is the spread of a over b, each round for itself.
func ratio(a, b []float64) spread {
	var vs []float64
	for i := range min(len(a), len(b)) {
		vs = append(vs, a[i]/b[i])
	}
	return spreadOf(vs)
}

func (r raced) section() section {
	s := section{
		title: "Throughput",
		note: fmt.Sprintf(
			"%d connections, each of which asks again as soon as it was answered, for one of %d paths; %d "+
				"rounds, in which all proxies work in turn. Medians of the rounds, with the least and the "+
				"greatest; times are in µs. Processor time is that of a proxy's processes for one request, "+
				"whatever else the machine does.",
			throughputConns, r.keys, r.rounds),
		header: []string{"proxy", "requests/s", "least to most", "p50", "p99", "p99, least to most",
			"requests/s of bare", "processor time"},
	}
	if len(r.contenders) < 2 {
		return s
	}
	ours, bare := r.contenders[0], r.contenders[1]
	asked := 0
	for _, c := range r.contenders {
		rate, p99 := spreadOf(c.rate), spreadOf(inMicros(c.p99))
		s.rows = append(s.rows, []string{c.name, number(rate.middle),
			fmt.Sprintf("%.0f to %.0f", rate.least, rate.most),
			number(spreadOf(inMicros(c.p50)).middle), number(p99.middle), fmt.Sprintf("%.0f to %.0f",
				p99.least, p99.most), number(ratio(c.rate,
				bare.rate).middle), number(spreadOf(c.cpu).middle)})
		asked += c.asked
		s.verdicts = append(s.verdicts, exactly(c.name+": distinct paths in each round", c.keys, r.keys))
	}
	speed, slow := ratio(ours.rate, bare.rate), ratio(inMicros(ours.p99), inMicros(bare.p99))
	return s.judge(
		verdict{"requests/s, at least 0.97 of the bare ReverseProxy",
			fmt.Sprintf("%.3f (%.3f to %.3f)", speed.middle, speed.least, speed.most), speed.middle >= 0.97},
		verdict{"p99, at most 1.1 of the bare ReverseProxy", fmt.Sprintf("%.3f (%.3f to %.3f)", slow.middle,
			slow.least, slow.most), slow.middle > 0 && slow.middle <= 1.1},
		exactly("requests at the upstream, as many as were sent", r.arrived, asked),
		exactly("admitted, as many as quotient proxy received", r.admitted, ours.asked),
		exactly("keys that quotient proxy remembers", r.remembered, r.keys),
	)
}

// judge adds verdicts.
func (s section) judge(vs ...verdict) section {
	s.verdicts = append(vs, s.verdicts...)
	return s
}
