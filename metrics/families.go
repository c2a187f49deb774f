package metrics

import (
	"iter"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/quotient-go/quotient"
)

// reading is one limiter as a scrape sees it.
type reading struct {
	quotient.Stats
	limiter *quotient.Limiter
}

// family is one metric of every limiter. Its first label is the limiter's name.
type family struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	read func(r *reading, send func(v float64, labels ...string))
}

// collect sends the family's series of one limiter.
func (f *family) collect(ch chan<- prometheus.Metric, name string, r *reading) {
	f.read(r, func(v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(f.desc, f.kind, v, append([]string{name}, labels...)...)
	})
}

func newFamily(kind prometheus.ValueType, name, help string, labels []string, read func(*reading, func(float64, ...string))) family {
	return family{prometheus.NewDesc(name, help, append([]string{"limiter"}, labels...), nil), kind, read}
}

// counter and gauge are families with one series a limiter.
func counter(name, help string, read func(*reading) uint64) family {
	return newFamily(prometheus.CounterValue, name, help, nil, func(r *reading, send func(float64, ...string)) { send(float64(read(r))) })
}

func gauge(name, help string, read func(*reading) float64) family {
	return newFamily(prometheus.GaugeValue, name, help, nil, func(r *reading, send func(float64, ...string)) { send(read(r)) })
}

// families are all metrics that are read from Stats, in the order of docs/metrics.md.
var families = []family{
	newFamily(prometheus.CounterValue, "quotient_requests_total",
		"Asks by what became of them: admitted, refused for a reason, or cancelled because their context ended while they waited, or another limiter refused the request.",
		[]string{"outcome", "reason"}, sendRequests),
	counter("quotient_waits_total", "Asks that had to queue.", func(r *reading) uint64 { return r.Waited }),
	newFamily(prometheus.CounterValue, "quotient_dry_run_admitted_total",
		"Asks admitted only because of dry run, by the reason that would have refused or delayed them.",
		[]string{"reason"}, sendDryRun),
	gauge("quotient_in_flight", "Weight of the permits that are out and have something to give back.", func(r *reading) float64 { return float64(r.InFlight) }),
	gauge("quotient_waiting", "Callers in queues now.", func(r *reading) float64 { return float64(r.Waiting) }),
	newFamily(prometheus.GaugeValue, "quotient_limit",
		"Each rule of the limit for one key, and of each plan: events per second (kind rate) or slots (kind in_flight), over the fleet (scope global) and on this replica (scope share).",
		[]string{"plan", "rule", "unit", "kind", "scope"}, sendLimits),
	newFamily(prometheus.GaugeValue, "quotient_denies",
		"1 while the limit, or that of the plan, is Deny, else 0.", []string{"plan"}, sendDenies),
	newFamily(prometheus.GaugeValue, "quotient_replicas",
		"Size of the pool in force, each replica by its weight, labelled with where it comes from: configured, set, followed or awaited.",
		[]string{"source"}, func(r *reading, send func(float64, ...string)) { send(float64(r.Pool.Replicas), source(r.Pool.Source)) }),
	gauge("quotient_weight", "As how many replicas of the pool this one counts.", func(r *reading) float64 { return float64(max(1, r.Pool.Weight)) }),
	gauge("quotient_ordinal", "This replica's number in the pool, from 1; 0 when it is not known.", func(r *reading) float64 { return float64(r.Pool.Ordinal) }),
	newFamily(prometheus.GaugeValue, "quotient_pool_age_seconds",
		"Time since something usable was last said about the pool; absent when nothing ever was.", nil, sendAge),
	gauge("quotient_pool_until_timestamp_seconds", "When a pool that was set for a time ends, in seconds of the Unix epoch; 0 when it does not.",
		func(r *reading) float64 { return epoch(r.Pool.Until) }),
	counter("quotient_pool_reports_total", "Usable reports on the pool.", func(r *reading) uint64 { return r.Pool.Reports }),
	counter("quotient_pool_errors_total", "Failures of the source of pool hints.", func(r *reading) uint64 { return r.Pool.Errors }),
	counter("quotient_pool_rejected_total", "Reports on the pool that were out of range.", func(r *reading) uint64 { return r.Pool.Rejected }),
	gauge("quotient_keys", "Keys remembered now.", func(r *reading) float64 { return float64(r.Keys) }),
	gauge("quotient_max_keys", "Keys that are remembered at most.", func(r *reading) float64 { return float64(r.MaxKeys) }),
	counter("quotient_evictions_total", "Idle keys that were dropped.", func(r *reading) uint64 { return r.Evicted }),
	counter("quotient_overflow_decisions_total", "Asks decided by a gate that keys share because there was no room for them.", func(r *reading) uint64 { return r.Overflowed }),
	counter("quotient_reclaimed_permits_total", "Permits given back by time, because they were not released.", func(r *reading) uint64 { return r.Reclaimed }),
	counter("quotient_double_releases_total", "Releases of a permit that was given back before.", func(r *reading) uint64 { return r.DoubleReleases }),
	counter("quotient_expired_turns_total", "Turns of paced limits that were lost because the caller woke too late.", func(r *reading) uint64 { return r.Expired }),
	counter("quotient_upstream_throttles_total", "Answers of an upstream that said: too much.", func(r *reading) uint64 { return r.Throttled }),
	newFamily(prometheus.GaugeValue, "quotient_adaptive_rate",
		"What the policy has learned for requests a second, whatever it has learned for other units and slots: the sum over keys, and the least if there is one; only of limiters that learn and remember at most 1,000 keys.",
		[]string{"over_keys"}, sendLearned),
	gauge("quotient_overrides", "Keys with a limit of their own.", func(r *reading) float64 { return float64(r.Overrides) }),
	gauge("quotient_dry_run", "1 while the limiter admits everything and only counts, else 0.", func(r *reading) float64 { return bit(r.DryRun) }),
	counter("quotient_config_changes_total", "Changes of limit, overrides, dry run and set pool, and keys reset since the limiter was made.", func(r *reading) uint64 { return r.Version }),
	carriedGauge("quotient_demand_keys", "Keys of which any replica speaks, since it is short of them; absent, as all that follows, while no source carries what replicas say.",
		func(r *reading) float64 { return float64(r.Demand.Keys) }),
	carriedGauge("quotient_demand_named_keys", "Of the keys that are spoken of: those that this replica names.", func(r *reading) float64 { return float64(r.Demand.Named) }),
	carriedGauge("quotient_demand_lent_keys", "Of the keys that are spoken of: those of which this replica has more than its share.", func(r *reading) float64 { return float64(r.Demand.Lent) }),
	newFamily(prometheus.GaugeValue, "quotient_demand_age_seconds", "Age of the oldest news; absent while some is missing.", nil, sendNewsAge),
	carriedGauge("quotient_demand_fresh", "1 while no news is missing or older than what Demand allows, else 0: the shares hold then.", func(r *reading) float64 { return bit(r.newsAge() <= r.Demand.MaxAge) }),
	newFamily(prometheus.CounterValue, "quotient_demand_bytes_total",
		"What the source that carries the news has sent and received: the same for all limiters that follow it.", []string{"direction"}, sendBytes),
	carriedGauge("quotient_fleet_replicas", "Replicas, by weight, of which the figures of the fleet are the sum.", func(r *reading) float64 { return float64(r.Fleet.Replicas) }),
	totalGauge("quotient_fleet_admitted", "Asks that the limiters of this name have admitted together; falls when a replica goes; absent while a part is missing.",
		func(f *quotient.FleetStats) float64 { return float64(f.Admitted) }),
	totalGauge("quotient_fleet_refused", "Asks that they have refused together; absent while a part is missing.", func(f *quotient.FleetStats) float64 { return float64(f.Refused) }),
	totalGauge("quotient_fleet_waiting", "Callers in queues on all replicas now; absent while a part is missing.", func(f *quotient.FleetStats) float64 { return float64(f.Waiting) }),
	totalGauge("quotient_fleet_in_flight", "Weight of the permits that are out on all replicas; absent while a part is missing.", func(f *quotient.FleetStats) float64 { return float64(f.InFlight) }),
}

