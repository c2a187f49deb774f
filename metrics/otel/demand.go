package otel

import (
	"math"
	"time"

	"github.com/quotient-go/quotient"
)

// carried is an instrument of the limiters whose replicas report to each other: see quotient.Demand.
func carried(k kind, name, unit, text string, read func(*reading) float64) instrument {
	return instrument{name, unit, text, k, nil, func(r *reading, send func(float64, ...string)) {
		if r.carried() {
			send(read(r))
		}
	}}
}

// total is an instrument of the limiters that know the sums of the fleet.
func total(name, unit, text string, read func(*quotient.FleetStats) float64) instrument {
	return instrument{name, unit, text, levels, nil, func(r *reading, send func(float64, ...string)) {
		if r.carried() && r.Fleet.Age < math.MaxInt64 {
			send(read(&r.Fleet))
		}
	}}
}

func (r *reading) carried() bool { return r.Demand.MaxAge > 0 }

// newsAge is the age of the oldest report.
func (r *reading) newsAge() time.Duration { return max(r.Demand.Age, r.Fleet.Age) }

func sendNewsAge(r *reading, send func(float64, ...string)) {
	if age := r.newsAge(); r.carried() && age < math.MaxInt64 {
		send(age.Seconds())
	}
}

func sendBytes(r *reading, send func(float64, ...string)) {
	if r.carried() {
		send(float64(r.Demand.Sent), "sent")
		send(float64(r.Demand.Received), "received")
	}
}
