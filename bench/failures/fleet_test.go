// Package failures measures what each failure of docs/what-can-go-wrong.md costs: how much more a fleet
// admits than its limit, and how much less. Real limiters run in fake time, so that the figures are the same
// in every run and on every machine.
//
//	go test ./bench/failures            # fails on a broken promise, or when a page is not what is measured
//	go test ./bench/failures -update    # writes results.md again
package failures

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
)

// The limit of most rows, over the fleet.
const (
	perSecond = 1000
	burst     = 100
	tick      = 10 * time.Millisecond // between two looks of a replica that always wants more
)

// The key of most rows.
const key = "key"

func limit() quotient.Limit {
	return quotient.Rates(quotient.Rate{Name: "rate", Events: perSecond, Per: time.Second, Burst: burst})
}

func replicas(n int) quotient.Pool { return quotient.Pool{Replicas: n} }

// A fleet is some limiters, each of which stands for a process, and what they let through.
type fleet struct {
	t       *testing.T
	members []*quotient.Limiter
	sent    []int // by tick
}

// newFleet makes n replicas that start together and believe the same.
func newFleet(t *testing.T, n int, believed quotient.Pool, opts ...quotient.Option) *fleet {
	f := &fleet{t: t}
	for range n {
		f.add(limit(), append([]quotient.Option{quotient.StartPool(believed)}, opts...)...)
	}
	return f
}

// add lets one more replica start.
func (f *fleet) add(l quotient.Limit, opts ...quotient.Option) *quotient.Limiter {
	f.t.Helper()
	limiter, err := quotient.New(l, opts...)
	if err != nil {
		f.t.Fatal(err)
	}
	f.members = append(f.members, limiter)
	return limiter
}

// believe tells these replicas how many there are.
func (f *fleet) believe(n int, who ...*quotient.Limiter) {
	f.t.Helper()
	for _, l := range who {
		if err := l.SetPool(replicas(n), 0); err != nil {
			f.t.Fatal(err)
		}
	}
}

// run lets these replicas take all they get for so long, and returns how many requests that was.
func (f *fleet) run(d time.Duration, who ...*quotient.Limiter) (sum int) {
	for range d / tick {
		n := takeAll(who)
		f.sent = append(f.sent, n)
		sum += n
		time.Sleep(tick)
	}
	return sum
}

// takeAll lets these replicas take what there is now.
func takeAll(who []*quotient.Limiter) (n int) {
	for _, l := range who {
		for l.Allow(key) {
			n++
		}
	}
	return n
}

// demand sends each replica requests at a rate of its own, per second.
func (f *fleet) demand(d time.Duration, perSecond ...float64) (sum int) {
	due := make([]float64, len(perSecond))
	for range d / tick {
		n := 0
		for i, rate := range perSecond {
			for due[i] += rate * tick.Seconds(); due[i] >= 1; due[i]-- {
				if f.members[i].Allow(key) {
					n++
				}
			}
		}
		f.sent = append(f.sent, n)
		sum += n
		time.Sleep(tick)
	}
	return sum
}

// over is how many requests the worst of all windows held above the rate and the larger of burst and
// replicas: bound 2.
func (f *fleet) over(n int) float64 {
	worst, here := 0.0, 0.0
	for _, sent := range f.sent {
		here = max(0, here-perSecond*tick.Seconds()) + float64(sent)
		worst = max(worst, here)
	}
	return max(0, worst-float64(max(burst, n)))
}

// lost is the part of the limit that was not used, of a time in which all replicas wanted more.
func lost(sent int, d time.Duration) float64 { return 1 - float64(sent)/(perSecond*d.Seconds()) }

// A platform is a source that says what a row tells it to.
type platform chan any

// Watch reports pools and errors.
func (p platform) Watch(ctx context.Context, report func(quotient.Pool, error)) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case said := <-p:
			pool, _ := said.(quotient.Pool)
			err, _ := said.(error)
			report(pool, err)
		}
	}
}

// follow lets each of these replicas follow a platform; say reports the same to all of them. It ends with
// the test.
func (f *fleet) follow(who ...*quotient.Limiter) (say func(what any)) {
	var all []platform
	ctx, stop := context.WithCancel(f.t.Context())
	f.t.Cleanup(stop)
	for _, l := range who {
		p := make(platform)
		all = append(all, p)
		go func() { _ = l.Follow(ctx, p) }()
	}
	return func(what any) {
		for _, p := range all {
			p <- what
		}
		synctest.Wait()
	}
}
