package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/bench/arena/contenders"
	"github.com/quotient-go/quotient/bench/arena/sim"
	"github.com/quotient-go/quotient/httplimit"
	"github.com/quotient-go/quotient/policy"
)

// The arena plays the pure policy, because that is more than twenty times as fast as the library. This test
// plays some of its cells with the library: a Limiter and a Transport for each replica, against the same
// upstreams, in fake time.

const playedFor = 2 * time.Minute // of the scenario's four

func TestLibraryIsAsSimulated(t *testing.T) {
	for _, row := range []struct {
		scenario string
		kind     sim.Kind
		fields   sim.Fields
		pool     int     // what the replicas know of it; 0: nothing
		near     float64 // how near goodput and share of 429s must be to the mean of the simulation
	}{
		{"S1", sim.TokenBucket, sim.NoFields, 10, .01},
		{"S1", sim.TokenBucket, sim.AllFields, 10, .01},
		{"S5", sim.TokenBucket, sim.NoFields, 10, .01},
		{"S5", sim.Window1, sim.RetryAfter, 10, .01},
		{"S6", sim.TokenBucket, sim.NoFields, 0, .01},
		// When the outage is seen to have ended is chance: goodput spreads by .01.
		{"O4", sim.TokenBucket, sim.NoFields, 10, .03},
		{"O4", sim.GCRA, sim.AllFields, 10, .03},
	} {
		t.Run(fmt.Sprint(row.scenario, " ", row.kind, " ", row.fields), func(t *testing.T) {
			if underRace && row.scenario != "S6" {
				t.Skip("one row is enough for the race detector, under which all would take minutes")
			}
			s := scenarioNamed(t, row.scenario)
			s.Length, s.Changes = playedFor, nil
			goodput, refused, useful := simulated(t, s, row.kind, row.fields)
			var f *fleet
			synctest.Test(t, func(t *testing.T) {
				f = newFleet(t, &s, row.kind, row.fields, row.pool)
				f.play(t)
			})
			got, share := float64(f.served)/useful, float64(f.refused)/float64(f.served+f.refused)
			t.Logf("library: goodput %.3f, 429s %.4f; simulated: %.3f, %.4f", got, share, goodput, refused)
			if !(math.Abs(got-goodput) <= row.near && math.Abs(share-refused) <= row.near) {
				t.Errorf("library: goodput %.3f, 429s %.4f; simulated: %.3f, %.4f", got, share,
					goodput, refused)
			}
		})
	}
}

func scenarioNamed(t *testing.T, name string) sim.Scenario {
	t.Helper()
	list, err := choose("scenario", name, append(sim.Given(), sim.Own()...),
		func(s sim.Scenario, n string) bool { return s.Name == n })
	if err != nil {
		t.Fatal(err)
	}
	return list[0]
}

// simulated is the mean of the arena's figures over some seeds, and how many requests could have been served.
func simulated(t *testing.T, s sim.Scenario, kind sim.Kind,
	fields sim.Fields) (goodput, refused, useful float64) {
	t.Helper()
	ours, err := choose("contender", contenders.Ours, contenders.Contenders(),
		func(c sim.Contender, n string) bool { return c.Name == n })
	if err != nil {
		t.Fatal(err)
	}
	const seeds = 8
	for seed := range uint64(seeds) {
		r := sim.Play(s, kind, fields, ours[0], seed, 0)
		goodput += r.Goodput / seeds
		refused += r.Refused / seeds
		served := 0
		for _, n := range r.Served {
			served += n
		}
		useful = float64(served) / r.Goodput
	}
	return goodput, refused, useful
}

// fleet is a scenario's replicas before its upstream. It is the base transport of them all.
type fleet struct {
	s       *sim.Scenario
	clients []*http.Client
	begin   time.Time

	mu              sync.Mutex
	up              *sim.Upstream
	served, refused int
}

func newFleet(t *testing.T, s *sim.Scenario, kind sim.Kind, fields sim.Fields, pool int) *fleet {
	f := &fleet{s: s, begin: time.Now(), up: sim.NewUpstream(kind, fields, s.Limit, 0)}
	options := []quotient.Option{quotient.Policy(policy.Tracking{}), quotient.BeyondShare(),
		quotient.MaxWait(5 * time.Second)}
	if pool > 0 {
		options = append(options, quotient.Replicas(pool))
	}
	limit := quotient.Rates(quotient.PerSecond(s.Limit))
	for range s.Replicas {
		l, err := quotient.New(limit, options...)
		if err != nil {
			t.Fatal(err)
		}
		f.clients = append(f.clients, &http.Client{Transport: &httplimit.Transport{Base: f, Limiter: l}})
	}
	return f
}

// play lets every replica want what the scenario says, and returns when all calls have ended.
func (f *fleet) play(t *testing.T) {
	ctx, stop := context.WithTimeout(t.Context(), f.s.Length)
	defer stop()
	var work sync.WaitGroup
	for i := range f.clients {
		work.Go(func() { f.load(ctx, i) })
	}
	for _, c := range f.s.Limits {
		if c.At < f.s.Length {
			time.Sleep(time.Until(f.begin.Add(c.At)))
			f.mu.Lock()
			f.up.SetLimit(c.At, c.Value)
			f.mu.Unlock()
		}
	}
	work.Wait()
}

// load sends a Poisson process of requests, whatever becomes of them.
func (f *fleet) load(ctx context.Context, i int) {
	var calls sync.WaitGroup
	defer calls.Wait()
	for {
		time.Sleep(time.Duration(rand.ExpFloat64() / f.s.Most(i) * float64(time.Second)))
		if ctx.Err() != nil {
			return
		}
		calls.Go(func() {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://upstream.test/", nil)
			if err != nil {
				panic(err)
			}
			if resp, err := f.clients[i].Do(req); err == nil {
				_ = resp.Body.Close()
			}
		})
	}
}

// RoundTrip is the way to the upstream and back: 20 to 80 ms in all.
func (f *fleet) RoundTrip(req *http.Request) (*http.Response, error) {
	way := 10*time.Millisecond + rand.N(30*time.Millisecond)
	time.Sleep(way)
	status, said := f.serve()
	time.Sleep(way)
	return &http.Response{StatusCode: status, Header: header(said), Body: http.NoBody, Request: req,
		ProtoMajor: 1, ProtoMinor: 1}, nil
}

// serve is what happens at the upstream, which is counted until the end of the scenario.
func (f *fleet) serve() (status int, said policy.Feedback) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Since(f.begin)
	ok := !slices.ContainsFunc(f.s.Faults, func(x sim.Fault) bool { return x.From <= now && now < x.To }) &&
		f.up.Admit(now)
	status = http.StatusOK
	if !ok {
		status = http.StatusTooManyRequests
	}
	switch {
	case now >= f.s.Length:
	case ok:
		f.served++
	default:
		f.refused++
	}
	return status, f.up.Answer(now, ok)
}

// header writes an answer's fields as upstreams do.
func header(f policy.Feedback) http.Header {
	h := http.Header{}
	whole := func(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }
	if f.RetryAfter > 0 {
		h.Set("Retry-After", whole(f.RetryAfter))
	}
	if q := f.Quotas[0]; q.Known() {
		h.Set("RateLimit-Limit", strconv.Itoa(int(q.Limit)))
		h.Set("RateLimit-Remaining", strconv.Itoa(int(q.Remaining)))
		h.Set("RateLimit-Reset", whole(q.Reset))
	}
	return h
}
