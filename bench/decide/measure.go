package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/bench/rig"
)

// conns is how many connections there are, each with a client that asks again as soon as it was answered.
const conns = 32

// A contender is one way to ask, and what came of it.
type contender struct {
	name            string
	open            opener
	of              *server // nil: in this process
	times           int     // questions that an asker asks at once
	asked, over     int
	alone, together figures // on one connection, and on all
}

// figures are those of the rounds; of cpu, µs of processor time a question.
type figures struct{ rate, p50, p99, cpu []float64 }

// A race is contenders with the same questions.
type race struct {
	keys, rounds int
	all          []*contender
}

// run lets all ask in turn, in another order each round. Before, each asks about every key once.
func (r *race) run(ctx context.Context, slice time.Duration) error {
	for round := range r.rounds + 1 {
		for _, n := range []int{1, conns}[max(0, 1-round):] {
			for _, i := range rand.Perm(len(r.all)) {
				if err := r.all[i].play(ctx, n, r.keys, slice, round == 0); err != nil {
					return fmt.Errorf("%s: %w", r.all[i].name, err)
				}
			}
		}
	}
	return nil
}

// play asks over n connections for so long; at first about each key once.
func (c *contender) play(ctx context.Context, n, keys int, slice time.Duration, first bool) error {
	var askers []asker
	for range n {
		ask, end, err := c.open()
		if err != nil {
			return err
		}
		defer end()
		askers = append(askers, ask)
	}
	if _, err := c.crowd(ctx, askers, func(_, n int) (int, bool) { return 0, n == 0 }); err != nil { // all connect
		return err
	}
	before, err1 := c.of.used()
	began := time.Now()
	next := func(int, int) (int, bool) { return rand.IntN(keys), time.Since(began) < slice }
	if first {
		next = func(i, j int) (int, bool) { return i + j*n, i+j*n < keys }
	}
	took, err := c.crowd(ctx, askers, next)
	during, asked := time.Since(began), float64(len(took)*c.times)
	after, err2 := c.of.used()
	if err := cmp.Or(err, err1, err2); err != nil || first {
		return err
	}
	f := map[bool]*figures{true: &c.alone, false: &c.together}[n == 1]
	f.rate, f.cpu = append(f.rate, asked/during.Seconds()), append(f.cpu, rig.Micros(after-before)/asked)
	f.p50 = append(f.p50, rig.Quantile(took, .5)/float64(c.times))
	f.p99 = append(f.p99, rig.Quantile(took, .99)/float64(c.times))
	return nil
}

// crowd lets all ask at the same time: the i-th about key after key, as next says for each n. It returns the µs that
// each answer took. A question that is not answered is an error.
func (c *contender) crowd(
	ctx context.Context, askers []asker, next func(i, n int) (key int, ok bool),
) (took []float64, err error) {
	var mu sync.Mutex
	var wait sync.WaitGroup
	for i, ask := range askers {
		wait.Go(func() {
			var its []float64
			over, failed := 0, error(nil)
			for key, ok := next(i, 0); ok && failed == nil && ctx.Err() == nil; key, ok = next(i, len(its)) {
				began := time.Now()
				var is bool
				if is, failed = ask(ctx, key); is {
					over++
				}
				its = append(its, rig.Micros(time.Since(began)))
			}
			mu.Lock()
			defer mu.Unlock()
			took, err = append(took, its...), cmp.Or(err, failed)
			c.asked, c.over = c.asked+len(its)*c.times, c.over+over
		})
	}
	wait.Wait()
	return took, cmp.Or(ctx.Err(), err)
}

