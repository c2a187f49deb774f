package browser

import (
	"context"
	"math"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/admin"
	"github.com/quotient-go/quotient/policy"
)

// hostile is a key that would run a script on a page that takes text for markup.
const hostile = `<img src=x onerror=alert(1)>`

// loadEnds is when the load ends by itself, whatever becomes of the test.
const loadEnds = 90 * time.Second

// service is a process with three limiters under load and the admin handler before them.
type service struct {
	api, jobs, search *quotient.Limiter
	handler           *admin.Handler
	addr              string // of the listener; it stays when the service is stopped and started again
	stop              func()
}

// startService starts a service that ends with the test.
func startService(t *testing.T, opts ...admin.Option) *service {
	t.Helper()
	s := &service{
		api: limiter(t, quotient.Limit{Rates: []quotient.Rate{named("requests", quotient.PerSecond(300), 60)},
			InFlight: 40}),
		jobs: limiter(t, quotient.Rates(named("starts", quotient.PerMinute(3600), 6)),
			quotient.MaxWaiting(9, 20)),
		search: limiter(t, quotient.Rates(named("queries", quotient.PerSecond(90), 30)),
			quotient.Policy(policy.AIMD{})),
	}
	var reg quotient.Registry
	for name, l := range map[string]*quotient.Limiter{"api": s.api, "jobs": s.jobs, "search": s.search} {
		must(t, reg.Add(name, l))
	}
	own := quotient.Rates(named("requests", quotient.PerSecond(30), 30))
	must(t, s.api.Override("tenant-basic", &own))
	deny := quotient.Limit{Deny: true}
	must(t, s.api.Override("tenant-blocked", &deny))
	for name, events := range map[string]float64{"free": 45, "paid": 450} {
		plan := quotient.Rates(named("requests", quotient.PerSecond(events), int(events)))
		must(t, s.api.SetPlan(name, &plan))
	}
	s.mount(t, &reg, opts...)
	s.load(t)
	return s
}

func limiter(t *testing.T, limit quotient.Limit, opts ...quotient.Option) *quotient.Limiter {
	t.Helper()
	opts = append(opts, quotient.StartPool(quotient.Pool{Replicas: 3, Ordinal: 2}))
	l, err := quotient.New(limit, opts...)
	must(t, err)
	return l
}

func named(name string, rate quotient.Rate, burst int) quotient.Rate {
	rate.Name, rate.Burst = name, burst
	return rate
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// load asks the limiters until the test ends.
func (s *service) load(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), loadEnds)
	var group sync.WaitGroup
	t.Cleanup(func() { cancel(); group.Wait() })
	keys := []string{"tenant-basic", "tenant-gold", "tenant-gold", "tenant-silver", hostile, "tenant-blocked"}
	plans := map[string]string{"tenant-gold": "paid", "tenant-silver": "free"}
	group.Go(func() {
		// The load swells and falls within ten seconds; at its height not everything fits.
		every(ctx, 4*time.Millisecond, func(i int) {
			if math.Sin(float64(i)/400)+float64(i%7)/7 < -0.25 {
				return
			}
			for j := range 2 {
				key := keys[(i+3*j)%len(keys)]
				if permit, d := s.api.TryAcquire(key, quotient.Plan(plans[key])); d.OK {
					hold(ctx, &group, permit, time.Duration(20+i%30)*time.Millisecond)
				}
			}
		})
	})
	for worker := range 12 { // more than have room in the queue of one key
		group.Go(func() { s.work(ctx, "queue-"+strconv.Itoa(worker%12/11)) })
	}
	group.Go(func() { s.query(ctx) })
}

// work waits for one turn after the other.
func (s *service) work(ctx context.Context, key string) {
	every(ctx, 25*time.Millisecond, func(int) {
		if permit, err := s.jobs.Acquire(ctx, key); err == nil {
			permit.Release()
		}
	})
}

// query plays an upstream that answers 429 now and then.
func (s *service) query(ctx context.Context) {
	every(ctx, 20*time.Millisecond, func(i int) {
		permit, d := s.search.TryAcquire("index-" + strconv.Itoa(i%3))
		if !d.OK {
			return
		}
		said := policy.Feedback{Outcome: policy.Success}
		if i%60 < 6 {
			said.Outcome = policy.Throttled
		}
		permit.Done(said)
	})
}

// hold keeps a permit for a while, as a request that is at work does.
func hold(ctx context.Context, group *sync.WaitGroup, permit quotient.Permit, d time.Duration) {
	group.Go(func() {
		defer permit.Release()
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	})
}

// every calls do with 0, 1, 2 … after each pause, until ctx ends.
func every(ctx context.Context, pause time.Duration, do func(i int)) {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-tick.C:
			do(i)
		case <-ctx.Done():
			return
		}
	}
}
