package quotient

import (
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/quotient-go/quotient/internal/meter"
)

// Limit is what one key may do over the whole fleet, and its zero value limits nothing. Every replica enforces its
// share. A call is admitted when all parts have room, else it takes nothing.
type Limit struct {
	Rates    []Rate // at most 16; none means no such bound
	InFlight int    // slots for admitted and unreleased calls, 0 to 1<<30; 0 means no such bound
	Deny     bool   // refuses everything, and excludes Rates and InFlight
}

// Rate is a number of events per period, over the fleet. Its Kind says when in the period they may come.
type Rate struct {
	// Name is the rule's name; an empty one is "rate 1", "rate 2" … by position. A changed limit keeps the state of the
	// rates whose Name and Unit stay. Unit is what is counted: requests if it is empty (see Weight), or something else
	// that calls take by Cost. A Limiter counts at most three such units.
	Name, Unit string
	// Events come in each Per, which is 1 ns or longer, and for a window 1 ms. At most 1e12 come in a Per, and in a
	// second. At least 0.001 come in a window, or with another Kind in the longest Duration.
	Events float64
	Per    time.Duration
	Kind   Kind
	// Burst is how many events a full Bucket admits at once: 0 to 1<<40, or to the largest int where that has 32
	// bits. 0 means Events, at least 1. Paced may say 1, which it always is, and a window has none.
	Burst int
	// NoTurns has each replica of a Paced rate keep an interval of its own, so events of several may coincide.
	NoTurns bool
	// Zone has windows of whole days begin at midnight of a time zone of the IANA database, such as Europe/Berlin, and
	// weeks on Monday. A day in which clocks change has 23 or 25 hours, and one quota. Empty means UTC. A change of it
	// is one of the window: the new one begins with what the old one has left. New refuses names that
	// time.LoadLocation does not find, and Local. A program may embed the database: see time/tzdata. Where replicas
	// have different ones, their days may differ.
	Zone string
}

// Kind is when the events of a Rate may come.
type Kind uint8

const (
	// Bucket fills at Events per Per up to Burst, so that a pause is not lost. A full one admits its burst and then
	// what fills in, so an upstream that counts windows may see twice Events in the first Per, unless Burst is small.
	Bucket Kind = iota
	// Paced saves nothing up: two events are at least the interval I = Per/Events apart. Each of N replicas waits N
	// times as long, but they might still act at the same instant. So those that know their ordinal take turns by the
	// wall clock: in each round of N I, replica i admits one event at (i-1) I, or up to I/10 later. If all believe in
	// the same pool, the fleet's events are then at least .9 I apart, less what the clocks differ. There are no turns
	// under a policy that learns, or for I below 50 ms, which is too short for timers, nor beside a window or a slower
	// Paced rate, as the two might never be open together. From I = 1 s on, a caller that wakes more than I/10 late is
	// queued again at the head of its class, at most three times.
	Paced
	// Window counts from 0 in each Per of the wall clock since the Unix epoch, such as a full minute, and in weeks from
	// Monday, by UTC or Zone, so that the end of one and the start of the next may bring twice Events. A share of less
	// than one event has room in some windows only, and all such rates of a limit but the one with the longest Per keep
	// an event until it is used.
	Window
	// CountedWindow is a Window whose Events belong to all replicas together: the first calls take them, on any. It
	// takes Demand and a source that sums up, as poolsize/gossip. At the start of a window, and where a replica does
	// not report, the share decides. docs/bounds.md says by how much a window can then be exceeded.
	CountedWindow
)

// kindNames are the kinds as files, logs and the admin API spell them.
var kindNames = [...]string{Bucket: "bucket", Paced: "paced", Window: "window", CountedWindow: "counted-window"}

// String is bucket, paced, window or counted-window.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// windowed reports whether the rate counts windows of the wall clock.
func (r Rate) windowed() bool { return r.Kind == Window || r.Kind == CountedWindow }

// Bounds of what a Limit may hold, so that thousandths of events and nanoseconds stay exact in a float64 and
// in range of an int64.
const (
	maxRates    = 16
	maxUnits    = 3 // units besides requests that one Limiter can count at a time
	maxInFlight = 1 << 30
	maxEvents   = 1e12
	minWindow   = time.Millisecond
)

// minRate is the slowest rate, in events a second: one thousandth, the least that is counted, in the
// longest Duration.
var minRate = Rate{Events: 1.0 / meter.Milli, Per: meter.Never}.perSecond()

// Rates is the limit of these rates.
func Rates(rates ...Rate) Limit { return Limit{Rates: rates} }

// PerSecond is a Bucket of so many requests a second, all of which may come at once. Its name is "second".
func PerSecond(events float64) Rate {
	return Rate{Name: "second", Events: events, Per: time.Second}
}

// PerMinute is PerSecond for a minute. Its name is "minute".
func PerMinute(events float64) Rate {
	return Rate{Name: "minute", Events: events, Per: time.Minute}
}

