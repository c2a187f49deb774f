package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/quotient-go/quotient/lease"
)

// Settings of kills. Clients restore within the grace time.
const (
	killGrace   = 600 * time.Millisecond
	killExpires = 2 * time.Second
	workers     = 12 // of each semaphore
	stuckAfter  = 30 * time.Second
)

// killed is what many crashes of one server did.
type killed struct {
	kills, beyond int
	one, some     *crew
	at            []time.Time
	served        [2]int
	ended         bool
}

// manyKills kills the server again and again while clients work.
func (b *bench) manyKills(ctx context.Context) (section, error) {
	port, err := quietPort()
	if err != nil {
		return section{}, err
	}
	k := &killed{}
	transport := &http.Transport{MaxIdleConnsPerHost: 4 * workers}
	defer transport.CloseIdleConnections()
	client := func(int) *lease.Client {
		return &lease.Client{URLs: []string{"http://" + at(port)}, HTTP: &http.Client{Transport: transport},
			ExpiresIn: killExpires, BlockFor: 300 * time.Millisecond, Timeout: time.Second}
	}
	flags := []string{"-s", "one=1", "-s", "some=3", "--grace", fmt.Sprintf("%dms", killGrace.Milliseconds())}
	p, err := b.leases(ctx, port, flags...)
	if err != nil {
		return section{}, err
	}
	k.one = newLedger(1, 2*killGrace).hire(ctx, workers, "one", b.seed, client)
	k.some = newLedger(3, 2*killGrace).hire(ctx, workers, "some", b.seed+1, client)
	rng := rand.New(rand.NewPCG(b.seed, 17))
	for k.kills < b.kills && ctx.Err() == nil {
		pause(ctx, killGrace+time.Duration(rng.Int64N(int64(killGrace))))
		k.at = append(k.at, time.Now())
		if err = p.kill(); err != nil {
			break
		}
		k.beyond += p.said.count()
		k.kills++
		if rng.IntN(10) == 0 {
			pause(ctx, killGrace) // the holders lose their leases
		}
		if p, err = b.leases(ctx, port, flags...); err != nil {
			break
		}
	}
	k.finish(ctx)
	if err != nil {
		return section{}, err
	}
	k.beyond += p.said.count()
	return k.section(), p.stop()
}

func (k *killed) finish(ctx context.Context) {
	k.served = [2]int{k.one.served(ctx, k.one.now(), stuckAfter), k.some.served(ctx, k.some.now(), stuckAfter)}
	k.ended = k.one.dismiss(stuckAfter) && k.some.dismiss(stuckAfter)
}

func (k *killed) section() section {
	s := section{title: "Kills",
		note: fmt.Sprintf("quotient leases is killed (SIGKILL) and started again under load: %d lease.Clients "+
			"lock a semaphore of 1, as many one of 3. The grace time is %v, leases last %v. Some starts come so "+
			"late that holders give up. Each holder writes down from when to when it believed in its lease, and "+
			"these are compared.",
			workers, killGrace, killExpires),
		header: []string{"semaphore", "locks taken", "restored and held on", "lost by their holder",
			"longest wait", "errors of Lock or Unlock"}}
	for i, c := range []*crew{k.one, k.some} {
		c.mu.Lock()
		defer c.mu.Unlock()
		name, survived, tooMany := []string{"one", "some"}[i], c.survived(k.at, killGrace/2), c.tooMany()
		s.rows = append(s.rows, []string{name, fmt.Sprint(len(c.all)),
			fmt.Sprint(survived), fmt.Sprint(c.lost()), rounded(c.longest), summary(c.errs)})
		s.verdicts = append(s.verdicts,
			verdict{fmt.Sprintf("%s: locks beyond %d at once, at most the %d that restores report", name, c.most,
				k.beyond),
				fmt.Sprint(tooMany), tooMany <= k.beyond},
			exactly(name+": tokens that fell", c.fallen(), 0),
			exactly(name+": clients that got a lock after the last start", k.served[i], workers),
			verdict{name + ": leases that were restored and held on, some", fmt.Sprint(survived), survived > 0},
			verdict{fmt.Sprintf("%s: locks taken, at least one for each kill", name), fmt.Sprint(len(c.all)),
				len(c.all) >= k.kills})
	}
	return s.first(verdict{"the server was killed, and no client is stuck",
		fmt.Sprintf("%d times, all ended: %v", k.kills, k.ended), k.kills > 0 && k.ended})
}

// first adds verdicts before the others.
func (s section) first(vs ...verdict) section {
	s.verdicts = append(vs, s.verdicts...)
	return s
}

func summary(errs map[string]int) string {
	if len(errs) == 0 {
		return "none"
	}
	var all []string
	for text, n := range errs {
		all = append(all, fmt.Sprintf("%d x %.80s", n, strings.ReplaceAll(text, "\n", " ")))
	}
	return strings.Join(all[:min(3, len(all))], "; ")
}

// pause waits for a while, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
