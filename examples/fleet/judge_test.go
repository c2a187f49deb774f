package main

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const ms = time.Millisecond

// allowed is what b lets leave from one instant to another, both included, when a window begins a time before.
func allowed(b budget, from, to, late time.Duration) float64 {
	first, before := b.at(from - late)
	before -= first.saved * (from - late - first.from).Seconds()
	now, _ := b.at(from)
	_, after := b.at(to)
	return after - before + max(first.burst, now.burst)
}

func TestAllowed(t *testing.T) {
	flat := budget{{rate: 100, burst: 10}}
	shrunk := budget{{0, 10, 4, 0}, {time.Second, 5, 2, 0}, {3 * time.Second, 20, 8, 0}}
	grown := flat.grow(200*ms, 100*ms, 6) // 20 a second more
	for _, tt := range []struct {
		b              budget
		from, to, late time.Duration
		want           float64
	}{
		{flat, 0, 0, 0, 10}, {flat, -500 * ms, 500 * ms, 0, 110}, {flat, 0, 0, 50 * ms, 15},
		{shrunk, -time.Second, 0, 0, 14}, {shrunk, 500 * ms, 2 * time.Second, 0, 14},
		{shrunk, time.Second, 2 * time.Second, 0, 7}, {shrunk, 0, 4 * time.Second, 0, 44},
		{shrunk, 3 * time.Second, 3 * time.Second, time.Second, 13}, {shrunk, time.Second, time.Second, 500 * ms, 9},
		{grown, 0, 100 * ms, 0, 20}, {grown, 0, 300 * ms, 0, 42}, {grown, 0, time.Second, 0, 112},
		{grown, 250 * ms, 300 * ms, 0, 17}, {grown, 200 * ms, 299 * ms, 0, 21.88}, {grown, 300 * ms, 400 * ms, 0, 20},
	} {
		if got := allowed(tt.b, tt.from, tt.to, tt.late); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%+v: %v to %v, %v late, allows %v, want %v", tt.b, tt.from, tt.to, tt.late, got, tt.want)
		}
	}
}

// anyBudget draws a budget with up to three steps.
func anyBudget(t *rapid.T) (b budget) {
	amount := rapid.Float64Range(0.1, 50)
	from := time.Duration(0)
	for range rapid.IntRange(1, 3).Draw(t, "steps") {
		b = append(b, step{from, amount.Draw(t, "rate"), amount.Draw(t, "burst"), 0})
		from += time.Duration(rapid.IntRange(0, 3000).Draw(t, "step")) * ms
	}
	return b
}

// TestPropertyWorstWindow compares the one pass with a look at every window.
func TestPropertyWorstWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, late := anyBudget(t), time.Duration(rapid.IntRange(0, 50).Draw(t, "late"))*ms
		var sent []time.Duration
		for _, at := range rapid.SliceOfN(rapid.IntRange(-200, 4000), 1, 60).Draw(t, "departures") {
			sent = append(sent, time.Duration(at)*ms)
		}
		slices.Sort(sent)
		most := math.Inf(-1)
		for i, from := range sent {
			for j := i; j < len(sent); j++ {
				most = max(most, float64(j-i+1)-allowed(b, from, sent[j], late))
			}
		}
		got := b.worst(sent, late)
		excess, more := float64(got.Sent)-got.Allowed, got.Allowed-allowed(b, got.From+late, got.To, late)
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

// latest is how late a request leaves at most.
const latest = 100 * ms

// send appends up to n requests to sent that might leave now, and do so a drawn time later.
func (s *sender) send(t *rapid.T, now time.Duration, sent []time.Duration) []time.Duration {
	s.fill(now)
	n := min(rapid.IntRange(0, 40).Draw(t, "demand"), int(s.tokens+1e-9))
	s.tokens -= float64(n)
	late := time.Duration(rapid.Int64Range(0, int64(latest)).Draw(t, "late"))
	return append(sent, slices.Repeat([]time.Duration{now + late}, n)...)
}

// blame fails the test if the requests exceed the budget.
func blame(t *rapid.T, b budget, sent []time.Duration) {
	slices.Sort(sent)
	if w := b.worst(sent, latest); w.broken() {
		t.Fatalf("%+v accuses those who keep it: %+v", b, w)
	}
}

// TestPropertyCorrectReplica: a bucket never exceeds its own budget, whatever the requests.
func TestPropertyCorrectReplica(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := anyBudget(t)
		for i := range b {
			b[i].burst = max(1, b[i].burst)
		}
		s := &sender{rate: b[0].rate, size: b[0].burst, tokens: b[0].burst}
		var sent []time.Duration
		next := 1
		for now := time.Duration(0); now < 6*time.Second; now += time.Duration(rapid.IntRange(1, 400).Draw(t, "gap")) * ms {
			for next < len(b) && b[next].from <= now {
				s.set(b[next].from, b[next].rate, b[next].burst)
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
		b := budget{{rate: rate, burst: max(burst, float64(n+1))}}.grow(born, known-born, n+1)
		var sent []time.Duration
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

// TestARulingExcusesNoMoreThanTheMachine: each replica of two may send 2 at once, and one more for 20 ms.
func TestARulingExcusesNoMoreThanTheMachine(t *testing.T) {
	for _, tt := range []struct {
		n      int
		stall  time.Duration
		broken int
	}{{2, 0, 0}, {3, 4 * ms, 2}, {3, 5 * ms, 1}, {3, 15 * ms, 0}, {4, 15 * ms, 1}, {5, 15 * ms, 2}} {
		shares := []step{{rate: 25, burst: 2}}
		f := &fleet{plan: plan{Limit: 50, Burst: 2}, phases: []phase{{Alive: []int{1}}},
			all: []*process{{id: 1, steps: shares, state: Report{Stall: tt.stall}}, {id: 2, steps: shares}}}
		f.log = slices.Repeat([]arrival{{Replica: 1, Sent: time.Second}}, tt.n)
		_, checks := f.ruling()
		if broken := len(slices.DeleteFunc(checks, func(c check) bool { return c.Held })); broken != tt.broken {
			t.Errorf("%d at once, stall %v: %d broken, want %d", tt.n, tt.stall, broken, tt.broken)
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
