package policy

import (
	"math"
	"time"
)

// Fleet is the sum of the reports of all replicas, this one included, about what a controller governs. The zero
// value means no report; a controller then uses its own answers alone. A controller gets a Fleet only while it
// is complete and at most a few seconds old.
//
// Weights are in units of this replica's own: each of equal replicas counts 1. Rates are in the units of
// Pace.Rate: events per second, or slots. They are plain sums over the replicas. A controller survives any
// reports, true or not.
type Fleet struct {
	// Weight is of all known replicas, this one included: 1 or more, or 0 when there is no report.
	Weight float64
	// Limit is what Share is a part of, in events per second or slots: Bounds.Share times the number of
	// parts that it was computed with, which may not be Weight. It is 0 when Share is.
	Limit float64
	// Wanting is the weight of the replicas that want more than they have (Report.Wanting), at most Weight.
	Wanting float64
	// Rate is the sum of what those allow themselves.
	Rate float64
	// Used is the sum of what the others use.
	Used float64
	// Refused is the sum of refusals that all see, in the units of Rate.
	Refused float64
}

// known reports whether there is a report. The figures of a known report may still be anything.
func (f *Fleet) known() bool { return f != nil && f.Weight >= 1 && f.Weight <= math.MaxFloat64 }

// sound reports whether there is a report that can be computed with.
func (f *Fleet) sound() bool {
	return f.known() && f.Weight <= greatestRate && f.Wanting >= 0 && f.Rate >= 0 && f.Used >= 0 && f.Refused >= 0 &&
		f.Rate+f.Used+f.Refused <= greatestRate
}

// Report is what a controller lets its replica send to the fleet. The sum of all reports is a Fleet. The
// zero value reports no use.
type Report struct {
	// Wanting reports whether the pace holds requests back, or the replica uses more than the replicas that
	// want more may use.
	Wanting bool
	// Rate is what the replica allows itself if it is Wanting, else what it uses: finite, 0 or more.
	Rate float64
	// Refused is what it is refused: finite, 0 or more.
	Refused float64
}

// Reporter is a Controller that uses reports of the fleet; others get none. A limiter passes its Report on
// to the other replicas, about once in each interval. When reports have come it calls Next with the outcome
// Unknown and the new Bounds.
type Reporter interface {
	Controller
	// Report returns what the replica is to pass on at an instant, on the clock of Sample.Now. It changes
	// nothing, and is called as Next is: by one goroutine at a time. The use fades while no feedback comes.
	Report(now time.Duration) Report
}
