package policy_test

import (
	"math"
	"testing"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// life is one controller that is given its samples by hand. Times are in seconds, and a request has always
// been under way for rtt.
type life struct {
	policy.Pace
	ctrl   policy.Controller
	bounds policy.Bounds
	now    float64
}

const rtt = 0.05

func seconds(s float64) time.Duration { return time.Duration(math.Round(s * float64(time.Second))) }

// born starts a controller without some rules, at a share or, if that is 0, without one.
func born(share float64, without policy.Rules) *life {
	l := &life{ctrl: policy.Tracking{Without: without}.New(1),
		bounds: policy.Bounds{Share: share, Ceiling: math.Inf(1)}}
	l.Pace = l.ctrl.Next(policy.Sample{}, l.bounds)
	return l
}

// tell is any sample at all, with nothing added.
func (l *life) tell(s policy.Sample) float64 {
	l.now = s.Now.Seconds()
	l.Pace = l.ctrl.Next(s, l.bounds)
	return l.Rate
}

// answer is the answer to a request of cost 1 that was under way for rtt, while the pace held others back.
func (l *life) answer(after float64, o policy.Outcome) float64 {
	at := seconds(l.now + after)
	return l.tell(policy.Sample{Outcome: o, Now: at, Sent: at - seconds(rtt), Cost: 1, Paced: true})
}

func (l *life) serve(after float64) float64  { return l.answer(after, policy.Success) }
func (l *life) refuse(after float64) float64 { return l.answer(after, policy.Throttled) }

// serveFor is success for some time, every so often.
func (l *life) serveFor(length, every float64) float64 {
	for range int(math.Round(length / every)) {
		l.serve(every)
	}
	return l.Rate
}

// quoted is a success with a quota, every so often for some time.
func (l *life) quoted(length, every float64, quota func(now float64) policy.Quota) float64 {
	for range int(math.Round(length / every)) {
		at := seconds(l.now + every)
		l.tell(policy.Sample{Outcome: policy.Success, Now: at, Sent: at - seconds(rtt), Cost: 1, Paced: true,
			Quota: quota(at.Seconds())})
	}
	return l.Rate
}

// hint changes the share after some time.
func (l *life) hint(after, share float64) float64 {
	l.bounds.Share = share
	return l.tell(policy.Sample{Now: seconds(l.now + after)})
}

// darken refuses until the controller waits for a single probe, at most so often.
func (l *life) darken(t *testing.T, every float64) *life {
	t.Helper()
	for range 1000 {
		if l.refuse(every); l.NotBefore > seconds(l.now) {
			return l
		}
	}
	t.Fatal("a thousand refusals in a row are no blackout")
	return nil
}

// probe answers the request that is sent when the gate opens.
func (l *life) probe(o policy.Outcome) float64 {
	return l.answer(max(l.NotBefore.Seconds()-l.now, 0)+rtt, o)
}

// gate is how long the controller waits from now on, in seconds.
func (l *life) gate() float64 { return l.NotBefore.Seconds() - l.now }

// near fails unless two rates are equal but for rounding.
func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-6*math.Abs(want) {
		t.Errorf("%s: got %.7g, want %.7g", what, got, want)
	}
}

// within fails unless a figure lies between two others.
func within(t *testing.T, what string, got, least, most float64) {
	t.Helper()
	if !(got >= least && got <= most) {
		t.Errorf("%s: got %.5g, want %.5g to %.5g", what, got, least, most)
	}
}
