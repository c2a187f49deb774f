package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/bench/arena/sim"
	"github.com/quotient-go/quotient/httplimit"
	"github.com/quotient-go/quotient/policy"
)

// TestLibraryIsAsSimulated: the arena plays the pure policy, because that is more than twenty times as fast as
// the library. This test plays some of its cells with the library, a Limiter and a Transport for each replica,
// against the same upstreams, in fake time.
func TestLibraryIsAsSimulated(t *testing.T) {
	for _, row := range []struct {
		scenario string
		kind     sim.Kind
		fields   sim.Fields
		pool     int     // what the replicas know of it; 0: nothing
		near     float64 // how near goodput and share of 429s must be to the mean of the simulation
	}{
		{"S1", sim.TokenBucket, sim.AllFields, 10, .01},
		{"S5", sim.Window1, sim.RetryAfter, 10, .01},
		{"S6", sim.TokenBucket, sim.NoFields, 0, .01},
		{"O4", sim.GCRA, sim.AllFields, 10, .03}, // when the outage is seen to have ended is chance
	} {
		t.Run(fmt.Sprint(row.scenario, " ", row.kind, " ", row.fields), func(t *testing.T) {
			if t.Parallel(); underRace() && row.scenario != "S6" {
				t.Skip("one row is enough for the race detector")
			}
			s := configOf(t, "-scenario", row.scenario).scenarios[0]
			s.Length, s.Changes = 2*time.Minute, nil // half of it
			synctest.Test(t, func(t *testing.T) {
				u := &upstream{s: &s, begin: time.Now(), up: sim.NewUpstream(row.kind, row.fields, s.Limit, 0)}
				f := newFleet(t, &s, row.pool, u)
				f.play(t, "http://upstream.test/")
				f.compare(t, row.kind, row.fields, row.near)
			})
		})
	}
}

// upstream is one of the simulation. It is the base transport of all clients: 20 to 80 ms there and back.
type upstream struct {
	s     *sim.Scenario
	begin time.Time

	mu   sync.Mutex
	up   *sim.Upstream
	next int // of the changes of the limit
}

// RoundTrip judges a request, and writes the fields as upstreams do.
func (u *upstream) RoundTrip(req *http.Request) (*http.Response, error) {
	way := 10*time.Millisecond + rand.N(30*time.Millisecond)
	time.Sleep(way)
	defer time.Sleep(way)
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Since(u.begin)
	for ; u.next < len(u.s.Limits) && u.s.Limits[u.next].At <= now; u.next++ {
		u.up.SetLimit(u.s.Limits[u.next].At, u.s.Limits[u.next].Value)
	}
	ok := !u.s.Outage.Has(now) && u.up.Admit(now)
	said := u.up.Answer(now, ok)
	h := http.Header{}
	set := func(name string, x float64) { h.Set(name, strconv.Itoa(int(x))) }
	if said.RetryAfter > 0 {
		set("Retry-After", said.RetryAfter.Seconds())
	}
	if q := said.Quotas[0]; q.Known() {
		set("RateLimit-Limit", q.Limit)
		set("RateLimit-Remaining", q.Remaining)
		set("RateLimit-Reset", q.Reset.Seconds())
	}
	status := map[bool]int{true: http.StatusOK, false: http.StatusTooManyRequests}[ok]
	return &http.Response{StatusCode: status, Header: h, Body: http.NoBody, ProtoMajor: 1, Request: req}, nil
}

// fleet is a scenario's replicas as the library makes them, and what was answered them.
type fleet struct {
	s       *sim.Scenario
	clients []*http.Client

	mu      sync.Mutex
	served  []float64 // by replica
	refused float64
	failed  error
}

func newFleet(t *testing.T, s *sim.Scenario, pool int, base http.RoundTripper) *fleet {
	f := &fleet{s: s, served: make([]float64, s.Replicas)}
	options := []quotient.Option{quotient.Policy(policy.Tracking{}), quotient.BeyondShare(),
		quotient.MaxWait(5 * time.Second)}
	if pool > 0 {
		options = append(options, quotient.Replicas(pool))
	}
	for range s.Replicas {
		l, err := quotient.New(quotient.Rates(quotient.PerSecond(s.Limit)), options...)
		if err != nil {
			t.Fatal(err)
		}
		f.clients = append(f.clients, &http.Client{Transport: &httplimit.Transport{Base: base, Limiter: l}})
	}
	return f
}

// play lets every replica want what the scenario says, and returns when all calls have ended.
func (f *fleet) play(t *testing.T, url string) {
	ctx, stop := context.WithTimeout(t.Context(), f.s.Length)
	defer stop()
	var work sync.WaitGroup
	for i := range f.clients {
		work.Go(func() {
			for next := time.Now(); ctx.Err() == nil; time.Sleep(time.Until(next)) {
				work.Go(func() { f.call(ctx, i, url) })
				next = next.Add(time.Duration(rand.ExpFloat64() / f.s.Most(i) * float64(time.Second)))
			}
		})
	}
	work.Wait()
	if f.failed != nil {
		t.Fatal(f.failed)
	}
}

// call makes one request of replica i, and counts what becomes of it.
func (f *fleet) call(ctx context.Context, i int, url string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		panic(err)
	}
	resp, err := f.clients[i].Do(req)
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		err = errors.Join(err, resp.Body.Close())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case errors.Is(err, quotient.ErrLimited) || ctx.Err() != nil:
	case err != nil:
		f.failed = err
	case resp.StatusCode == http.StatusOK:
		f.served[i]++
	case resp.StatusCode == http.StatusTooManyRequests:
		f.refused++
	default:
		f.failed = fmt.Errorf("status %d", resp.StatusCode)
	}
}

// sums returns what was served, and which part of all was refused.
func (f *fleet) sums() (served, refused float64) {
	for _, n := range f.served {
		served += n
	}
	return served, f.refused / max(1, served+f.refused)
}

// compare holds the fleet to the mean of simulated runs.
func (f *fleet) compare(t *testing.T, kind sim.Kind, fields sim.Fields, near float64) {
	const seeds = 8
	want, share := 0.0, 0.0
	for seed := range uint64(seeds) {
		r := sim.Play(*f.s, kind, fields, configOf(t, "-contender", ours).contenders[0], seed)
		share += r.Of[sim.Refused] / seeds
		for _, n := range r.Served {
			want += float64(n) / seeds
		}
	}
	served, refused := f.sums()
	t.Logf("library: %.0f served, 429s %.4f; simulated: %.0f, %.4f", served, refused, want, share)
	if !(math.Abs(served/want-1) <= near && math.Abs(refused-share) <= near) {
		t.Errorf("more than %v apart", near)
	}
}
