package policy

import (
	"fmt"
	"math"
	"time"
)

// RampMode is what a Ramp rises by.
type RampMode uint8

// The modes. The zero value rises by the clock alone.
const (
	// RampScheduled rises in every second, with calls or without.
	RampScheduled RampMode = iota
	// RampRelaxed rises once for each second with a call: one that took something, or that the controller held back.
	RampRelaxed
	// RampOnlyIfUsed rises once for each second in which at least Threshold of what was allowed was taken and kept.
	RampOnlyIfUsed
	// RampGoBack rises as RampOnlyIfUsed does. For each second with a call that stayed below the threshold it falls by
	// as much. For each second without a call, when CoolDown is over, it falls by Back of that.
	RampGoBack
)

var rampModes = [...]string{"scheduled", "relaxed", "only-if-used", "go-back"}

// String returns the mode's name: scheduled, relaxed, only-if-used, go-back, or invalid.
func (m RampMode) String() string {
	if int(m) < len(rampModes) {
		return rampModes[m]
	}
	return "invalid"
}

// MarshalText returns the mode's name, or an error with the number if there is no such mode.
func (m RampMode) MarshalText() ([]byte, error) {
	if int(m) < len(rampModes) {
		return []byte(rampModes[m]), nil
	}
	return nil, fmt.Errorf("policy: RampMode: there is no mode %d", m)
}

// UnmarshalText takes a mode's name exactly as String writes it. Anything else is an error, and the mode
// stays as it was.
func (m *RampMode) UnmarshalText(text []byte) error {
	for i, name := range rampModes {
		if string(text) == name {
			*m = RampMode(i)
			return nil
		}
	}
	return fmt.Errorf("policy: RampMode: %.40q is not one of %q", text, rampModes)
}

// Defaults of Ramp, those of the throttling of Numaflow, which the modes are taken from. The start is ours: as good as
// nothing, but a rate has to be positive.
const (
	defaultRampStart = 0.01
	defaultThreshold = 0.5
	defaultBack      = 0.5
	defaultCoolDown  = 5 * time.Second
)

// rampUnlimited is the rate where no limit is known: far beyond what one process admits in a second.
const rampUnlimited = 1e9

// rampSlack, relative, keeps a product that should be whole from being rounded down.
const rampSlack = 1e-9

// Ramp opens a limit gradually: for an upstream whose caches are cold, or that grows with its load, or that
// an operator watches while traffic is moved to it. The rate is a part of Bounds.Ceiling, from Start up to
// all of it: a change of the pool or of the limit moves the rate, and the part stays.
//
// It reads no answers: a 429 changes nothing, and it cannot be combined with a controller that reads one.
// Time counts in whole seconds since the controller's first call, which a limiter makes at the first call of
// a key; a key that was forgotten starts again. Events that were given back do not count as used.
//
// A controller may also govern slots: the ceiling is then in slots, and what was taken in slot-seconds, known when a
// request ends. Where requests last longer than a second RampScheduled and RampRelaxed suit better than the modes
// that look at use. Where there is no ceiling (+Inf) there is nothing to open, and the rate is 1e9 events a second.
//
// The zero value is ready, and has no ramp: it is at the ceiling at once. Fields that are out of range have
// their defaults in New; Validate names them.
type Ramp struct {
	// Mode is what the ramp rises by.
	Mode RampMode
	// Start is the part of the ceiling to start at, and the least later on: above 0, at most 1. 0 means 0.01.
	Start float64
	// Over is how long the way from Start to the ceiling takes if every second counts. 0 means that there is no ramp.
	Over time.Duration
	// Threshold is the part of what was allowed in a second that has to be used, above 0 and at most 1; 0 means 0.5.
	// The allowance counts in whole events: below one event a second each second with a call counts as used.
	Threshold float64
	// Back is how much of a second's rise RampGoBack loses for each second without a call past CoolDown, above 0 and
	// at most 1; 0 means 0.5.
	Back float64
	// CoolDown is how long RampGoBack stays without a call before it falls. 0 means 5 s; less than a second, a second.
	CoolDown time.Duration
	// Resume is the part of the ceiling that this replica had reached before a restart, 0 to 1. The controller starts
	// there, or at Start if that is more; 0 means at Start. The program that stores it decides for how long it counts.
	Resume float64
}

// Validate reports the first field that is out of range, or nil.
func (r Ramp) Validate() error {
	if int(r.Mode) >= len(rampModes) {
		return fmt.Errorf("policy: Ramp.Mode: there is no mode %d", r.Mode)
	}
	if r.Over < 0 {
		return fmt.Errorf("policy: Ramp.Over: %v is below 0", r.Over)
	}
	if r.CoolDown < 0 {
		return fmt.Errorf("policy: Ramp.CoolDown: %v is below 0", r.CoolDown)
	}
	for _, f := range []struct {
		name  string
		value float64
	}{{"Start", r.Start}, {"Threshold", r.Threshold}, {"Back", r.Back}, {"Resume", r.Resume}} {
		if !isPart(f.value) {
			return fmt.Errorf("policy: Ramp.%s: %v is not between 0 and 1", f.name, f.value)
		}
	}
	return nil
}

