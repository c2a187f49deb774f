// Package figures is what limiters show of themselves: each figure once, with its names in Prometheus and in
// OpenTelemetry. It knows neither of them.
package figures

import (
	"fmt"
	"iter"
	"math"
	"strings"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/inside"
)

// Kind of a figure: values that only grow, values that may be added up over replicas, and values that may not.
type Kind uint8

// The kinds.
const (
	Counts Kind = iota
	Sums
	Levels
)

// Figure is one metric of every limiter. Labels are those beside the limiter's name.
type Figure struct {
	Kind                         Kind
	Prometheus, OTel, Unit, Text string
	Labels                       []string
	Read                         func(r *Reading, send func(v float64, labels ...string))
}

// Reading is one limiter as a scrape or a collection sees it.
type Reading struct {
	quotient.Stats
	inside.More
	limiter *quotient.Limiter
}

var moreOf = inside.MoreOf.(func(*quotient.Stats) *inside.More)

// Of reads a limiter once.
func Of(l *quotient.Limiter) *Reading {
	s := l.Stats()
	return &Reading{s, *moreOf(&s), l}
}

// single is a figure with one series a limiter.
func single(k Kind, prometheus, otel, unit, text string, read func(*Reading) float64) Figure {
	return Figure{k, prometheus, otel, unit, text, nil,
		func(r *Reading, send func(float64, ...string)) { send(read(r)) }}
}

// counter is a single figure that counts.
func counter(prometheus, otel, unit, text string, read func(*Reading) uint64) Figure {
	return single(Counts, prometheus, otel, unit, text, func(r *Reading) float64 { return float64(read(r)) })
}

// carried is a single figure of the limiters whose replicas report to each other: see quotient.Demand.
func carried(k Kind, prometheus, otel, unit, text string, read func(*Reading) float64) Figure {
	return Figure{k, prometheus, otel, unit, text, nil, func(r *Reading, send func(float64, ...string)) {
		if r.carried() {
			send(read(r))
		}
	}}
}

// total is a single figure of the limiters that know the sums of the fleet.
func total(prometheus, otel, text string, read func(*quotient.FleetStats) float64) Figure {
	return Figure{Levels, prometheus, otel, "{request}", text, nil,
		func(r *Reading, send func(float64, ...string)) {
			if r.carried() && r.Fleet.Age < math.MaxInt64 {
				send(read(&r.Fleet))
			}
		}}
}

func (r *Reading) carried() bool { return r.Demand.MaxAge > 0 }

// newsAge is the age of the oldest report.
func (r *Reading) newsAge() time.Duration { return max(r.Demand.Age, r.Fleet.Age) }

func sendNewsAge(r *Reading, send func(float64, ...string)) {
	if age := r.newsAge(); r.carried() && age < math.MaxInt64 {
		send(age.Seconds())
	}
}

func sendBytes(r *Reading, send func(float64, ...string)) {
	if r.carried() {
		send(float64(r.Demand.Sent), "sent")
		send(float64(r.Demand.Received), "received")
	}
}

// reasons are all that a refusal can have, so that each has a series before its first time.
var reasons = func() (all []quotient.Reason) {
	for r := quotient.ReasonNone + 1; r.String() != "invalid"; r++ {
		all = append(all, r)
	}
	return all
}()

func sendRequests(r *Reading, send func(float64, ...string)) {
	none := quotient.ReasonNone.String()
	send(float64(r.Admitted), "admitted", none)
	send(float64(r.Cancelled), "cancelled", none)
	for _, why := range reasons {
		send(float64(r.Refused[why]), "refused", why.String())
	}
}

func sendPlanRequests(r *Reading, send func(float64, ...string)) {
	for plan, p := range r.plans() {
		send(float64(p.Admitted), plan, "admitted")
		send(float64(p.Refused), plan, "refused")
	}
}

func sendDryRun(r *Reading, send func(float64, ...string)) {
	for _, why := range reasons {
		send(float64(r.DryRunAdmitted[why]), why.String())
	}
}

// plans iterates over the limits of a limiter: its own, which has no name, and those of its plans, each with
// a name that a scrape can carry.
func (r *Reading) plans() iter.Seq2[string, quotient.PlanStats] {
	return func(yield func(string, quotient.PlanStats) bool) {
		if !yield("", r.PlanStats) {
			return
		}
		for name, p := range r.Plans {
			if !yield(label(name), p) {
				return
			}
		}
	}
}

// sendRates shows the rates of each limit in events per second, with labels that no other rate of the limit has. A
// number tells two names apart that become the same label: one bad name must not cost the whole scrape, and an SDK
// of OpenTelemetry adds up what has the same attributes.
func sendRates(r *Reading, send func(float64, ...string)) {
	for plan, p := range r.plans() {
		taken := make(map[[2]string]bool, len(p.Rules))
		for i, rate := range p.Rules {
			if rate.Window == 0 {
				continue // the slots, or a policy
			}
			id := [2]string{label(rate.Name), "requests"}
			if rate.Unit != "" {
				id[1] = label(rate.Unit)
			}
			for taken[id] {
				id[0] = fmt.Sprintf("%s #%d", id[0], i+1)
			}
			taken[id] = true
			send(rate.Limit/rate.Window.Seconds(), plan, id[0], id[1], "global")
			send(rate.Share/rate.Window.Seconds(), plan, id[0], id[1], "share")
		}
	}
}

func sendSlots(r *Reading, send func(float64, ...string)) {
	for plan, p := range r.plans() {
		for _, rule := range p.Rules {
			if rule.Window == 0 && rule.Pace == 0 {
				send(rule.Limit, plan, "global")
				send(rule.Share, plan, "share")
			}
		}
	}
}

func sendDenies(r *Reading, send func(float64, ...string)) {
	for plan, p := range r.plans() {
		send(Bit(p.Limit.Deny), plan)
	}
}

func sendAge(r *Reading, send func(float64, ...string)) {
	if r.Pool.Reports > 0 {
		send(r.Pool.Age.Seconds())
	}
}

// mostLearned is how many keys a scrape reads. The keys of a limiter that learns are upstreams or routes and
// not clients. The sum over more keys than that would say little.
const mostLearned = 1000

// sendLearned adds up what the keys have learned; keys without a pace of their own do not count.
func sendLearned(r *Reading, send func(float64, ...string)) {
	if !r.Learns || r.Keys > mostLearned {
		return
	}
	var sum, least float64
	for k := range r.limiter.Keys() {
		for _, rule := range k.Rules {
			if rule.Pace == 0 || rule.Unit != "" {
				continue
			}
			if sum == 0 || rule.Pace < least {
				least = rule.Pace
			}
			sum += rule.Pace
		}
	}
	send(sum, "sum")
	if least > 0 { // the least of nothing would be below every other replica's
		send(least, "min")
	}
}

// longestLabel is the most bytes of a name that become a label. Operators choose the names of rules and units.
const longestLabel = 64

// label returns a name as a short label of valid UTF-8. U+FFFD replaces other bytes, and half a rune at the cut.
func label(name string) string {
	return strings.ToValidUTF8(name[:min(len(name), longestLabel)], "\uFFFD")
}

// Bit is 1 for true.
func Bit(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Epoch is an instant in seconds since 1970; 0 for none.
func Epoch(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}
