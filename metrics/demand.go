package metrics

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/quotient-go/quotient"
)

// fleetFamilies are the metrics of what replicas report to each other: see quotient.Demand.
var fleetFamilies = []family{
	carriedGauge("quotient_demand_keys",
		"Keys that any replica reports as short; absent unless a source carries such reports.",
		func(r *reading) float64 { return float64(r.Demand.Keys) }),
	carriedGauge("quotient_demand_named_keys", "Keys that this replica reports as short.",
		func(r *reading) float64 { return float64(r.Demand.Named) }),
	carriedGauge("quotient_demand_lent_keys", "Reported keys of which this replica has more than its share.",
		func(r *reading) float64 { return float64(r.Demand.Lent) }),
	newFamily(prometheus.GaugeValue, "quotient_demand_age_seconds",
		"Age of the oldest report from another replica; absent while one is missing.", nil, sendNewsAge),
	carriedGauge("quotient_demand_fresh",
		"1 while the report of every replica is recent enough, else 0: nothing is lent then.",
		func(r *reading) float64 { return bit(r.newsAge() <= r.Demand.MaxAge) }),
	newFamily(prometheus.CounterValue, "quotient_demand_bytes_total",
		"Bytes that the source has sent and received; the same for all limiters that follow it.",
		[]string{"direction"}, sendBytes),
	carriedGauge("quotient_fleet_replicas", "Replicas, by weight, in the sums of the fleet.",
		func(r *reading) float64 { return float64(r.Fleet.Replicas) }),
	totalGauge("quotient_fleet_admitted",
		"Requests admitted on all replicas; falls when a replica leaves; absent while a report is missing.",
		func(f *quotient.FleetStats) float64 { return float64(f.Admitted) }),
	totalGauge("quotient_fleet_refused",
		"Requests refused on all replicas; falls when a replica leaves; absent while a report is missing.",
		func(f *quotient.FleetStats) float64 { return float64(f.Refused) }),
	totalGauge("quotient_fleet_waiting",
		"Requests in queues on all replicas now; absent while a report is missing.",
		func(f *quotient.FleetStats) float64 { return float64(f.Waiting) }),
	totalGauge("quotient_fleet_in_flight",
		"Weight of the permits held on all replicas; absent while a report is missing.",
		func(f *quotient.FleetStats) float64 { return float64(f.InFlight) }),
}

// carriedGauge is a family of the limiters whose replicas report to each other.
func carriedGauge(name, help string, read func(*reading) float64) family {
	return newFamily(prometheus.GaugeValue, name, help, nil, func(r *reading, send func(float64, ...string)) {
		if r.carried() {
			send(read(r))
		}
	})
}

// totalGauge is a family of the limiters that know the sums of the fleet.
func totalGauge(name, help string, read func(*quotient.FleetStats) float64) family {
	return newFamily(prometheus.GaugeValue, name, help, nil, func(r *reading, send func(float64, ...string)) {
		if r.carried() && r.Fleet.Age < math.MaxInt64 {
			send(read(&r.Fleet))
		}
	})
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