// price is what a question costs by each door.
func (b *bench) price(ctx context.Context) (s rig.Section, err error) {
	if err := b.build(ctx); err != nil {
		return s, err
	}
	near, err1 := b.decide(ctx, true)
	loopback, err2 := b.decide(ctx, false)
	idle, err3 := b.self(ctx, nothingArg)
	counts, err4 := b.self(ctx, redisArg)
	l, err5 := quotient.New(quotient.Rates(quotient.Rate{Events: 1e9, Per: time.Hour, Kind: quotient.Window}),
		quotient.MaxKeys(2*b.keys))
	defer func() { err = errors.Join(err, near.end(), loopback.end(), idle.end(), counts.end()) }()
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return s, err
	}
	users, checks := made(b.keys, aboutUser), made(b.keys, check)
	r := &race{keys: b.keys, rounds: b.rounds, all: []*contender{
		{name: "gRPC that does nothing, Unix socket", of: idle, open: rls(idle.grpc, users), times: 1},
		{name: "rate limit service, Unix socket", of: near, open: rls(near.grpc, users), times: 1},
		{name: "the same, half are over the limit", of: near, open: rls(near.grpc, made(b.keys, aboutHalf)), times: 1},
		{name: "beside Redis, Unix socket", of: counts, open: rls(counts.grpc, users), times: 1},
		{name: "rate limit service, loopback", of: loopback, open: rls(loopback.grpc, users), times: 1},
		{name: "ext_authz over gRPC, Unix socket", of: near, open: extAuthz(near.grpc, checks), times: 1},
		{name: "ext_authz over gRPC, loopback", of: loopback, open: extAuthz(loopback.grpc, checks), times: 1},
		{name: "HTTP /decide, Unix socket", of: near, open: forwardAuth(near.http, b.keys), times: 1},
		{name: "HTTP /decide, loopback", of: loopback, open: forwardAuth(loopback.http, b.keys), times: 1},
		{name: "`Limiter.Allow` in the process", open: inProcess(l, b.keys), times: many},
	}}
	if err := r.run(ctx, b.slice); err != nil {
		return s, err
	}
	s = r.price()
	v, err := r.counted(ctx, near, loopback)
	s.Verdicts = append(s.Verdicts, v...)
	return s, err
}

func (r *race) price() rig.Section {
	s := rig.Section{Title: "Price of a question", Note: fmt.Sprintf(`
One question after the other on one connection (alone), and on each of %d at the same time; one of %d keys, drawn
evenly. Medians of %d rounds, in which all work in turn. A ratio is that of one round, with the least and the greatest.
Times are in µs, from the question to the answer; in the process they are means of %d. Processor time is that of the
servers at %[1]d connections, and with Redis of both. A service beside Redis does for each question what the reference
service does; Redis listens on loopback and keeps nothing on disk.`, conns, r.keys, r.rounds, many)}
	s.Header = []string{"door", "p50 alone", "p99 alone", "requests/s", "beside nothing", "p50", "p99",
		"p99 beside nothing", "processor time"}
	none, ours, redis := r.all[0].together, r.all[1].together, r.all[3].together
	median := func(vs []float64) string { return rig.Number(rig.SpreadOf(vs).Median) }
	for _, c := range r.all {
		f := c.together
		s.Add(c.name, median(c.alone.p50), median(c.alone.p99), median(f.rate), rig.Ratio(f.rate, none.rate),
			median(f.p50), median(f.p99), rig.Ratio(f.p99, none.p99), median(f.cpu))
	}
	rate, p99, more := rig.Ratio(ours.rate, none.rate), rig.Ratio(ours.p99, none.p99), rig.Ratio(ours.rate, redis.rate)
	s.Verdicts = []rig.Verdict{
		rig.AtLeast("requests/s of the rate limit service beside nothing", rate.Median, .85, " x"),
		rig.AtMost("its p99 beside nothing", p99.Median, 1.2, " x"),
		rig.AtLeast("its requests/s beside Redis", more.Median, 1.5, " x"),
	}
	return s
}

// counted is that quotient decide has admitted what was answered so, by its own count, and remembers all keys.
func (r *race) counted(ctx context.Context, servers ...*server) (_ []rig.Verdict, err error) {
	by, to, once, keys := 0, 0, 0, 0
	for _, s := range servers {
		for _, name := range []string{"paths", "bench.user", "bench.once"} {
			l, failed := s.limiter(ctx, name)
			by, keys, err = by+int(l.Admitted), keys+l.Keys, errors.Join(err, failed)
			if name == "bench.once" {
				once += int(l.Admitted)
			}
		}
		for _, c := range r.all {
			if c.of == s {
				to += c.asked - c.over
			}
		}
	}
	return []rig.Verdict{
		rig.Exactly("admitted by quotient decide, as many as were answered so", by, to),
		rig.Exactly("keys that it remembers", keys, 4*r.keys+r.keys/2),
		rig.Exactly("admitted of half the keys, each of which may ask once", once, r.keys/2),
	}, err
}
