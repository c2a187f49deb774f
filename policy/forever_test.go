package policy_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// fleet is a number of replicas that know their share, or do not, and have used an upstream for a time.
func fleet(t *testing.T, n int, limit float64, hint bool, used time.Duration) *upstream {
	up := newUpstream(t, limit, 1)
	for range n {
		b := policy.Bounds{Ceiling: math.Inf(1)}
		if hint {
			b = policy.Bounds{Share: limit / float64(n), Ceiling: limit}
		}
		up.join(contracts[1].witness(up.rng.Uint64()), b)
	}
	up.run(used)
	return up
}

// total is how many requests were sent and served in a time.
func (u *upstream) total(d time.Duration) (sent, served int) {
	for _, r := range u.replicas {
		sent, served = sent-r.sent, served-r.served
	}
	u.run(d)
	for _, r := range u.replicas {
		sent, served = sent+r.sent, served+r.served
	}
	return sent, served
}

// When everything is refused for long, single probes go on at a positive rate; a minute after the upstream is
// back its limit is used again.
func TestRefusedForEver(t *testing.T) {
	const limit = 50
	for _, n := range []int{1, 5} {
		for _, hint := range []bool{false, true} {
			for _, used := range []time.Duration{time.Minute, 10 * time.Minute} {
				for _, dark := range []time.Duration{2 * time.Minute, 10 * time.Minute, 30 * time.Minute} {
					t.Run(fmt.Sprintf("%d replicas, hint %v, %v after %v", n, hint, dark, used),
						func(t *testing.T) {
							recoversFrom(t, fleet(t, n, limit, hint, used), n, limit, dark)
						})
				}
			}
		}
	}
}

func recoversFrom(t *testing.T, up *upstream, n int, limit float64, dark time.Duration) {
	up.limit = 0
	up.run(time.Minute)
	for left := dark - time.Minute; left > 0; left -= time.Minute {
		sent, _ := up.total(time.Minute)
		within(t, "probes a minute of each replica", float64(sent)/float64(n), 5, 12)
		for _, r := range up.replicas {
			if !(r.rate > 0) {
				t.Fatalf("the rate is %v", r.rate)
			}
		}
	}
	up.limit = limit
	up.run(time.Minute)
	_, served := up.total(15 * time.Second)
	within(t, "goodput a minute after the upstream is back", float64(served)/15/limit, 0.9, 1.1)
}

// askFor counts the requests of a single client in an hour of which the first five minutes do not count. Each
// of them is refused with a Retry-After, and sent as soon as the pace allows.
func askFor(share float64, retryAfter time.Duration) (asked int) {
	l := born(share, 0)
	for l.now < 3600 {
		next := l.now + 1/l.Rate
		if l.NotBefore > 0 {
			next = max(l.now, l.NotBefore.Seconds())
		}
		l.tell(policy.Sample{
			Outcome: policy.Throttled, Now: seconds(next + rtt), Sent: seconds(next), Cost: 1, Paced: true,
			RetryAfter: retryAfter,
		})
		if l.now > 300 {
			asked++
		}
	}
	return asked
}

// A client asks an upstream that refuses everything no more often than every ten seconds, nor more often than
// when it serves, even if it says "in a millisecond".
func TestAnIncidentIsNotHammered(t *testing.T) {
	for _, share := range []float64{0.02, 0.05, 1, 10, 1000} {
		for _, retryAfter := range []time.Duration{0, time.Millisecond, time.Second} {
			got := float64(askFor(share, retryAfter)) / 3300
			within(t, fmt.Sprintf("requests a second at a share of %v and a Retry-After of %v", share,
				retryAfter), got, 0.01, min(0.105, share*1.1))
		}
	}
}