// PerHour is PerSecond for an hour. Its name is "hour".
func PerHour(events float64) Rate {
	return Rate{Name: "hour", Events: events, Per: time.Hour}
}

// Every is a Paced rate: at most one request in every interval, none saved up. Its name is "interval".
func Every(interval time.Duration) Rate {
	return Rate{Name: "interval", Events: 1, Per: interval, Kind: Paced}
}

// FromRate is the rate of a rate.Limiter of x/time/rate, now for the whole fleet. A burst of 1 makes it Paced,
// as it does there. New refuses limits that are rate.Inf, 0 or below, and bursts below 1.
func FromRate(limit rate.Limit, burst int) Rate {
	r := Rate{Name: "second", Events: float64(limit), Per: time.Second, Burst: burst}
	switch burst {
	case 0:
		r.Burst = -1 // it admits nothing there, and would be Events here
	case 1:
		r.Kind = Paced
	}
	return r
}

// Validate returns an error that names the first field out of range, or nil.
func (l Limit) Validate() error {
	if l.InFlight < 0 || l.InFlight > maxInFlight {
		return fmt.Errorf("quotient: Limit.InFlight: %d is not between 0 and %d", l.InFlight, maxInFlight)
	}
	if len(l.Rates) > maxRates {
		return fmt.Errorf("quotient: Limit.Rates: %d are more than %d", len(l.Rates), maxRates)
	}
	if l.Deny && (len(l.Rates) > 0 || l.InFlight > 0) {
		return fmt.Errorf(
			"quotient: Limit.Deny: true excludes rates and slots, but %d rates and %d slots are set",
			len(l.Rates), l.InFlight)
	}
	seen := make(map[[2]string]int, len(l.Rates))
	for i, r := range l.Rates {
		if err := r.validate(); err != nil {
			return fmt.Errorf("quotient: Limit.Rates[%d].%w", i, err)
		}
		id := [2]string{r.name(i), r.Unit}
		if j, ok := seen[id]; ok {
			return fmt.Errorf("quotient: Limit.Rates[%d].Name: %q is the name of Rates[%d] too", i, id[0], j)
		}
		seen[id] = i
	}
	return nil
}

func (r Rate) validate() error {
	switch {
	case !(r.Events > 0 && r.Events <= maxEvents): // also NaN
		return fmt.Errorf("Events: %v is not above 0 and at most %g", r.Events, float64(maxEvents))
	case r.Per <= 0:
		return fmt.Errorf("Per: %v is not above 0", r.Per)
	case r.Burst < 0 || r.Burst > maxAmount:
		return fmt.Errorf("Burst: %d is not between 0 and %d", r.Burst, maxAmount)
	case int(r.Kind) >= len(kindNames):
		return fmt.Errorf("Kind: %v is none of %v", r.Kind, kindNames)
	case r.Kind == Paced && r.Burst > 1:
		return fmt.Errorf("Burst: %d on a paced rate, whose burst is 1", r.Burst)
	case r.windowed() && r.Burst != 0:
		return fmt.Errorf("Burst: %d on a %v, which has no burst", r.Burst, r.Kind)
	case r.windowed() && r.Events < 1.0/meter.Milli:
		return fmt.Errorf("Events: %v in a %v is below a thousandth", r.Events, r.Kind)
	case r.windowed() && r.Per < minWindow:
		return fmt.Errorf("Per: %v is shorter than %v, the shortest %v", r.Per, minWindow, r.Kind)
	case r.perSecond() > maxEvents:
		return fmt.Errorf("Events: %v per %v are more than %g a second", r.Events, r.Per, float64(maxEvents))
	case r.perSecond() < minRate:
		return fmt.Errorf("Events: %v per %v are less than %.3g a second, a thousandth of an event in %v",
			r.Events, r.Per, minRate, meter.Never)
	}
	return r.validateZone()
}

func (r Rate) validateZone() error {
	switch _, err := r.days(); {
	case err != nil:
		return fmt.Errorf("Zone: %w", err)
	case r.Zone != "" && !r.windowed():
		return fmt.Errorf("Zone: %q on a %v, which does not count days", r.Zone, r.Kind)
	case r.Zone != "" && r.Per%(24*time.Hour) != 0:
		return fmt.Errorf("Zone: %q on a %v of %v, which is no number of days", r.Zone, r.Kind, r.Per)
	}
	return nil
}

// days are those of the rate's zone; nil for UTC.
func (r Rate) days() (*meter.Days, error) {
	if r.Zone == "" {
		return nil, nil
	}
	return meter.DaysIn(r.Zone)
}

func (r Rate) perSecond() float64 { return r.Events / r.Per.Seconds() }

// burst is the global burst in events.
func (r Rate) burst() float64 {
	switch {
	case r.windowed():
		return math.Ceil(r.Events) // fractions add up to one more event in some windows
	case r.Kind == Paced:
		return 1
	case r.Burst > 0:
		return float64(r.Burst)
	}
	return max(1, r.Events)
}

