package main

import (
	"cmp"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const ms = time.Millisecond

// flat is a budget without steps and growth.
func flat(rate, burst float64) budget { return budget{steps: []step{{rate: rate, burst: burst}}} }

// allowed is what b lets leave from one instant to another, both included.
func allowed(b budget, from, to time.Duration) float64 {
	first, before := b.at(from)
	_, after := b.at(to)
	n := after - before + first.burst
	if from <= b.growth.to && to >= b.growth.from {
		n += b.growth.extra
	}
	return n
}

func TestAllowed(t *testing.T) {
	shrunk := budget{steps: []step{
		{rate: 10, burst: 4}, {from: time.Second, rate: 5, burst: 2}, {from: 3 * time.Second, rate: 20, burst: 8},
	}}
	grown := flat(100, 10)
	grown.growth = growth{from: 200 * ms, to: 300 * ms, extra: 3}
	for _, tt := range []struct {
		b        budget
		from, to time.Duration
		want     float64
	}{
		{flat(100, 10), 0, 0, 10}, {flat(100, 10), -500 * ms, 500 * ms, 110},
		{shrunk, -time.Second, 0, 14}, {shrunk, 500 * ms, 2 * time.Second, 14},
		{shrunk, time.Second, 2 * time.Second, 7}, {shrunk, 0, 4 * time.Second, 44},
		{grown, 0, 100 * ms, 20}, {grown, 0, 200 * ms, 33}, {grown, 250 * ms, 260 * ms, 14},
		{grown, 300 * ms, 400 * ms, 23}, {grown, 301 * ms, 401 * ms, 20},
	} {
		if got := allowed(tt.b, tt.from, tt.to); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%+v: %v to %v allows %v, want %v", tt.b, tt.from, tt.to, got, tt.want)
		}
	}
}

// anyBudget draws a budget with up to three steps and perhaps a growth.
func anyBudget(t *rapid.T) budget {
	amount := rapid.Float64Range(0.1, 50)
	var b budget
	from := time.Duration(0)
	for range rapid.IntRange(1, 3).Draw(t, "steps") {
		b.steps = append(b.steps, step{from, amount.Draw(t, "rate"), amount.Draw(t, "burst")})
		from += time.Duration(rapid.IntRange(0, 3000).Draw(t, "step")) * ms
	}
	if rapid.Bool().Draw(t, "grows") {
		b.growth.from = time.Duration(rapid.IntRange(-100, 3000).Draw(t, "growth from")) * ms
		b.growth.to = b.growth.from + time.Duration(rapid.IntRange(0, 1000).Draw(t, "growth"))*ms
		b.growth.extra = amount.Draw(t, "extra")
	}
	return b
}

// anyDepartures draws up to 60 departures, some at the same time.
func anyDepartures(t *rapid.T) []departure {
	sent := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) departure {
		left := time.Duration(rapid.IntRange(-200, 4000).Draw(t, "left")) * ms
		return departure{left - time.Duration(rapid.IntRange(0, 50).Draw(t, "late"))*ms, left}
	}), 1, 60).Draw(t, "departures")
	slices.SortFunc(sent, func(a, b departure) int { return cmp.Compare(a.left, b.left) })
	return sent
}

// TestPropertyWorstWindow compares the one pass with a look at every window.
func TestPropertyWorstWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, sent := anyBudget(t), anyDepartures(t)
		most := math.Inf(-1)
		for i := range sent {
			opens := sent[i].left
			for _, d := range sent[i:] {
				opens = min(opens, d.may)
			}
			for j := i; j < len(sent); j++ {
				most = max(most, float64(j-i+1)-allowed(b, opens, sent[j].left))
			}
		}
		got := b.worst(ordered(slices.Clone(sent)))
		excess, more := float64(got.Sent)-got.Allowed, got.Allowed-allowed(b, got.From, got.To)
		if math.Abs(excess-most) > 1e-9 || math.Abs(more) > 1e-9 {
			t.Fatalf("worst window %+v has excess %v, a better look finds %v", got, excess, most)
		}
	})
}

