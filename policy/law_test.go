package policy_test

import (
	"math"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// law is what ten tales each add up to.
var law = []float64{
	1.2823596539299406e+07, 1.0294574474997696e+07, 2.345351070661835e+07, 7.598299598082617e+06,
	1.4249101967907997e+07, 5.168307713413106e+06, 1.1792263799189107e+07, 1.3391704472486904e+07,
	1.3139812848635515e+07, 4.453702861962839e+06, 2.5411870003816538e+07, 4.860001155491715e+06,
	8.96445573171814e+06, 1.1340953358083082e+07, 5.479063337567128e+06, 9.979866965176478e+06,
	1.24860472495387e+07, 2.220819910639571e+08, 1.2780452423673749e+07, 5.075999398905425e+06,
	6.110726396559726e+06, 1.0840094113548588e+07, 4.077437165160713e+07, 1.6381064678912295e+07,
	9.779881320688346e+06,
}

// TestTheLawStays plays clients and upstreams at random. A change that is meant to keep what Tracking answers
// keeps each sum; one that is meant to change it writes them anew.
func TestTheLawStays(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("elsewhere a product may be added before it is rounded")
	}
	same, sums := true, make([]float64, 25)
	for i := range sums {
		for seed := range uint64(10) {
			sums[i] += newTale(10*uint64(i) + seed).play(400)
		}
		same = same && i < len(law) && math.Abs(sums[i]-law[i]) <= 1e-11*math.Abs(law[i])
	}
	wrong(t, !same, "the tales add up to %#v", sums)
}

// tale is a client without a limiter, and its upstream: a bucket of one second.
type tale struct {
	*rand.Rand
	ctrl                     policy.Reporter
	bounds                   policy.Bounds
	pace                     policy.Pace
	now, sent, down          time.Duration // down: until then nothing is served
	refused                  time.Duration // when the last refusal came
	limit, tokens, cost      float64
	noise, flight            float64 // part of the answers that are refusals at random; the longest seconds of a request
	fleet                    bool
	fields, pauses, outcomes int // of these kinds, by number
}

func newTale(seed uint64) *tale {
	r := rand.New(rand.NewPCG(seed, 77))
	p := policy.Tracking{Spend: policy.Spend(r.IntN(2)), Retry: policy.Retry{Test: r.IntN(3) == 0}}
	if r.IntN(4) == 0 {
		p.Retry.Longest = time.Duration(r.IntN(4000)) * time.Second
	}
	w := &tale{Rand: r, ctrl: p.New(seed).(policy.Reporter), cost: []float64{1, 1, 100, .2}[r.IntN(4)],
		limit: math.Exp(r.Float64()*8 - 1), noise: .2 * r.Float64() * r.Float64(), fleet: r.IntN(2) == 0,
		flight: []float64{.005, .08}[r.IntN(2)], fields: r.IntN(7), pauses: r.IntN(3), outcomes: 2 + r.IntN(3)}
	w.tokens = w.limit
	w.rebound()
	w.pace = w.ctrl.Next(policy.Sample{}, w.bounds)
	return w
}

// rebound draws new bounds, and new reports of the others.
func (w *tale) rebound() {
	w.bounds = policy.Bounds{Ceiling: math.Inf(1)}
	if w.IntN(3) > 0 {
		w.bounds.Share = w.limit * w.cost * math.Exp(2*w.Float64()-1)
	}
	if w.IntN(2) == 0 {
		w.bounds.Ceiling = max(w.bounds.Share, .01) * (1 + 5*w.Float64())
	}
	w.hear()
}

// hear draws reports of the others: near what this client has, or none.
func (w *tale) hear() {
	if w.bounds.Fleet = nil; w.fleet && w.IntN(20) > 0 {
		n := float64(1 + w.IntN(10))
		f := &policy.Fleet{Weight: n, Limit: w.bounds.Share * n, Wanting: float64(w.IntN(int(n) + 1))}
		f.Rate, f.Used = f.Wanting*w.pace.Rate*(.5+w.Float64()), n*w.pace.Rate*w.Float64()
		f.Refused = .05 * (f.Rate + f.Used) * w.Float64() * w.Float64()
		w.bounds.Fleet = f
	}
}

