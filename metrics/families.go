package metrics

import (
	"iter"
	"slices"
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

func newFamily(
	kind prometheus.ValueType, name, help string, labels []string,
	read func(*reading, func(float64, ...string)),
) family {
	return family{prometheus.NewDesc(name, help, append([]string{"limiter"}, labels...), nil), kind, read}
}

// counter and gauge are families with one series a limiter.
func counter(name, help string, read func(*reading) uint64) family {
	return newFamily(prometheus.CounterValue, name, help, nil,
		func(r *reading, send func(float64, ...string)) { send(float64(read(r))) })
}

func gauge(name, help string, read func(*reading) float64) family {
	return newFamily(prometheus.GaugeValue, name, help, nil,
		func(r *reading, send func(float64, ...string)) { send(read(r)) })
}

// families are all metrics that are read from Stats, in the order of docs/metrics.md.
var families = slices.Concat(
	requestFamilies, limitFamilies, poolFamilies, keyFamilies, stateFamilies, fleetFamilies)

var requestFamilies = []family{
	newFamily(prometheus.CounterValue, "quotient_requests_total",
		"Requests by outcome: admitted, refused with a reason, or cancelled before admission.",
		[]string{"outcome", "reason"}, sendRequests),
	counter("quotient_waits_total", "Requests that had to queue.",
		func(r *reading) uint64 { return r.Waited }),
	newFamily(prometheus.CounterValue, "quotient_dry_run_admitted_total",
		"Requests admitted only because of dry run, by the reason that would have refused or delayed them.",
		[]string{"reason"}, sendDryRun),
	gauge("quotient_in_flight", "Weight of the permits that are held now and still have something to return.",
		func(r *reading) float64 { return float64(r.InFlight) }),
	gauge("quotient_waiting", "Requests in queues now.",
		func(r *reading) float64 { return float64(r.Waiting) }),
}

var limitFamilies = []family{
	newFamily(prometheus.GaugeValue, "quotient_limit_events_per_second",
		"Each rate of the limit for one key: of the fleet (global) and of this replica (share).",
		[]string{"plan", "rule", "unit", "scope"}, sendRates),
	newFamily(prometheus.GaugeValue, "quotient_limit_in_flight",
		"The slots of the limit for one key: of the fleet (global) and of this replica (share).",
		[]string{"plan", "scope"}, sendSlots),
	newFamily(prometheus.GaugeValue, "quotient_denies",
		"1 while the limit, or that of the plan, is Deny, else 0.", []string{"plan"}, sendDenies),
}

var poolFamilies = []family{
	newFamily(prometheus.GaugeValue, "quotient_replicas",
		"Replica count in force, by weight. Its source is configured, set, followed or awaited.",
		[]string{"source"}, func(r *reading, send func(float64, ...string)) {
			send(float64(r.Pool.Replicas), source(r.Pool.Source))
		}),
	gauge("quotient_weight", "How many replicas this one counts as.",
		func(r *reading) float64 { return float64(max(1, r.Pool.Weight)) }),
	gauge("quotient_ordinal", "Number of this replica in the pool, from 1; 0 while it is unknown.",
		func(r *reading) float64 { return float64(r.Pool.Ordinal) }),
	newFamily(prometheus.GaugeValue, "quotient_pool_age_seconds",
		"Time since the last usable report of the replica count; absent before the first.", nil, sendAge),
	gauge("quotient_pool_until_timestamp_seconds",
		"When a replica count that was set for a time ends; 0 if none does.",
		func(r *reading) float64 { return epoch(r.Pool.Until) }),
	counter("quotient_pool_reports_total", "Usable reports of the replica count.",
		func(r *reading) uint64 { return r.Pool.Reports }),
	counter("quotient_pool_errors_total", "Failures of the source of the replica count.",
		func(r *reading) uint64 { return r.Pool.Errors }),
	counter("quotient_pool_rejected_total", "Reports of the replica count that were out of range.",
		func(r *reading) uint64 { return r.Pool.Rejected }),
}

var keyFamilies = []family{
	gauge("quotient_keys", "Keys in memory now.",
		func(r *reading) float64 { return float64(r.Keys) }),
	gauge("quotient_max_keys", "The most keys that are kept in memory.",
		func(r *reading) float64 { return float64(r.MaxKeys) }),
	counter("quotient_evictions_total", "Idle keys that were evicted.",
		func(r *reading) uint64 { return r.Evicted }),
	counter("quotient_overflow_decisions_total",
		"Requests whose key found no room in memory and shared its limit with other keys.",
		func(r *reading) uint64 { return r.Overflowed }),
	counter("quotient_reclaimed_permits_total",
		"Permits reclaimed after MaxHold because they were not released.",
		func(r *reading) uint64 { return r.Reclaimed }),
	counter("quotient_double_releases_total", "Releases of a permit that was already released or reclaimed.",
		func(r *reading) uint64 { return r.DoubleReleases }),
	counter("quotient_expired_turns_total",
		"Turns of paced rates that expired because the caller woke too late.",
		func(r *reading) uint64 { return r.Expired }),
}

var stateFamilies = []family{
	counter("quotient_upstream_throttles_total", "Responses by which the upstream throttled, such as a 429.",
		func(r *reading) uint64 { return r.Throttled }),
	newFamily(prometheus.GaugeValue, "quotient_adaptive_requests_per_second",
		"Learned request rate: the sum over keys and the least one; absent above 1,000 keys.",
		[]string{"over_keys"}, sendLearned),
	gauge("quotient_overrides", "Keys with a limit of their own.",
		func(r *reading) float64 { return float64(r.Overrides) }),
	gauge("quotient_dry_run", "1 in dry run, which admits every request and only counts, else 0.",
		func(r *reading) float64 { return bit(r.DryRun) }),
	counter("quotient_config_changes_total",
		"Changes of limits, overrides, dry run and the set replica count, and resets of keys.",
		func(r *reading) uint64 { return r.Version }),
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

func sendRates(r *reading, send func(float64, ...string)) {
	for p := range plans(&r.Stats) {
		for rate := range rates(p.Rules) {
			send(rate.Limit, p.Name, rate.name, rate.unit, "global")
			send(rate.Share, p.Name, rate.name, rate.unit, "share")
		}
	}
}

func sendSlots(r *reading, send func(float64, ...string)) {
	for p := range plans(&r.Stats) {
		for _, rule := range p.Rules {
			if rule.Window == 0 && rule.Pace == 0 {
				send(rule.Limit, p.Name, "global")
				send(rule.Share, p.Name, "share")
			}
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

// mostLearned is how many keys a scrape reads. The keys of a limiter that learns are upstreams or routes and
// not clients. The sum over more keys than that would say little.
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