// sender is a model of one replica: a bucket that changes its share.
type sender struct {
	rate, size, tokens float64
	last               time.Duration
}

func (s *sender) fill(now time.Duration) {
	s.tokens = min(s.size, s.tokens+(now-s.last).Seconds()*s.rate)
	s.last = now
}

func (s *sender) set(now time.Duration, rate, size float64) {
	s.fill(now)
	s.rate, s.size = rate, size
	s.fill(now)
}

// send appends up to n requests to sent that might leave now, and do so a drawn time later.
func (s *sender) send(t *rapid.T, now time.Duration, sent []departure) []departure {
	s.fill(now)
	n := min(rapid.IntRange(0, 40).Draw(t, "demand"), int(s.tokens+1e-9))
	s.tokens -= float64(n)
	late := time.Duration(rapid.Int64Range(0, int64(100*ms)).Draw(t, "late"))
	return append(sent, slices.Repeat([]departure{{now, now + late}}, n)...)
}

// blame fails the test if the requests exceed the budget.
func blame(t *rapid.T, b budget, sent []departure) {
	if len(sent) == 0 {
		return
	}
	if w := b.worst(ordered(sent)); w.broken() {
		t.Fatalf("%+v accuses those who keep it: %+v", b, w)
	}
}

// TestPropertyCorrectReplica: a bucket never exceeds its own budget, whatever the requests.
func TestPropertyCorrectReplica(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := anyBudget(t)
		b.growth = growth{}
		for i := range b.steps {
			b.steps[i].burst = max(1, b.steps[i].burst)
		}
		s := &sender{rate: b.steps[0].rate, size: b.steps[0].burst, tokens: b.steps[0].burst}
		var sent []departure
		next := 1
		for now := time.Duration(0); now < 6*time.Second; now += time.Duration(rapid.IntRange(1, 400).Draw(t, "gap")) * ms {
			for next < len(b.steps) && b.steps[next].from <= now {
				s.set(b.steps[next].from, b.steps[next].rate, b.steps[next].burst)
				next++
			}
			sent = s.send(t, now, sent)
		}
		blame(t, b, sent)
	})
}

// TestPropertyCorrectFleet: replicas divide the limit, and one of them joins with an empty bucket while the
// others do not know of it yet. They keep bounds 2 and 3 whatever the requests.
func TestPropertyCorrectFleet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const rate = 100.0
		n := rapid.IntRange(1, 5).Draw(t, "replicas")
		burst := float64(rapid.IntRange(1, 30).Draw(t, "burst"))
		born := time.Duration(rapid.IntRange(0, 1500).Draw(t, "born")) * ms
		known := born + time.Duration(rapid.IntRange(0, 800).Draw(t, "late"))*ms
		share := func(n int) sender { return sender{rate: rate / float64(n), size: max(1, burst/float64(n)), last: born} }
		var senders []*sender
		for range n {
			s := share(n)
			s.tokens, s.last = s.size, 0
			senders = append(senders, &s)
		}
		b := flat(rate, max(burst, float64(n+1)))
		b.growth = growth{from: born, to: known,
			extra: rate * (known - born).Seconds() * (float64(n+1)/float64(n) - 1)}
		var sent []departure
		told := false
		for now := time.Duration(0); now < 3*time.Second; now += time.Duration(rapid.IntRange(1, 150).Draw(t, "gap")) * ms {
			if now >= born && len(senders) == n {
				s := share(n + 1)
				senders = append(senders, &s)
			}
			if now >= known && !told {
				told = true
				for _, s := range senders[:n] {
					s.set(known, senders[n].rate, senders[n].size)
				}
			}
			for _, s := range senders {
				sent = s.send(t, now, sent)
			}
		}
		blame(t, b, sent)
	})
}

