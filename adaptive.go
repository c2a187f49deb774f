package quotient

import (
	"math"
	"time"

	"golang.org/x/time/rate"

	"github.com/quotient-go/quotient/policy"
)

// forgetAfter is how long a key keeps what it has learned without feedback; upstreams change
// their limits more seldom than that, and a rate learned before a pause is a guess after it.
const forgetAfter = 10 * time.Minute

// pacerBurst is how many seconds of its rate a pacing bucket holds, at least one event: enough
// to even out the jitter of timers, and little enough that a new rate shows at once.
const pacerBurst = 0.1

// pacer joins a policy's law to a key's own pacing bucket: feedback in, paced permits
// out. It paces requests; the rates' own buckets bound it from above.
type pacer struct {
	bucket
	law   policy.Law // nil until the first feedback: the rate is then where a law starts
	rate  float64    // events per second
	fed   time.Time  // when feedback last came
	paced bool       // the pacer held requests back since then
}

func newPacer(ls *lawSetting, now time.Time, full bool) *pacer {
	p := new(pacer)
	p.setRate(now, ls.start)
	if full {
		p.fill(now, p.lim.Burst())
	}
	return p
}

// clone is a pacer that has the tokens of p and has learned nothing.
func (p *pacer) clone(now time.Time, ls *lawSetting) *pacer {
	c := &pacer{rate: p.rate}
	c.copyFrom(&p.bucket)
	if p.law != nil {
		c.setRate(now, ls.start)
	}
	return c
}

func (p *pacer) setRate(now time.Time, x float64) {
	p.rate = x
	p.set(now, rate.Limit(x*milli), max(milli, thousandths(x*pacerBurst)))
}

// upTo is how many of n requests the pacer lets through now, and notes if it is fewer.
func (p *pacer) upTo(now time.Time, n int) int {
	most := p.wholeEvents(now)
	p.paced = p.paced || most < n
	return min(n, most)
}

// feed hands the law one piece of feedback and takes over its rate.
func (p *pacer) feed(ls *lawSetting, origin, now, sent time.Time, f policy.Feedback) {
	if p.law == nil {
		p.law = ls.policy.New()
		p.law.Next(policy.Sample{Now: now.Sub(origin), Sent: sent.Sub(origin)}, ls.bounds)
	}
	s := policy.Sample{Feedback: f, Now: now.Sub(origin), Sent: sent.Sub(origin), Paced: p.paced}
	p.fed, p.paced = now, false
	if x := p.law.Next(s, ls.bounds); usable(x) && x != p.rate {
		p.setRate(now, min(x, ls.bounds.Ceiling, maxEvents))
	}
}

// forget drops what was learned when no feedback has come for long, as of the instant it was due.
func (p *pacer) forget(now time.Time, ls *lawSetting) {
	if p.law != nil && now.Sub(p.fed) >= forgetAfter {
		p.law = nil
		p.setRate(p.fed.Add(forgetAfter), ls.start)
	}
}

// idle tells that nothing is learned and the bucket equals that of a key never seen.
func (p *pacer) idle(now time.Time, u *pacer) bool {
	return p.law == nil && p.tokens(now) >= u.tokens(now)
}

// forget is pacer.forget, for a gate that may have none.
func (g *gate) forget(now time.Time) {
	if g.more != nil && g.more.pacer != nil {
		g.more.pacer.forget(now, g.setting.law)
	}
}

// applyLaw puts the gate's pacer under the setting's bounds; it makes and drops the pacer.
func (g *gate) applyLaw(st *setting) {
	if st.law == nil {
		return
	}
	m := g.extra()
	if m.pacer == nil {
		m.pacer = newPacer(st.law, st.at, true)
		return
	}
	p := m.pacer
	if g.setting.law != nil {
		p.forget(st.at, g.setting.law)
	}
	if p.law == nil {
		p.setRate(st.at, st.law.start)
		return
	}
	at := policy.Sample{Now: st.at.Sub(st.origin), Sent: st.at.Sub(st.origin)}
	if x := p.law.Next(at, st.law.bounds); usable(x) {
		p.setRate(st.at, min(x, st.law.bounds.Ceiling, maxEvents))
	}
}

// startUnknown is the rate, in events per second, that stands in for a start that is none.
const startUnknown = 5

// usable guards against a law that answers nonsense.
func usable(x float64) bool { return x > 0 && !math.IsInf(x, 1) }
