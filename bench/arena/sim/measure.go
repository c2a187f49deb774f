package sim

import (
	"math"
	"slices"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// What is measured of a run, in the order in which it is reported.
const (
	Goodput   = iota // what was served, as a part of what could have been
	Refused          // the part of the requests that was answered with 429
	Jain             // fairness over replicas with equal demand: mean over minutes
	Converged        // mean seconds after a change until what is sent stays within a tenth of what could be served
	Fell             // the same over changes at which the limit fell; 0 when there are none
	Overshoot        // the most sent in a second, against the limit, after that fell and a second had passed
	Wait99           // 99th percentile of the seconds that sent requests had waited
	Score            // the figure by which controllers are compared: 1 is best
	Pressed          // how many requests were sent in a pause that was announced to the replica, and not refuted
	Steady           // Refused over seconds in which nothing has changed for twenty seconds
	Figures          // how many there are
)

// Result is how a run went.
type Result struct {
	Of           [Figures]float64
	Sent, Served []int // by second

	shares [][]float64 // served, by minute, by replica
}

type meter struct {
	Result
	s                *Scenario
	arrived, refused []int // by second
	waits            []time.Duration
}

func newMeter(s *Scenario) *meter {
	seconds := func() []int { return make([]int, s.Length/time.Second) }
	m := &meter{s: s, Result: Result{Sent: seconds(), Served: seconds()}, arrived: seconds(), refused: seconds()}
	for range s.Length/time.Minute + 1 {
		m.shares = append(m.shares, make([]float64, s.Replicas))
	}
	return m
}

func (m *meter) sent(now, waited time.Duration) {
	m.Sent[now/time.Second]++
	m.waits = append(m.waits, waited)
}

func (m *meter) reached(now time.Duration, who int, what policy.Outcome) {
	if what == policy.Throttled {
		m.refused[now/time.Second]++
		return
	}
	m.Served[now/time.Second]++
	m.shares[now/time.Minute][who]++
}

func (m *meter) result() Result {
	f := &m.Of
	f[Goodput] = float64(sum(m.Served)) / m.useful()
	f[Refused] = m.part(func(time.Duration) bool { return true })
	f[Steady] = m.part(m.calm)
	f[Jain] = m.jain()
	m.follow()
	if len(m.waits) > 0 {
		slices.Sort(m.waits)
		f[Wait99] = m.waits[len(m.waits)*99/100].Seconds()
	}
	f[Score] = score(f[Goodput], f[Refused], f[Jain])
	return m.Result
}

func score(goodput, refused, jain float64) float64 {
	return min(goodput, 1) * (1 - refused) * (1 - refused) * (.8 + .2*jain)
}

func sum[T int | float64](list []T) (sum T) {
	for _, v := range list {
		sum += v
	}
	return sum
}

// mean is 0 of nothing.
func mean(list []float64) float64 { return sum(list) / float64(max(1, len(list))) }

// useful is how much could have been served at best: what came, or the limit where more was wanted.
func (m *meter) useful() (total float64) {
	for i, came := range m.arrived {
		t := time.Duration(i) * time.Second
		if limit := m.s.limitAt(t); m.s.demandAt(t) >= limit {
			total += limit
		} else {
			total += float64(came)
		}
	}
	return total
}

// part is the share of 429s in the seconds that count.
func (m *meter) part(counts func(t time.Duration) bool) float64 {
	served, refused := 0, 0
	for i := range m.Served {
		if counts(time.Duration(i) * time.Second) {
			served += m.Served[i]
			refused += m.refused[i]
		}
	}
	return float64(refused) / float64(max(1, served+refused))
}

// calm reports whether a second is later than the first minute, and than twenty seconds after any change.
func (m *meter) calm(t time.Duration) bool {
	const within = 20 * time.Second
	changed := func(c time.Duration) bool { return Span{c, c + within}.Has(t) }
	outage := Span{m.s.Outage.From, m.s.Outage.To + within}
	return t >= time.Minute && !outage.Has(t) && !slices.ContainsFunc(m.s.Changes, changed)
}

// jain is the mean of Jain's index over minutes, for replicas of the group that live all through.
func (m *meter) jain() float64 {
	var indices []float64
	for k, served := range m.shares {
		var row []float64
		from := time.Duration(k) * time.Minute
		for i, n := range served {
			if (m.s.Group == nil || m.s.Group(i)) && m.s.Live(i, from) && m.s.Live(i, from+time.Minute-1) {
				row = append(row, n)
			}
		}
		if len(row) > 1 && sum(row) > 0 {
			indices = append(indices, Fairness(row))
		}
	}
	if len(indices) == 0 {
		return 1
	}
	return mean(indices)
}

// Fairness is Jain's index: 1 when all are equal.
func Fairness(row []float64) float64 {
	squares := 0.0
	for _, x := range row {
		squares += x * x
	}
	return sum(row) * sum(row) / (float64(len(row)) * squares)
}

// follow measures convergence and overshoot after each change.
func (m *meter) follow() {
	var all, fell []float64
	for k, c := range m.s.Changes {
		end := m.s.Length
		if k+1 < len(m.s.Changes) {
			end = m.s.Changes[k+1]
		}
		from, to := int(c/time.Second), int(end/time.Second)-3
		took := m.took(from, to)
		all = append(all, took)
		if now := m.s.limitAt(c); c > 0 && now < m.s.limitAt(c-1) {
			fell = append(fell, took)
			most := slices.Max(m.Sent[from+1 : min(from+20, to)]) // its first second apart
			m.Of[Overshoot] = max(m.Of[Overshoot], float64(most)/now)
		}
	}
	m.Of[Converged], m.Of[Fell] = mean(all), mean(fell)
}

// took is how many seconds after from two windows of three seconds in a row are near what could be served.
func (m *meter) took(from, to int) float64 {
	t := from
	for t < to && !(m.near(t) && m.near(t+1)) {
		t++
	}
	return float64(t - from)
}

// near reports whether the requests of three seconds from t on are within a tenth of what could be served.
func (m *meter) near(t int) bool {
	sent := float64(sum(m.Sent[t:t+3])) / 3
	now := time.Duration(t) * time.Second
	useful, noise := m.s.limitAt(now), 0.0
	if demand := m.s.demandAt(now); demand <= useful {
		useful, noise = demand, 2*math.Sqrt(demand/3)/demand // of arrivals, when demand is what bounds
	}
	return math.Abs(sent/useful-1) <= .1+noise
}
