package otel

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/quotient-go/quotient"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// record is the hook of one limiter. The options are made once, so that recording allocates nothing here.
func record(name string, wait, overhead metric.Float64Histogram) quotient.Option {
	opts := []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(attribute.String("quotient.limiter", name)))}
	ctx := context.Background()
	return quotient.OnAdmit(func(_ string, waited, late time.Duration) {
		wait.Record(ctx, waited.Seconds(), opts...)
		overhead.Record(ctx, late.Seconds(), opts...)
	})
}

// reading is one limiter as a collection sees it.
type reading struct {
	quotient.Stats
	limiter *quotient.Limiter
}

// kind of an instrument: values that only grow, values that may be added up over replicas, and values that may not.
type kind uint8

const (
	counts kind = iota
	sums
	levels
)

// instrument is one observable of every limiter; labels are those beside the limiter's name, without their prefix.
type instrument struct {
	name, unit, text string
	kind             kind
	labels           []string
	read             func(r *reading, send func(v float64, labels ...string))
}

func single(k kind, name, unit, text string, read func(*reading) float64) instrument {
	return instrument{name, unit, text, k, nil, func(r *reading, send func(float64, ...string)) { send(read(r)) }}
}

// instruments are all that are read from Stats, in the order of docs/metrics.md.
var instruments = []instrument{
	{"quotient.requests", "{request}", "Asks by what became of them.", counts, []string{"outcome", "reason"}, sendRequests},
	single(counts, "quotient.waits", "{request}", "Asks that had to queue.", func(r *reading) float64 { return float64(r.Waited) }),
	{"quotient.dry_run.admitted", "{request}", "Asks admitted only because of dry run.", counts, []string{"reason"}, sendDryRun},
	single(sums, "quotient.in_flight", "{request}", "Weight of the permits that are out.", func(r *reading) float64 { return float64(r.InFlight) }),
	single(sums, "quotient.waiting", "{request}", "Callers in queues now.", func(r *reading) float64 { return float64(r.Waiting) }),
	{"quotient.limit.rate", "{event}/s", "Each rate of the limit for one key, and of each plan.",
		levels, []string{"plan", "rule", "unit", "scope"}, sendRates},
	{"quotient.limit.in_flight", "{request}", "The slots of the limit for one key, and of each plan.",
		levels, []string{"plan", "scope"}, sendSlots},
	{"quotient.limit.denies", "1", "1 while the limit, or that of the plan, is Deny, else 0.",
		levels, []string{"plan"}, sendDenies},
	{"quotient.pool.replicas", "{replica}", "Size of the pool in force.", levels, []string{"source"},
		func(r *reading, send func(float64, ...string)) { send(float64(r.Pool.Replicas), source(r.Pool.Source)) }},
	single(levels, "quotient.pool.weight", "{replica}", "As how many replicas this one counts.", func(r *reading) float64 { return float64(max(1, r.Pool.Weight)) }),
	single(levels, "quotient.pool.ordinal", "1", "This replica's number in the pool; 0 when not known.", func(r *reading) float64 { return float64(r.Pool.Ordinal) }),
	{"quotient.pool.age", "s", "Time since something usable was last said about the pool.", levels, nil, sendAge},
	single(levels, "quotient.pool.until", "s", "When a pool that was set for a time ends, by the Unix epoch; 0 when it does not.", func(r *reading) float64 { return epoch(r.Pool.Until) }),
	single(counts, "quotient.pool.reports", "{report}", "Usable reports on the pool.", func(r *reading) float64 { return float64(r.Pool.Reports) }),
	single(counts, "quotient.pool.errors", "{error}", "Failures of the source of pool hints.", func(r *reading) float64 { return float64(r.Pool.Errors) }),
	single(counts, "quotient.pool.rejected", "{report}", "Reports on the pool that were out of range.", func(r *reading) float64 { return float64(r.Pool.Rejected) }),
	single(sums, "quotient.key.count", "{key}", "Keys remembered now.", func(r *reading) float64 { return float64(r.Keys) }),
	single(levels, "quotient.key.max", "{key}", "Keys that are remembered at most.", func(r *reading) float64 { return float64(r.MaxKeys) }),
	single(counts, "quotient.key.evictions", "{key}", "Idle keys that were dropped.", func(r *reading) float64 { return float64(r.Evicted) }),
	single(counts, "quotient.key.overflow_decisions", "{request}", "Asks decided by a shared gate.", func(r *reading) float64 { return float64(r.Overflowed) }),
	single(counts, "quotient.permit.reclaimed", "{permit}", "Permits given back by time.", func(r *reading) float64 { return float64(r.Reclaimed) }),
	single(counts, "quotient.permit.double_releases", "{call}", "Releases of a permit that was given back before.", func(r *reading) float64 { return float64(r.DoubleReleases) }),
	single(counts, "quotient.turn.expired", "{turn}", "Turns of paced limits that were lost.", func(r *reading) float64 { return float64(r.Expired) }),
	single(counts, "quotient.upstream.throttles", "{response}", "Answers of an upstream that said: too much.", func(r *reading) float64 { return float64(r.Throttled) }),
	{"quotient.adaptive.rate", "{event}/s", "What the policy has learned for requests a second, over keys.", levels, []string{"over_keys"}, sendLearned},
	single(sums, "quotient.override.count", "{key}", "Keys with a limit of their own.", func(r *reading) float64 { return float64(r.Overrides) }),
	single(levels, "quotient.dry_run.enabled", "1", "1 while everything is admitted and only counted, else 0.", func(r *reading) float64 { return bit(r.DryRun) }),
	single(counts, "quotient.config.changes", "{change}", "Changes of limit, overrides, dry run and set pool, and keys reset.", func(r *reading) float64 { return float64(r.Version) }),
	carried(levels, "quotient.demand.keys", "{key}", "Keys of which any replica speaks.", func(r *reading) float64 { return float64(r.Demand.Keys) }),
	carried(sums, "quotient.demand.named", "{key}", "Keys that this replica names.", func(r *reading) float64 { return float64(r.Demand.Named) }),
	carried(sums, "quotient.demand.lent", "{key}", "Keys of which this replica has more than its share.", func(r *reading) float64 { return float64(r.Demand.Lent) }),
	{"quotient.demand.age", "s", "Age of the oldest news; absent while some is missing.", levels, nil, sendNewsAge},
	carried(levels, "quotient.demand.fresh", "1", "1 while no news is missing or too old, else 0: the shares hold then.", func(r *reading) float64 { return bit(r.newsAge() <= r.Demand.MaxAge) }),
	{"quotient.demand.bytes", "By", "What the source that carries the news has sent and received.", counts, []string{"direction"}, sendBytes},
	carried(levels, "quotient.fleet.replicas", "{replica}", "Replicas of which the figures of the fleet are the sum.", func(r *reading) float64 { return float64(r.Fleet.Replicas) }),
	total("quotient.fleet.admitted", "{request}", "Asks that the limiters of this name have admitted together.", func(f *quotient.FleetStats) float64 { return float64(f.Admitted) }),
	total("quotient.fleet.refused", "{request}", "Asks that they have refused together.", func(f *quotient.FleetStats) float64 { return float64(f.Refused) }),
	total("quotient.fleet.waiting", "{request}", "Callers in queues on all replicas now.", func(f *quotient.FleetStats) float64 { return float64(f.Waiting) }),
	total("quotient.fleet.in_flight", "{request}", "Weight of the permits that are out on all replicas.", func(f *quotient.FleetStats) float64 { return float64(f.InFlight) }),
}

