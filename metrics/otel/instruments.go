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
	set := attribute.NewSet(attribute.String("quotient.limiter", name))
	opts := []metric.RecordOption{metric.WithAttributeSet(set)}
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

// kind of an instrument: values that only grow, values that may be added up over replicas, and values that
// may not.
type kind uint8

const (
	counts kind = iota
	sums
	levels
)

// instrument is one observable of every limiter; labels are those beside the limiter's name, without their
// prefix.
type instrument struct {
	name, unit, text string
	kind             kind
	labels           []string
	read             func(r *reading, send func(v float64, labels ...string))
}

func single(k kind, name, unit, text string, read func(*reading) float64) instrument {
	return instrument{name, unit, text, k, nil,
		func(r *reading, send func(float64, ...string)) { send(read(r)) }}
}

// instruments are all that are read from Stats, in the order of docs/metrics.md.
var instruments = []instrument{
	{"quotient.requests", "{request}",
		"Requests by outcome: admitted, refused with a reason, or cancelled before admission.",
		counts, []string{"outcome", "reason"}, sendRequests},
	single(counts, "quotient.waits", "{request}",
		"Requests that had to queue.",
		func(r *reading) float64 { return float64(r.Waited) }),
	{"quotient.dry_run.admitted", "{request}",
		"Requests admitted only because of dry run, by the reason that would have refused or delayed them.",
		counts, []string{"reason"}, sendDryRun},
	single(sums, "quotient.in_flight", "{request}",
		"Weight of the permits that are held now and still have something to return.",
		func(r *reading) float64 { return float64(r.InFlight) }),
	single(sums, "quotient.waiting", "{request}",
		"Requests in queues now.",
		func(r *reading) float64 { return float64(r.Waiting) }),
	{"quotient.limit.rate", "{event}/s",
		"Each rate of the limit for one key: of the fleet (global) and of this replica (share).",
		levels, []string{"plan", "rule", "unit", "scope"}, sendRates},
	{"quotient.limit.in_flight", "{request}",
		"The slots of the limit for one key: of the fleet (global) and of this replica (share).",
		levels, []string{"plan", "scope"}, sendSlots},
	{"quotient.limit.denies", "1",
		"1 while the limit, or that of the plan, is Deny, else 0.",
		levels, []string{"plan"}, sendDenies},
	{"quotient.pool.replicas", "{replica}",
		"Replica count in force, by weight. Its source is configured, set, followed or awaited.",
		levels, []string{"source"},
		func(r *reading, send func(float64, ...string)) {
			send(float64(r.Pool.Replicas), source(r.Pool.Source))
		}},
	single(levels, "quotient.pool.weight", "{replica}",
		"How many replicas this one counts as.",
		func(r *reading) float64 { return float64(max(1, r.Pool.Weight)) }),
	single(levels, "quotient.pool.ordinal", "1",
		"Number of this replica in the pool, from 1; 0 while it is unknown.",
		func(r *reading) float64 { return float64(r.Pool.Ordinal) }),
	{"quotient.pool.age", "s",
		"Time since the last usable report of the replica count; absent before the first.",
		levels, nil, sendAge},
	single(levels, "quotient.pool.until", "s",
		"When a replica count that was set for a time ends; 0 if none does.",
		func(r *reading) float64 { return epoch(r.Pool.Until) }),
	single(counts, "quotient.pool.reports", "{report}",
		"Usable reports of the replica count.",
		func(r *reading) float64 { return float64(r.Pool.Reports) }),
	single(counts, "quotient.pool.errors", "{error}",
		"Failures of the source of the replica count.",
		func(r *reading) float64 { return float64(r.Pool.Errors) }),
	single(counts, "quotient.pool.rejected", "{report}",
		"Reports of the replica count that were out of range.",
		func(r *reading) float64 { return float64(r.Pool.Rejected) }),
	single(sums, "quotient.key.count", "{key}",
		"Keys in memory now.",
		func(r *reading) float64 { return float64(r.Keys) }),
	single(levels, "quotient.key.max", "{key}",
		"The most keys that are kept in memory.",
		func(r *reading) float64 { return float64(r.MaxKeys) }),
	single(counts, "quotient.key.evictions", "{key}",
		"Idle keys that were evicted.",
		func(r *reading) float64 { return float64(r.Evicted) }),
	single(counts, "quotient.key.overflow_decisions", "{request}",
		"Requests whose key found no room in memory and shared its limit with other keys.",
		func(r *reading) float64 { return float64(r.Overflowed) }),
	single(counts, "quotient.permit.reclaimed", "{permit}",
		"Permits reclaimed after MaxHold because they were not released.",
		func(r *reading) float64 { return float64(r.Reclaimed) }),
	single(counts, "quotient.permit.double_releases", "{call}",
		"Releases of a permit that was already released or reclaimed.",
		func(r *reading) float64 { return float64(r.DoubleReleases) }),
	single(counts, "quotient.turn.expired", "{turn}",
		"Turns of paced rates that expired because the caller woke too late.",
		func(r *reading) float64 { return float64(r.Expired) }),
	single(counts, "quotient.upstream.throttles", "{response}",
		"Responses by which the upstream throttled, such as a 429.",
		func(r *reading) float64 { return float64(r.Throttled) }),
	{"quotient.adaptive.rate", "{event}/s",
		"Learned request rate: the sum over keys and the least one; absent above 1,000 keys.",
		levels, []string{"over_keys"}, sendLearned},
	single(sums, "quotient.override.count", "{key}",
		"Keys with a limit of their own.",
		func(r *reading) float64 { return float64(r.Overrides) }),
	single(levels, "quotient.dry_run.enabled", "1",
		"1 in dry run, which admits every request and only counts, else 0.",
		func(r *reading) float64 { return bit(r.DryRun) }),
	single(counts, "quotient.config.changes", "{change}",
		"Changes of limits, overrides, dry run and the set replica count, and resets of keys.",
		func(r *reading) float64 { return float64(r.Version) }),
	carried(levels, "quotient.demand.keys", "{key}",
		"Keys that any replica reports as short; absent unless a source carries such reports.",
		func(r *reading) float64 { return float64(r.Demand.Keys) }),
	carried(sums, "quotient.demand.named", "{key}",
		"Keys that this replica reports as short.",
		func(r *reading) float64 { return float64(r.Demand.Named) }),
	carried(sums, "quotient.demand.lent", "{key}",
		"Reported keys of which this replica has more than its share.",
		func(r *reading) float64 { return float64(r.Demand.Lent) }),
	{"quotient.demand.age", "s",
		"Age of the oldest report from another replica; absent while one is missing.",
		levels, nil, sendNewsAge},
	carried(levels, "quotient.demand.fresh", "1",
		"1 while the report of every replica is recent enough, else 0: nothing is lent then.",
		func(r *reading) float64 { return bit(r.newsAge() <= r.Demand.MaxAge) }),
	{"quotient.demand.bytes", "By",
		"Bytes that the source has sent and received; the same for all limiters that follow it.",
		counts, []string{"direction"}, sendBytes},
	carried(levels, "quotient.fleet.replicas", "{replica}",
		"Replicas, by weight, in the sums of the fleet.",
		func(r *reading) float64 { return float64(r.Fleet.Replicas) }),
	total("quotient.fleet.admitted", "{request}",
		"Requests admitted on all replicas; falls when a replica leaves; absent while a report is missing.",
		func(f *quotient.FleetStats) float64 { return float64(f.Admitted) }),
	total("quotient.fleet.refused", "{request}",
		"Requests refused on all replicas; falls when a replica leaves; absent while a report is missing.",
		func(f *quotient.FleetStats) float64 { return float64(f.Refused) }),
	total("quotient.fleet.waiting", "{request}",
		"Requests in queues on all replicas now; absent while a report is missing.",
		func(f *quotient.FleetStats) float64 { return float64(f.Waiting) }),
	total("quotient.fleet.in_flight", "{request}",
		"Weight of the permits held on all replicas; absent while a report is missing.",
		func(f *quotient.FleetStats) float64 { return float64(f.InFlight) }),
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

// mostLearned is how many keys a collection reads, as in package metrics.
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

// label returns a name as an attribute: at most 64 bytes of UTF-8.
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