// TestLatenessIsBelievedOnlyWhenPlausible: what claims to have been held up for longer than its
// process stood still is caught.
func TestLatenessIsBelievedOnlyWhenPlausible(t *testing.T) {
	b := flat(100, 5)
	f := &fleet{all: []*process{{state: message{Stall: 20 * ms}}, {}}} // 10 ms and twice 20 ms are plausible for the first
	for _, tt := range []struct {
		replica, n int
		late       time.Duration
		broken     bool
	}{
		{1, 6, 9 * ms, true}, {1, 6, 10 * ms, false}, {1, 10, 50 * ms, false}, {1, 11, time.Hour, true},
		{1, 6, -time.Hour, true}, {2, 6, 10 * ms, false}, {2, 7, 20 * ms, true},
	} {
		log := slices.Repeat([]arrival{{Replica: tt.replica, Sent: time.Second, Late: tt.late}}, tt.n)
		if w := b.worst(departures(f.believe(log), 0)); w.broken() != tt.broken {
			t.Errorf("replica %d, %d at once, %v late: broken %v, want %v: %+v", tt.replica, tt.n, tt.late,
				w.broken(), tt.broken, w)
		}
		if log[0].Late != tt.late {
			t.Errorf("believe changed the log")
		}
	}
}

func TestJain(t *testing.T) {
	for _, tt := range []struct {
		got  []float64
		want float64
	}{
		{nil, 1}, {[]float64{0, 0}, 1}, {[]float64{7}, 1}, {[]float64{5, 5, 5, 5}, 1}, {[]float64{1, 0}, 0.5},
		{[]float64{1, 0, 0, 0}, 0.25}, {[]float64{1, 2}, 0.9},
	} {
		if got := jain(tt.got); math.Abs(got-tt.want) > 1e-12 {
			t.Errorf("jain(%v) = %v, want %v", tt.got, got, tt.want)
		}
	}
}

func TestQuantile(t *testing.T) {
	for _, tt := range []struct {
		values []time.Duration
		q      float64
		want   time.Duration
	}{
		{nil, 0.5, 0}, {[]time.Duration{3}, 0.5, 3}, {[]time.Duration{3, 1, 2}, 0, 1}, {[]time.Duration{3, 1, 2}, 0.5, 2},
		{[]time.Duration{3, 1, 2}, 0.66, 2}, {[]time.Duration{3, 1, 2}, 0.67, 3}, {[]time.Duration{3, 1, 2}, 1, 3},
	} {
		if got := quantile(tt.values, tt.q); got != tt.want {
			t.Errorf("quantile(%v, %v) = %v, want %v", tt.values, tt.q, got, tt.want)
		}
	}
}

// TestMeasure: two replicas in the first second and a third in the second.
func TestMeasure(t *testing.T) {
	history := []arrival{
		{Arrived: 100 * ms, Replica: 1, Accepted: true}, {Arrived: 200 * ms, Replica: 2, Accepted: true},
		{Arrived: 900 * ms, Replica: 2}, {Arrived: 1000 * ms, Replica: 3, Accepted: true},
		{Arrived: 1999 * ms, Replica: 1, Accepted: true}, {Arrived: 2000 * ms, Replica: 1, Accepted: true},
	}
	for _, tt := range []struct {
		ph                  phase
		goodput, r429, fair float64
	}{
		{phase{From: 0, To: time.Second, Limit: 4, Alive: []int{1, 2}}, 0.5, 1. / 3, 1},
		{phase{From: time.Second, To: 2 * time.Second, Limit: 4, Alive: []int{1, 2, 3}}, 0.5, 0, 2. / 3},
		{phase{From: 3 * time.Second, To: 4 * time.Second, Limit: 4, Alive: []int{1}}, 0, 0, 1},
	} {
		got := measure(history, tt.ph)
		if got.Goodput != tt.goodput || got.Rejected != tt.r429 || math.Abs(got.Fairness-tt.fair) > 1e-12 {
			t.Errorf("%+v: %+v", tt, got)
		}
	}
}
