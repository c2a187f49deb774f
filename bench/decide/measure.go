package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/bench/rig"
)

// A contender is one way to ask, and what came of it with each crowd in each round.
type contender struct {
	name        string
	open        opener
	of          *server // nil: in this process
	times       int     // questions that an asker asks at once; 0 is 1
	asked, over int
	by          map[crowd]*figures
}

// figures are those of the rounds, of cpu µs of processor time a question.
type figures struct{ rate, p50, p99, cpu []float64 }

// A race is contenders with the same questions.
type race struct {
	keys, rounds int
	crowds       []crowd
	all          []*contender
}

// run lets all ask in turn, in another order each round. Before, each asks about every key once.
func (r *race) run(ctx context.Context, slice time.Duration) error {
	for round := range r.rounds + 1 {
		for _, who := range r.crowds {
			for _, i := range rand.Perm(len(r.all)) {
				if err := r.all[i].play(ctx, who, r.keys, slice, round == 0); err != nil {
					return fmt.Errorf("%s: %w", r.all[i].name, err)
				}
			}
			if round == 0 {
				break
			}
		}
	}
	return nil
}

func (c *contender) play(ctx context.Context, who crowd, keys int, slice time.Duration, first bool) error {
	times, s := max(1, c.times), c.of
	if s == nil {
		s = &server{}
	}
	before, err1 := s.used()
	a, err := who.run(ctx, c.open, keys, slice, first)
	after, err2 := s.used()
	c.asked, c.over = c.asked+a.asked*times, c.over+a.over
	if err = errors.Join(err, err1, err2); err != nil || first {
		return err
	}
	if len(a.took) == 0 {
		return errors.New("no question was answered")
	}
	if c.by == nil {
		c.by = map[crowd]*figures{}
	}
	if c.by[who] == nil {
		c.by[who] = &figures{}
	}
	f, n := c.by[who], float64(len(a.took)*times)
	f.rate, f.cpu = append(f.rate, n/a.during.Seconds()), append(f.cpu, rig.Micros(after-before)/n)
	f.p50 = append(f.p50, rig.Quantile(a.took, .5)/float64(times))
	f.p99 = append(f.p99, rig.Quantile(a.took, .99)/float64(times))
	return nil
}

// admitted is that a server has admitted what was answered with OK, by its own count.
func admitted(ctx context.Context, s *server, of []*contender, limiters ...string) (v rig.Verdict, err error) {
	by, to := 0, 0
	for _, c := range of {
		to += c.asked - c.over
	}
	for _, name := range limiters {
		l, failed := s.limiter(ctx, name)
		by, err = by+int(l.Admitted), errors.Join(err, failed)
	}
	return rig.Exactly(fmt.Sprintf("admitted by %v, as many as were answered so", limiters), by, to), err
}

// The names that verdicts are about.
const (
	toNothing = "does nothing"
	toRedis   = "Redis, INCRBY and EXPIRE"
	toDecide  = "quotient decide"
)

// service is the rate limit service beside one that does nothing, and one with Redis.
func (b *bench) service(ctx context.Context) (s rig.Section, err error) {
	if err := b.build(ctx); err != nil {
		return s, err
	}
	ours, err1 := b.decide(ctx, true)
	idle, err2 := b.self(ctx, nothingArg)
	counts, err3 := b.self(ctx, redisArg)
	defer func() { err = errors.Join(err, end(ours, idle, counts)) }()
	if err := errors.Join(err1, err2, err3); err != nil {
		return s, err
	}
	r := &race{keys: b.keys, rounds: b.rounds, crowds: []crowd{{conns, 1}, {conns, 8}}, all: []*contender{
		{name: toNothing, of: idle, open: rls(idle.grpc, b.asked.users)},
		{name: toDecide, of: ours, open: rls(ours.grpc, b.asked.users)},
		{name: toDecide + ", half are over", of: ours, open: rls(ours.grpc, b.asked.half)},
		{name: toRedis, of: counts, open: rls(counts.grpc, b.asked.users)},
	}}
	if err := r.run(ctx, b.slice); err != nil {
		return s, err
	}
	s = r.service()
	v, err1 := admitted(ctx, ours, r.all[1:3], "bench.user", "bench.once")
	user, err2 := ours.limiter(ctx, "bench.user")
	once, err3 := ours.limiter(ctx, "bench.once")
	s.Verdicts = append(s.Verdicts, v, rig.Exactly("keys that quotient decide remembers", user.Keys, b.keys),
		rig.Exactly("admitted of half as many keys, each of which may ask once", int(once.Admitted), b.keys/2))
	return s, errors.Join(err1, err2, err3)
}

