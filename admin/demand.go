package admin

import (
	"math"
	"time"

	"github.com/quotient-go/quotient"
)

// DemandState is the state of the reports between replicas on the limiter's keys: see quotient.Demand.
type DemandState struct {
	Keys  int `json:"keys"`  // that any replica reports
	Named int `json:"named"` // of these, reported by this replica
	Lent  int `json:"lent"`  // of these, those of which this replica has more than its share

	AgeSeconds    float64 `json:"age_seconds"`     // of the oldest reports; 0 while some is missing
	Missing       bool    `json:"missing"`         // a replica is not known to have reported
	MaxAgeSeconds float64 `json:"max_age_seconds"` // the shares hold while reports are older
	Fresh         bool    `json:"fresh"`           // no reports are missing or older; else the shares hold

	// Bytes of the source that carries the reports, since it was made, for all limiters of the process.
	SentBytes     uint64 `json:"sent_bytes"`
	ReceivedBytes uint64 `json:"received_bytes"`
}

// FleetState is what the limiters of this name have done together, each since it was made. The numbers fall
// when a replica goes.
type FleetState struct {
	Replicas int    `json:"replicas"` // whose numbers are included, each by its weight
	Admitted uint64 `json:"admitted"`
	Refused  uint64 `json:"refused"`
	Waiting  int    `json:"waiting"`
	InFlight int    `json:"in_flight"`

	AgeSeconds float64 `json:"age_seconds"` // of the oldest number; 0 while some is missing
	Missing    bool    `json:"missing"`     // the numbers are not of all replicas
}

// addDemand adds what is carried between the replicas, if anything is.
func (l *LimiterState) addDemand(s quotient.Stats) {
	d, f := s.Demand, s.Fleet
	if d.MaxAge == 0 {
		return
	}
	l.Demand = &DemandState{
		Keys: d.Keys, Named: d.Named, Lent: d.Lent, MaxAgeSeconds: d.MaxAge.Seconds(),
		Fresh: max(d.Age, f.Age) <= d.MaxAge, SentBytes: d.Sent, ReceivedBytes: d.Received,
	}
	l.Demand.AgeSeconds, l.Demand.Missing = newAge(max(d.Age, f.Age))
	l.Fleet = &FleetState{
		Replicas: f.Replicas, Admitted: f.Admitted, Refused: f.Refused, Waiting: f.Waiting, InFlight: f.InFlight,
	}
	l.Fleet.AgeSeconds, l.Fleet.Missing = newAge(f.Age)
}

// newAge is an age as JSON has it.
func newAge(age time.Duration) (seconds float64, missing bool) {
	if age == math.MaxInt64 {
		return 0, true
	}
	return age.Seconds(), false
}