// reasons are all that a refusal can have, so that each has a series before its first time.
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

func sendLimits(r *reading, send func(float64, ...string)) {
	for p := range plans(&r.Stats) {
		for rule := range distinct(p.Rules) {
			send(rule.Limit, p.Name, rule.name, rule.unit, rule.kind, "global")
			send(rule.Share, p.Name, rule.name, rule.unit, rule.kind, "share")
		}
	}
}

func sendDenies(r *reading, send func(float64, ...string)) {
	for p := range plans(&r.Stats) {
		send(bit(p.Limit.Deny), p.Name)
	}
}

func sendAge(r *reading, send func(float64, ...string)) {
	if r.Pool.Reports > 0 {
		send(r.Pool.Age.Seconds())
	}
}

// mostLearned is how many keys a scrape looks at. Those of a limiter that learns are upstreams or routes and not clients; a limiter
// that remembers more keys than that is one whose sum says little.
const mostLearned = 1000

func sendLearned(r *reading, send func(float64, ...string)) {
	if !r.Learns || r.Keys > mostLearned {
		return
	}
	sum, least := paces(r.limiter.Keys())
	send(sum, "sum")
	if least > 0 { // the least of nothing would be below every other replica's
		send(least, "min")
	}
}

// paces adds up what the keys have learned; keys without a pace of their own do not count.
func paces(keys iter.Seq[quotient.KeyState]) (sum, least float64) {
	for k := range keys {
		for _, r := range k.Rules {
			if r.Pace == 0 || r.Unit != "" {
				continue
			}
			if sum == 0 || r.Pace < least {
				least = r.Pace
			}
			sum += r.Pace
		}
	}
	return sum, least
}

// source is one of the words that the root package uses; another would be a label that was not counted on.
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