func (r *race) service() rig.Section {
	s := rig.Section{Title: "Rate limit service", Note: fmt.Sprintf(`
Envoy's rate limit service on a Unix socket, with one descriptor of %d, drawn evenly. A crowd is connections x
questions in flight on each. %d rounds, in which all work in turn; medians of the rounds, with the least and the
greatest. Times are in µs, and a ratio is that of one round. Redis listens on loopback and keeps nothing on disk; a
service beside it does what the reference service does for each question. Its processor time is that of both.`,
		r.keys, r.rounds)}
	s.Header = []string{"service", "crowd", "requests/s", "beside nothing", "p50", "p99", "p99 beside nothing",
		"processor time"}
	for _, who := range r.crowds {
		none := r.all[0].by[who]
		for _, c := range r.all {
			f := c.by[who]
			s.Add(c.name, who, rig.SpreadOf(f.rate), rig.Ratio(f.rate, none.rate), rig.Number(rig.SpreadOf(f.p50).Median),
				rig.SpreadOf(f.p99), rig.Ratio(f.p99, none.p99), rig.Number(rig.SpreadOf(f.cpu).Median))
		}
		ours, redis := r.all[1].by[who], r.all[3].by[who]
		beside := func(what, name string) string { return fmt.Sprintf("%s beside %s, %v", what, name, who) }
		s.Verdicts = append(s.Verdicts,
			rig.AtLeast(beside("requests/s", "nothing"), rig.Ratio(ours.rate, none.rate).Median, .85, " x"),
			rig.AtMost(beside("p99", "nothing"), rig.Ratio(ours.p99, none.p99).Median, 1.3, " x"),
			rig.AtLeast(beside("requests/s", "Redis"), rig.Ratio(ours.rate, redis.rate).Median, 1.5, " x"))
	}
	return s
}

func end(all ...*server) (err error) {
	for _, s := range all {
		if s != nil {
			err = errors.Join(err, s.end())
		}
	}
	return err
}

// price is what a question costs by each door.
func (b *bench) price(ctx context.Context) (s rig.Section, err error) {
	if err := b.build(ctx); err != nil {
		return s, err
	}
	near, err1 := b.decide(ctx, true)
	loopback, err2 := b.decide(ctx, false)
	counts, err3 := b.self(ctx, redisArg)
	idle, err4 := b.self(ctx, nothingArg)
	l, err5 := quotient.New(quotient.Rates(quotient.Rate{Events: 1e9, Per: time.Hour, Kind: quotient.Window}),
		quotient.MaxKeys(2*b.keys))
	defer func() { err = errors.Join(err, end(near, loopback, counts, idle)) }()
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return s, err
	}
	q := b.asked
	r := &race{keys: b.keys, rounds: b.rounds, crowds: []crowd{{1, 1}, {conns, 1}}, all: []*contender{
		{name: "`Limiter.Allow` in the process", times: many, open: inProcess(l, q.paths)},
		{name: "HTTP /decide, Unix socket", of: near, open: forwardAuth(near.http, q.paths)},
		{name: "HTTP /decide, loopback", of: loopback, open: forwardAuth(loopback.http, q.paths)},
		{name: "rate limit service, Unix socket", of: near, open: rls(near.grpc, q.users)},
		{name: "rate limit service, loopback", of: loopback, open: rls(loopback.grpc, q.users)},
		{name: "ext_authz over gRPC, Unix socket", of: near, open: extAuthz(near.grpc, q.auth)},
		{name: "ext_authz over gRPC, loopback", of: loopback, open: extAuthz(loopback.grpc, q.auth)},
		{name: "beside: gRPC that does nothing, Unix socket", of: idle, open: rls(idle.grpc, q.users)},
		{name: "beside: rate limit service with Redis, Unix socket", of: counts, open: rls(counts.grpc, q.users)},
	}}
	if err := r.run(ctx, b.slice); err != nil {
		return s, err
	}
	s = r.price()
	for i, at := range []*server{near, loopback} {
		v1, err1 := admitted(ctx, at, []*contender{r.all[1+i], r.all[5+i]}, "paths")
		v2, err2 := admitted(ctx, at, []*contender{r.all[3+i]}, "bench.user")
		s.Verdicts, err = append(s.Verdicts, v1, v2), errors.Join(err, err1, err2)
	}
	return s, err
}

func (r *race) price() rig.Section {
	s := rig.Section{Title: "Price of a question", Note: fmt.Sprintf(`
One question after the other on one connection, and on %d connections; %d keys, none over its limit. Medians of %d
rounds, in which all work in turn. Times are in µs, from the question to the answer. Those of a question in the
process are means of %d. Processor time is that of the servers, with %[1]d connections.`,
		conns, r.keys, r.rounds, many)}
	s.Header = []string{"door", "p50, one connection", "p99", "requests/s, 32 connections", "p50", "p99", "processor time"}
	alone, together := r.crowds[0], r.crowds[1]
	median := func(vs []float64) string { return rig.Number(rig.SpreadOf(vs).Median) }
	for _, c := range r.all {
		a, t, cpu := c.by[alone], c.by[together], "-"
		if c.of != nil {
			cpu = median(c.by[together].cpu)
		}
		s.Add(c.name, median(a.p50), median(a.p99), median(t.rate), median(t.p50), median(t.p99), cpu)
	}
	ours, redis := r.all[3].by[alone], r.all[len(r.all)-1].by[alone]
	s.Verdicts = append(s.Verdicts, rig.AtMost("p50 of the rate limit service on one connection, beside Redis",
		rig.Ratio(ours.p50, redis.p50).Median, 1, " x"))
	return s
}