func isPart(x float64) bool { return x >= 0 && x <= 1 }

// New returns a controller at the foot of the ramp, or where it resumes. There is no chance in it: the seed
// is not used.
func (r Ramp) New(uint64) Controller {
	l := &ramp{mode: r.Mode, start: partOr(r.Start, defaultRampStart), threshold: partOr(r.Threshold, defaultThreshold),
		back: partOr(r.Back, defaultBack), cool: defaultCoolDown.Seconds(), over: max(0, r.Over.Seconds())}
	if int(r.Mode) >= len(rampModes) {
		l.mode = RampScheduled
	}
	if r.CoolDown > 0 {
		l.cool = max(1, r.CoolDown.Seconds())
	}
	if isPart(r.Resume) && r.Resume > l.start { // then the start is below 1
		l.foot = l.over * ((r.Resume - l.start) / (1 - l.start))
	}
	l.call.at = l.foot
	return l
}

// partOr returns a part that is set, or its default.
func partOr(x, otherwise float64) float64 {
	if x > 0 && x <= 1 {
		return x
	}
	return otherwise
}

// ramp is a controller. Where it stands is counted in seconds of rising, from 0 to over, because sums of
// whole seconds are exact.
type ramp struct {
	mode                   RampMode
	start, threshold, back float64
	cool, over, foot       float64 // seconds; foot is where it starts

	begun  bool
	last   time.Duration // the instant of the last sample
	second int64         // of the last sample, since the first one
	rest   time.Duration // of that second
	rate   float64       // that was allowed at the last sample
	call   rampCall
}

// rampCall is the latest second with a call. All later seconds follow from it, so it does not matter how
// often a sample without an answer comes.
type rampCall struct {
	any    bool // there was one
	second int64
	at     float64 // where the ramp stood in it
	used   float64 // in it
	whole  float64 // events that were allowed in it
}

// Next counts what was taken and whether calls were held back, and nothing else. That belongs to the second
// of the sample before: at the end of each second the controller is called again (see Pace.Until) before
// anything more is taken.
func (r *ramp) Next(s Sample, b Bounds) Pace {
	r.note(s)
	r.tick(s.Now)
	r.rate = r.of(b.Ceiling)
	return Pace{Rate: r.rate, Until: r.until(), Saved: time.Second}
}

func (r *ramp) note(s Sample) {
	if c := &r.call; s.Taken > 0 || s.Paced {
		if !c.any || c.second != r.second {
			*c = rampCall{any: true, second: r.second, at: r.at()}
		}
		c.whole = math.Floor(r.rate * (1 + rampSlack))
	}
	r.call.used = max(r.call.used+s.Taken, 0) // a NaN is less than any threshold, until the next second with a call
}

// tick counts the seconds. A clock that goes back stands still meanwhile.
func (r *ramp) tick(now time.Duration) {
	var d time.Duration
	if r.begun && now > r.last {
		if d = now - r.last; d < 0 {
			d = math.MaxInt64
		}
	}
	r.begun, r.last = true, now
	r.second += int64(d / time.Second)
	if r.rest += d % time.Second; r.rest >= time.Second {
		r.second++
		r.rest -= time.Second
	}
}

// until is the end of the second. Also at the top the controller wants to be called, or its key would be
// forgotten while it is in use; not where it has nothing to report.
func (r *ramp) until() time.Duration {
	left := time.Second - r.rest
	switch {
	case r.over == 0:
		return 0
	case r.last > math.MaxInt64-left:
		return math.MaxInt64
	}
	return r.last + left
}

// at is where the ramp stands in the present second.
func (r *ramp) at() float64 {
	c := &r.call
	gap, at := float64(r.second-c.second), c.at
	switch {
	case r.mode == RampScheduled:
		at = r.foot + float64(r.second)
	case gap == 0 || !c.any:
	case r.mode == RampRelaxed || c.used >= r.threshold*c.whole:
		at++
	case r.mode == RampGoBack:
		at--
	}
	if idle := gap - r.cool; r.mode == RampGoBack && idle > 0 {
		at = min(at, c.at) - r.back*idle // the rise was for those who go on
	}
	return min(max(at, 0), r.over)
}

// of is the rate under a ceiling.
func (r *ramp) of(ceiling float64) float64 {
	part := 1.0
	if at := r.at(); at < r.over {
		part = min(1, r.start+(1-r.start)*at/r.over)
	}
	switch {
	case math.IsInf(ceiling, 1):
		return rampUnlimited
	case !(ceiling > 0):
		return startUnknown * part // no limiter has such a ceiling
	}
	return max(part*ceiling, math.SmallestNonzeroFloat64)
}
