package metrics

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/quotient-go/quotient"
)

// carriedGauge is a family of the limiters between which something is carried: see quotient.Demand.
func carriedGauge(name, help string, read func(*reading) float64) family {
	return newFamily(prometheus.GaugeValue, name, help, nil, func(r *reading, send func(float64, ...string)) {
		if r.carried() {
			send(read(r))
		}
	})
}

// totalGauge is a family of the limiters that know what all of the fleet has done.
func totalGauge(name, help string, read func(*quotient.FleetStats) float64) family {
	return newFamily(prometheus.GaugeValue, name, help, nil, func(r *reading, send func(float64, ...string)) {
		if r.carried() && r.Fleet.Age < math.MaxInt64 {
			send(read(&r.Fleet))
		}
	})
}

func (r *reading) carried() bool { return r.Demand.MaxAge > 0 }

// newsAge is how old the oldest news is.
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