// play lets the client go on for so many answers, and adds up the paces and reports.
func (w *tale) play(answers int) (sum float64) {
	for i := range answers {
		before := w.now
		w.send()
		w.tokens = min(w.limit, w.tokens+w.limit*(w.now-before).Seconds())
		s := w.answer()
		switch w.IntN(40) {
		case 0:
			w.rebound()
		case 1:
			w.now += time.Duration(w.IntN(1000)-w.IntN(100)) * time.Second // it rests, or the clock goes back
		case 2:
			s.Cost *= 1 + 3*w.Float64()
		case 3, 4, 5, 6, 7, 8, 9, 10:
			if w.hear(); w.fleet {
				s = policy.Sample{Now: w.now, Sent: w.now}
			}
		}
		w.pace = w.ctrl.Next(s, w.bounds)
		r := w.ctrl.Report(w.now + time.Duration(w.IntN(1000))*time.Millisecond)
		sum += float64(i+1) * (math.Log(w.pace.Rate) + w.pace.NotBefore.Seconds()/1e3 + w.pace.Probe().Seconds() +
			math.Log1p(r.Rate) + math.Log1p(r.Refused))
		if r.Wanting {
			sum += float64(i)
		}
	}
	return sum
}

// send sends the next request when the pace lets it pass, or before that what was held back no more.
func (w *tale) send() {
	gap := w.cost / w.pace.Rate * []float64{1, 1, 1, 1, .1, 10 * w.Float64()}[w.IntN(6)]
	if w.now += seconds(min(gap, 20)); w.pace.NotBefore > w.now && w.IntN(4) > 0 {
		w.now = w.pace.NotBefore
	}
	w.sent = w.now
	w.now += seconds(w.flight * (.25 + .75*w.Float64()))
}

// answer is what the upstream says to it.
func (w *tale) answer() policy.Sample {
	s := policy.Sample{Now: w.now, Sent: w.sent, Cost: w.cost, Paced: w.IntN(4) > 0, Outcome: policy.Success}
	switch w.IntN(50) {
	case 0:
		s.Sent -= time.Duration(w.IntN(3000)) * time.Millisecond
	case 1, 2:
		s.Sent = w.refused
	}
	if w.IntN(150) == 0 {
		w.down = w.now + time.Duration(w.IntN(60))*time.Second
	}
	switch {
	case w.now < w.down:
		s.Outcome = policy.Outcome(w.outcomes)
	case w.tokens < 1 || w.Float64() < w.noise:
		s.Outcome = policy.Throttled
	case w.IntN(60) == 0:
		s.Outcome = policy.Outcome(w.IntN(6))
	default:
		w.tokens--
	}
	if s.Outcome == policy.Throttled {
		w.refused = w.now
	}
	if s.Outcome != policy.Success && w.pauses > 0 {
		s.RetryAfter = time.Duration(w.IntN(3)) * time.Second
		if w.pauses == 2 && w.IntN(5) == 0 {
			s.RetryAfter = time.Duration(w.IntN(300)) * time.Second
		}
	}
	windows := []time.Duration{0, time.Minute, time.Hour, time.Second, 3 * time.Second, 5 * time.Minute, 24 * time.Hour}
	if window := windows[w.fields]; window > 0 {
		all := math.Ceil(w.limit) * window.Seconds()
		left := math.Floor(all * w.tokens / w.limit)
		if w.IntN(6) == 0 {
			left = math.Floor(all * w.Float64())
		}
		s.Quota = policy.Quota{Limit: all, Remaining: left, Reset: window}
		if w.fields < 3 { // the others always have a whole window to go
			s.Quota.Reset -= max(0, w.now%window)
		}
	}
	return s
}
