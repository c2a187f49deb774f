package policy_test

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// step is the resolution of simulated time.
const step = 5 * time.Millisecond

// upstream is a token bucket of one second, and the replicas that have always one more request for it. Time
// is simulated.
type upstream struct {
	t        fataler
	limit    float64 // requests a second
	tokens   float64
	now      time.Duration
	rng      *rand.Rand
	replicas []*replica
}

// fataler is a test, or a property.
type fataler interface{ Fatalf(string, ...any) }

func newUpstream(t fataler, limit float64, seed uint64) *upstream {
	return &upstream{t: t, limit: limit, tokens: limit, rng: rand.New(rand.NewPCG(seed, 0))}
}

// forgetAfter is how long without feedback a limiter keeps what it has learned, from the end of a gate on.
const forgetAfter = 10 * time.Minute

// replica is one controller and the bucket that it paces, as the limiter does: it holds a tenth of a second,
// and one request when a gate opens. It cannot send more than 20 times what its upstream serves.
type replica struct {
	up           *upstream
	ctrl         *witness
	bounds       policy.Bounds
	rate         float64
	notBefore    time.Duration
	due          time.Duration // when all is forgotten
	tokens       float64
	flights      []flight
	sent, served int
}

// flight is one request on its way to the upstream and back.
type flight struct {
	sent, arrives, back time.Duration
	outcome             policy.Outcome // Unknown before it has arrived
}

// join adds a replica whose controller gets new bounds.
func (u *upstream) join(ctrl *witness, b policy.Bounds) *replica {
	r := &replica{up: u, ctrl: ctrl, bounds: b, tokens: u.rng.Float64()}
	u.replicas = append(u.replicas, r)
	r.learn(policy.Sample{Now: u.now, Sent: u.now})
	return r
}

// run lets time pass.
func (u *upstream) run(d time.Duration) {
	for end := u.now + d; u.now < end; u.now += step {
		u.tokens = min(u.limit, u.tokens+u.limit*step.Seconds())
		first := u.rng.IntN(len(u.replicas)) // no replica always comes first
		for i := range u.replicas {
			u.replicas[(first+i)%len(u.replicas)].step(u.now)
		}
	}
}

func (u *upstream) served() []float64 {
	all := make([]float64, len(u.replicas))
	for i, r := range u.replicas {
		all[i] = float64(r.served)
	}
	return all
}

// take serves a request, or not.
func (u *upstream) take() policy.Outcome {
	if u.tokens < 1 {
		return policy.Throttled
	}
	u.tokens--
	return policy.Success
}

func (r *replica) step(now time.Duration) {
	r.flights = slices.DeleteFunc(r.flights, func(f flight) bool { return f.back <= now })
	for i := range r.flights {
		r.fly(&r.flights[i], now)
	}
	if now >= r.due {
		r.ctrl.holds(r.up.t)
		r.ctrl = r.ctrl.witness(r.up.rng.Uint64())
		r.learn(policy.Sample{Now: now, Sent: now})
	}
	if now < r.notBefore {
		r.tokens = 1 - r.rate*step.Seconds()
		return
	}
	r.tokens = min(max(1, r.rate/10), r.tokens+r.rate*step.Seconds())
	for most := 1 + int(20*r.up.limit*step.Seconds()); r.tokens >= 1 && most > 0; most-- {
		r.tokens--
		r.sent++
		half := func() time.Duration { return time.Duration(10+r.up.rng.IntN(30)) * time.Millisecond }
		there := now + half()
		r.flights = append(r.flights, flight{sent: now, arrives: there, back: there + half()})
	}
}

// fly moves a request on: it arrives, or its answer does.
func (r *replica) fly(f *flight, now time.Duration) {
	if f.outcome == policy.Unknown && f.arrives <= now {
		if f.outcome = r.up.take(); f.outcome == policy.Success {
			r.served++
		}
	}
	if f.back <= now+step { // it is gone in the next step
		r.learn(policy.Sample{Outcome: f.outcome, Now: now, Sent: f.sent, Cost: 1, Paced: true})
	}
}

// learn gives the controller a sample. Like the limiter it keeps a gate closed for an hour at most.
func (r *replica) learn(s policy.Sample) {
	p := r.ctrl.tell(s, r.bounds)
	r.rate, r.notBefore = p.Rate, min(p.NotBefore, s.Now+time.Hour)
	if p.Probe() > 0 {
		r.rate = 1 / p.Probe().Seconds()
	}
	r.due = max(s.Now, r.notBefore) + forgetAfter
}
