package sim

import (
	"math"
	"slices"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// Result is how a run went.
type Result struct {
	// Goodput is what was served, as a part of what could have been.
	Goodput float64
	// Refused is the part of the requests that was answered with 429, and Steady the same over
	// seconds in which nothing has changed for twenty seconds.
	Refused, Steady float64
	// Jain is Jain's index of fairness over replicas with equal demand: mean over windows of a minute.
	Jain float64
	// Converged is the mean time after a change until what is sent stays within a tenth of what could be served.
	Converged float64
	// Fell and Rose are the same over changes at which the limit fell, or rose; 0 when there are none.
	Fell, Rose float64
	// Overshoot is the most that was sent in a second, against the limit, after the limit fell and one
	// second had passed.
	Overshoot float64
	// Wait99 is the 99th percentile of the time that sent requests had waited, in seconds.
	Wait99 float64
	// Sent and Served count by second.
	Sent, Served []int

	shares [][]float64 // served, by fairWindow, by replica
}

// Score is the figure by which controllers are compared: 1 is best.
func (r Result) Score() float64 {
	return min(r.Goodput, 1) * (1 - r.Refused) * (1 - r.Refused) * (.8 + .2*r.Jain)
}

type meter struct {
	s                                      *Scenario
	sentBy, arrivedBy, servedBy, refusedBy []int // by second
	waits                                  []time.Duration
	byReplica                              [][]float64 // served, by fairWindow, by replica
}

const fairWindow = 10 * time.Second

func newMeter(s *Scenario) *meter {
	seconds := func() []int { return make([]int, int(s.Length/time.Second)+1) }
	m := &meter{s: s, sentBy: seconds(), arrivedBy: seconds(), servedBy: seconds(), refusedBy: seconds()}
	for range int(s.Length/fairWindow) + 1 {
		m.byReplica = append(m.byReplica, make([]float64, s.Replicas))
	}
	return m
}

func (m *meter) arrived(now time.Duration) { m.arrivedBy[now/time.Second]++ }

func (m *meter) sent(now, waited time.Duration) {
	m.sentBy[now/time.Second]++
	m.waits = append(m.waits, waited)
}

func (m *meter) reached(now time.Duration, who int, what policy.Outcome) {
	switch what {
	case policy.Throttled:
		m.refusedBy[now/time.Second]++
	case policy.Success:
		m.servedBy[now/time.Second]++
		m.byReplica[now/fairWindow][who]++
	}
}

func (m *meter) result() Result {
	var res Result
	served, refused := sum(m.servedBy), sum(m.refusedBy)
	res.Goodput = float64(served) / m.useful()
	res.Refused = float64(refused) / float64(max(1, served+refused))
	res.Steady = m.steady()
	res.Jain = m.jain()
	m.follows(&res)
	if len(m.waits) > 0 {
		slices.Sort(m.waits)
		res.Wait99 = m.waits[len(m.waits)*99/100].Seconds()
	}
	res.Sent, res.Served, res.shares = m.sentBy, m.servedBy, m.byReplica
	return res
}

// useful is how much could have been served at best: what came, or the limit where more was wanted.
func (m *meter) useful() float64 {
	total := 0.0
	for i, came := range m.arrivedBy {
		t := time.Duration(i) * time.Second
		if t >= m.s.Length {
			break
		}
		if limit := m.s.limitAt(t); m.s.demandAt(t) >= limit {
			total += limit
		} else {
			total += float64(came)
		}
	}
	return total
}

func sum(list []int) (n int) {
	for _, v := range list {
		n += v
	}
	return n
}

// steady is the share of refusals later than a minute, and than twenty seconds after any change.
func (m *meter) steady() float64 {
	served, refused := 0, 0
	for i := 60; i < len(m.servedBy); i++ {
		if m.calm(time.Duration(i) * time.Second) {
			served += m.servedBy[i]
			refused += m.refusedBy[i]
		}
	}
	return float64(refused) / float64(max(1, served+refused))
}

func (m *meter) calm(t time.Duration) bool {
	for _, c := range m.s.Changes {
		if t >= c && t < c+20*time.Second {
			return false
		}
	}
	return t < m.s.Outage.From || t >= m.s.Outage.To+20*time.Second
}

// jain is the mean of Jain's index over minutes, for replicas of the group that live all through.
func (m *meter) jain() float64 {
	var mean mean
	for from := time.Duration(0); from+time.Minute <= m.s.Length; from += time.Minute {
		var row []float64
		served := 0.0
		for i := range m.s.Replicas {
			if (m.s.Group == nil || m.s.Group(i)) && m.s.Live(i, from) && m.s.Live(i, from+time.Minute-1) {
				x := 0.0
				for w := from / fairWindow; w < (from+time.Minute)/fairWindow; w++ {
					x += m.byReplica[w][i]
				}
				row = append(row, x)
				served += x
			}
		}
		if len(row) > 1 && served > 0 {
			mean.add(Jain(row))
		}
	}
	if mean.n == 0 {
		return 1
	}
	return mean.value()
}

// Jain is Jain's index of fairness: 1 when all are equal; also where there is nothing to share.
func Jain(row []float64) float64 {
	a, b := 0.0, 0.0
	for _, x := range row {
		a, b = a+x, b+x*x
	}
	if b == 0 {
		return 1
	}
	return a * a / (float64(len(row)) * b)
}

// follows measures convergence and overshoot after each change.
func (m *meter) follows(res *Result) {
	var all, fell, rose mean
	for k, c := range m.s.Changes {
		end := m.s.Length
		if k+1 < len(m.s.Changes) {
			end = m.s.Changes[k+1]
		}
		from, to := int(c/time.Second), int(end/time.Second)-3
		took := m.took(from, to)
		all.add(took)
		switch before, after := m.s.limitAt(c-1), m.s.limitAt(c); {
		case c == 0:
		case after > before:
			rose.add(took)
		case after < before:
			fell.add(took)
			res.Overshoot = max(res.Overshoot, m.overshoot(from, to, after))
		}
	}
	res.Converged, res.Fell, res.Rose = all.value(), fell.value(), rose.value()
}

// took is how many seconds after from two windows of three seconds in a row are near what could be served.
func (m *meter) took(from, to int) float64 {
	for t := from; t < to; t++ {
		if m.near(t) && m.near(t+1) {
			return float64(t - from)
		}
	}
	return float64(to - from)
}

// overshoot is the most that was sent in one of the seconds after from, the first apart, against the limit.
func (m *meter) overshoot(from, to int, limit float64) (most float64) {
	for t := from + 1; t < min(from+20, to) && limit > 0; t++ {
		most = max(most, float64(m.sentBy[t])/limit)
	}
	return most
}

// mean is the mean of what was added, 0 of nothing.
type mean struct{ sum, n float64 }

func (m *mean) add(x float64) { m.sum, m.n = m.sum+x, m.n+1 }

func (m *mean) value() float64 { return m.sum / max(1, m.n) }

// near reports whether the requests of three seconds from t on are within a tenth of what could be served.
func (m *meter) near(t int) bool {
	sent := float64(m.sentBy[t]+m.sentBy[t+1]+m.sentBy[t+2]) / 3
	at := time.Duration(t) * time.Second
	useful := math.Min(m.s.demandAt(at), m.s.limitAt(at))
	noise := 2 * math.Sqrt(useful/3) / useful // of arrivals, when demand is what bounds
	if m.s.demandAt(at) > m.s.limitAt(at) {
		noise = 0
	}
	return math.Abs(sent/useful-1) <= .1+noise
}
