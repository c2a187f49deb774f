package main

import (
	"math"
	"slices"
	"time"

	"github.com/quotient-go/quotient/examples/fleet/upstream"
)

// jain is Jain's fairness index of what each one got: 1 when all got the same, 1/n when one got everything.
// It is 1 for no clients, and when no client got anything.
func jain(got []float64) float64 {
	var sum, squares float64
	for _, x := range got {
		sum += x
		squares += x * x
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (float64(len(got)) * squares)
}

// quantile is the smallest value that a share q of all values does not exceed; 0 without values.
// It orders values in place.
func quantile(values []time.Duration, q float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	i := int(math.Ceil(q*float64(len(values)))) - 1
	return values[min(max(i, 0), len(values)-1)]
}

// A phase is a time in which the same replicas lived, under the same limit.
type phase struct {
	From, To time.Duration // by the upstream's clock
	Limit    float64       // requests a second
	Alive    []int
}

// A result is what the upstream saw in one phase.
type result struct {
	phase
	Goodput  float64 // accepted, as a share of the limit
	Rejected float64 // answered 429, as a share of what arrived
	Fairness float64
}

// measure counts what arrived in a phase.
func measure(log []upstream.Arrival, ph phase) result {
	var arrived, accepted float64
	got := make([]float64, len(ph.Alive))
	for _, a := range log {
		if a.Arrived < ph.From || a.Arrived >= ph.To {
			continue
		}
		arrived++
		if !a.Accepted {
			continue
		}
		accepted++
		if i := slices.Index(ph.Alive, a.Replica); i >= 0 {
			got[i]++
		}
	}
	return result{
		phase:    ph,
		Goodput:  accepted / (ph.Limit * (ph.To - ph.From).Seconds()),
		Rejected: (arrived - accepted) / max(1, arrived),
		Fairness: jain(got),
	}
}

// A second is one replica's part of one line of the output.
type second struct{ Sent, Rejected int }

// count adds up what arrived from one instant to another, by replica.
func count(log []upstream.Arrival, from, to time.Duration) map[int]second {
	by := make(map[int]second)
	for _, a := range log {
		if a.Arrived < from || a.Arrived >= to {
			continue
		}
		s := by[a.Replica]
		s.Sent++
		if !a.Accepted {
			s.Rejected++
		}
		by[a.Replica] = s
	}
	return by
}