// needless reports whether r never decides beside o: o never admits more than r would.
func (r Rate) needless(o Rate) bool {
	most, speed, per := o.burst(), o.perSecond(), r.Per // o admits most, and speed a second, in any time
	if o.windowed() {
		most *= 2 // the end of a window and the start of the next
	}
	switch {
	case r.Unit != o.Unit:
		return false
	case r.Kind == Paced && (o.Kind != Paced || o.NoTurns && !r.NoTurns):
		return false // only r has turns, or turns that expire
	case !r.windowed():
		return most <= r.burst() && speed <= r.perSecond()
	case o.windowed() && r.Per%o.Per == 0 && r.Zone == o.Zone:
		most = 0 // no window of o is in two of r
	case r.Zone != "":
		per += 25 * time.Hour // no zone has ever had a longer day
	}
	return most+speed*per.Seconds() <= math.Floor(r.Events)
}

// warn logs each rate that never decides beside another one: of two equal ones the later.
func (l Limit) warn(log *slog.Logger) {
	for i, r := range l.Rates {
		for j, o := range l.Rates {
			if i != j && r.needless(o) && (j < i || !o.needless(r)) {
				log.Warn("rate never decides", "rate", r.name(i)+": "+r.words(),
					"beside", o.name(j)+": "+o.words())
				break
			}
		}
	}
}

// name is the rule's name: its own, or its position's.
func (r Rate) name(i int) string {
	if r.Name != "" {
		return r.Name
	}
	return fmt.Sprintf("rate %d", i+1)
}

// clone returns a limit that shares no memory with l.
func (l Limit) clone() Limit {
	l.Rates = append([]Rate(nil), l.Rates...)
	return l
}

// copyOf is a clone of a limit, or none.
func copyOf(limit *Limit) *Limit {
	if limit == nil {
		return nil
	}
	return new(limit.clone())
}

// sameLimit reports whether there are two equal limits, or none.
func sameLimit(a, b *Limit) bool { return a == b || a != nil && b != nil && a.equal(*b) }

// equal reports whether both limits are the same in every field, whether or not the burst of a paced rate is written.
func (l Limit) equal(m Limit) bool {
	same := func(r, o Rate) bool {
		if r.Kind == Paced {
			r.Burst, o.Burst = 0, 0
		}
		return r == o
	}
	return l.InFlight == m.InFlight && l.Deny == m.Deny && slices.EqualFunc(l.Rates, m.Rates, same)
}

// String is in words: "second: 100 per 1s, in flight: 10".
func (l Limit) String() string {
	if l.Deny {
		return "deny"
	}
	var parts []string
	for i, r := range l.Rates {
		parts = append(parts, r.name(i)+": "+r.words())
	}
	if l.InFlight > 0 {
		parts = append(parts, fmt.Sprintf("in flight: %d", l.InFlight))
	}
	if parts == nil {
		return "no limit"
	}
	return strings.Join(parts, ", ")
}

// LogValue is String, so that every handler of a log shows a limit in words.
func (l Limit) LogValue() slog.Value { return slog.StringValue(l.String()) }

// valueOf is a limit for the log, and none is one too.
func valueOf(limit *Limit) slog.Value {
	if limit == nil {
		return slog.StringValue("none")
	}
	return limit.LogValue()
}

// words is the rate without its name: "100 tokens per 1s, burst 200".
func (r Rate) words() string {
	s := exact(r.Events) + inUnit(r.Unit, r.Per)
	switch {
	case r.Kind != Bucket:
		s += ", " + r.Kind.String()
	case r.Burst > 0:
		s += fmt.Sprintf(", burst %d", r.Burst)
	}
	if r.NoTurns {
		s += ", no turns"
	}
	if r.Zone != "" {
		s += ", " + r.Zone
	}
	return s
}

// shareWords is a rule's share and limit: "share 25 of 100 tokens per 1m".
func shareWords(share, limit float64, unit string, window time.Duration) string {
	return "share " + digits(share) + " of " + exact(limit) + inUnit(unit, window)
}

// inUnit is what stands behind a number of events: " tokens per 1m". Slots have no window, and need no unit.
func inUnit(unit string, window time.Duration) (s string) {
	if window == 0 {
		return ""
	}
	if unit != "" {
		s = " " + unit
	}
	per := window.String()
	if strings.HasSuffix(per, "m0s") {
		per = strings.TrimSuffix(per, "0s")
	}
	if strings.HasSuffix(per, "h0m") {
		per = strings.TrimSuffix(per, "0m")
	}
	return s + " per " + per
}

// exact is a number as it was configured, without an exponent unless it is tiny.
func exact(n float64) string {
	if n < 1e-6 {
		return strconv.FormatFloat(n, 'g', -1, 64)
	}
	return strconv.FormatFloat(n, 'f', -1, 64)
}

// digits is a number with three significant digits, and all those in front of its point.
func digits(n float64) string {
	if math.Abs(n) >= 100 {
		return strconv.FormatFloat(math.Round(n), 'f', -1, 64)
	}
	return strconv.FormatFloat(n, 'g', 3, 64)
}

// short is a wait with three significant digits.
func short(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit)
}