// reasons are all that a refusal can have.
var reasons = func() (all []quotient.Reason) {
	for r := quotient.ReasonNone + 1; r.String() != "invalid"; r++ {
		all = append(all, r)
	}
	return all
}()

func sendRequests(r *reading, send func(float64, ...string)) {
	none := quotient.ReasonNone.String()
	send(float64(r.Admitted), "admitted", none)
	send(float64(r.Cancelled), "cancelled", none)
	for _, why := range reasons {
		send(float64(r.Refused[why]), "refused", why.String())
	}
}

func sendDryRun(r *reading, send func(float64, ...string)) {
	for _, why := range reasons {
		send(float64(r.DryRunAdmitted[why]), why.String())
	}
}

// plans are the limits of a limiter: its own, which has no name, and those of its plans.
func (r *reading) plans() []quotient.PlanStats {
	return append([]quotient.PlanStats{{Limit: r.Limit, Rules: r.Rules}}, r.Plans...)
}

func sendRates(r *reading, send func(float64, ...string)) {
	for _, p := range r.plans() {
		sendRatesOf(p, send)
	}
}

// sendRatesOf shows the rates of a limit with names that differ: an SDK adds up what has the same attributes.
func sendRatesOf(p quotient.PlanStats, send func(float64, ...string)) {
	taken := make(map[[2]string]bool)
	for i, rate := range p.Rules {
		if rate.Window == 0 {
			continue // the slots, or a law
		}
		id := [2]string{label(rate.Name), "requests"}
		if rate.Unit != "" {
			id[1] = label(rate.Unit)
		}
		for taken[id] {
			id[0] = fmt.Sprintf("%s #%d", id[0], i+1)
		}
		taken[id] = true
		send(rate.Limit/rate.Window.Seconds(), label(p.Name), id[0], id[1], "global")
		send(rate.Share/rate.Window.Seconds(), label(p.Name), id[0], id[1], "share")
	}
}

func sendSlots(r *reading, send func(float64, ...string)) {
	for _, p := range r.plans() {
		for _, slots := range p.Rules {
			if slots.Window == 0 && slots.Pace == 0 {
				send(slots.Limit, label(p.Name), "global")
				send(slots.Share, label(p.Name), "share")
			}
		}
	}
}

func sendDenies(r *reading, send func(float64, ...string)) {
	for _, p := range r.plans() {
		send(bit(p.Limit.Deny), label(p.Name))
	}
}

func sendAge(r *reading, send func(float64, ...string)) {
	if r.Pool.Reports > 0 {
		send(r.Pool.Age.Seconds())
	}
}

// mostLearned is how many keys a collection looks at, as in package metrics.
const mostLearned = 1000

func sendLearned(r *reading, send func(float64, ...string)) {
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

// label is a name as an attribute may be: 64 bytes at most, and UTF-8.
func label(name string) string { return strings.ToValidUTF8(name[:min(len(name), 64)], "\uFFFD") }

// source is one of the words that the root package uses.
func source(s string) string {
	switch s {
	case "configured", "set", "followed", "awaited":
		return s
	}
	return "other"
}

func bit(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func epoch(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}
