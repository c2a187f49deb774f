package figures

import "github.com/quotient-go/quotient"

// All are the figures that are read from Stats, in the order of the README of metrics.
var All = []Figure{
	{Counts, "quotient_requests_total", "quotient.requests", "{request}",
		"Requests by outcome: admitted, refused with a reason, or cancelled before admission.",
		[]string{"outcome", "reason"}, sendRequests},
	{Counts, "quotient_plan_requests_total", "quotient.plan.requests", "{request}",
		"Requests by the plan that they named: admitted or refused.", []string{"plan", "result"}, sendPlanRequests},
	counter("quotient_waits_total", "quotient.waits", "{request}", "Requests that had to queue.",
		func(r *Reading) uint64 { return r.Waited }),
	{Counts, "quotient_dry_run_admitted_total", "quotient.dry_run.admitted", "{request}",
		"Requests admitted only because of dry run, by the reason that would have refused or delayed them.",
		[]string{"reason"}, sendDryRun},
	single(Sums, "quotient_in_flight", "quotient.in_flight", "{request}",
		"Weight of the permits that are held now and still have something to return.",
		func(r *Reading) float64 { return float64(r.InFlight) }),
	single(Sums, "quotient_waiting", "quotient.waiting", "{request}", "Requests in queues now.",
		func(r *Reading) float64 { return float64(r.Waiting) }),

	{Levels, "quotient_limit_events_per_second", "quotient.limit.rate", "{event}/s",
		"Each rate of the limit for one key: of the fleet (global) and of this replica (share).",
		[]string{"plan", "rule", "unit", "scope"}, sendRates},
	{Levels, "quotient_limit_in_flight", "quotient.limit.in_flight", "{request}",
		"The slots of the limit for one key: of the fleet (global) and of this replica (share).",
		[]string{"plan", "scope"}, sendSlots},
	{Levels, "quotient_denies", "quotient.limit.denies", "1",
		"1 while the limit, or that of the plan, is Deny, else 0.", []string{"plan"}, sendDenies},

	{Levels, "quotient_replicas", "quotient.pool.replicas", "{replica}",
		"Replica count in force, by weight. Its source is configured, set, followed or awaited.",
		[]string{"source"},
		func(r *Reading, send func(float64, ...string)) { send(float64(r.Pool.Replicas), r.Pool.Source) }},
	single(Levels, "quotient_weight", "quotient.pool.weight", "{replica}", "How many replicas this one counts as.",
		func(r *Reading) float64 { return float64(max(1, r.Pool.Weight)) }),
	single(Levels, "quotient_ordinal", "quotient.pool.ordinal", "1",
		"Number of this replica in the pool, from 1; 0 while it is unknown.",
		func(r *Reading) float64 { return float64(r.Pool.Ordinal) }),
	{Levels, "quotient_pool_age_seconds", "quotient.pool.age", "s",
		"Time since the last usable report of the replica count; absent before the first.", nil, sendAge},
	single(Levels, "quotient_pool_until_timestamp_seconds", "quotient.pool.until", "s",
		"When a replica count that was set for a time ends; 0 if none does.",
		func(r *Reading) float64 { return Epoch(r.Pool.Until) }),
	counter("quotient_pool_reports_total", "quotient.pool.reports", "{report}",
		"Usable reports of the replica count.",
		func(r *Reading) uint64 { return r.Pool.Reports }),
	counter("quotient_pool_errors_total", "quotient.pool.errors", "{error}",
		"Failures of the source of the replica count.",
		func(r *Reading) uint64 { return r.Pool.Errors }),
	counter("quotient_pool_rejected_total", "quotient.pool.rejected", "{report}",
		"Reports of the replica count that were out of range.",
		func(r *Reading) uint64 { return r.Pool.Rejected }),

	single(Sums, "quotient_keys", "quotient.key.count", "{key}", "Keys in memory now.",
		func(r *Reading) float64 { return float64(r.Keys) }),
	single(Levels, "quotient_max_keys", "quotient.key.max", "{key}", "The most keys that are kept in memory.",
		func(r *Reading) float64 { return float64(r.MaxKeys) }),
	counter("quotient_evictions_total", "quotient.key.evictions", "{key}", "Idle keys that were evicted.",
		func(r *Reading) uint64 { return r.Evicted }),
	counter("quotient_overflow_decisions_total", "quotient.key.overflow_decisions", "{request}",
		"Requests whose key found no room in memory and shared its limit with other keys.",
		func(r *Reading) uint64 { return r.Overflowed }),
	counter("quotient_reclaimed_permits_total", "quotient.permit.reclaimed", "{permit}",
		"Permits reclaimed after MaxHold because they were not released.",
		func(r *Reading) uint64 { return r.Reclaimed }),
	counter("quotient_double_releases_total", "quotient.permit.double_releases", "{call}",
		"Releases of a permit that was already released or reclaimed.",
		func(r *Reading) uint64 { return r.DoubleReleases }),
	counter("quotient_expired_turns_total", "quotient.turn.expired", "{turn}",
		"Turns of paced rates that expired because the caller woke too late.",
		func(r *Reading) uint64 { return r.Expired }),

	counter("quotient_upstream_throttles_total", "quotient.upstream.throttles", "{response}",
		"Responses by which the upstream throttled, such as a 429.",
		func(r *Reading) uint64 { return r.Throttled }),
	{Levels, "quotient_adaptive_requests_per_second", "quotient.adaptive.rate", "{event}/s",
		"Learned request rate: the sum over keys and the least one; absent above 1,000 keys.",
		[]string{"over_keys"}, sendLearned},
	single(Sums, "quotient_overrides", "quotient.override.count", "{key}", "Keys with a limit of their own.",
		func(r *Reading) float64 { return float64(r.Overrides) }),
	single(Levels, "quotient_dry_run", "quotient.dry_run.enabled", "1",
		"1 in dry run, which admits every request and only counts, else 0.",
		func(r *Reading) float64 { return Bit(r.DryRun) }),
	counter("quotient_config_changes_total", "quotient.config.changes", "{change}",
		"Changes of limits, overrides, dry run and the set replica count, their ends, and resets of keys.",
		func(r *Reading) uint64 { return r.Version }),

	carried(Levels, "quotient_demand_keys", "quotient.demand.keys", "{key}",
		"Keys that any replica reports as short; absent unless a source carries such reports.",
		func(r *Reading) float64 { return float64(r.Demand.Keys) }),
	carried(Sums, "quotient_demand_named_keys", "quotient.demand.named", "{key}",
		"Keys that this replica reports as short.",
		func(r *Reading) float64 { return float64(r.Demand.Named) }),
	carried(Sums, "quotient_demand_lent_keys", "quotient.demand.lent", "{key}",
		"Reported keys of which this replica has more than its share.",
		func(r *Reading) float64 { return float64(r.Demand.Lent) }),
	{Levels, "quotient_demand_age_seconds", "quotient.demand.age", "s",
		"Age of the oldest report from another replica; absent while one is missing.", nil, sendNewsAge},
	carried(Levels, "quotient_demand_fresh", "quotient.demand.fresh", "1",
		"1 while the report of every replica is recent enough, else 0: nothing is lent then.",
		func(r *Reading) float64 { return Bit(r.newsAge() <= r.Demand.MaxAge) }),
	{Counts, "quotient_demand_bytes_total", "quotient.demand.bytes", "By",
		"Bytes that the source has sent and received; the same for all limiters that follow it.",
		[]string{"direction"}, sendBytes},
	carried(Levels, "quotient_fleet_replicas", "quotient.fleet.replicas", "{replica}",
		"Replicas, by weight, in the sums of the fleet.",
		func(r *Reading) float64 { return float64(r.Fleet.Replicas) }),
	total("quotient_fleet_admitted", "quotient.fleet.admitted",
		"Requests admitted on all replicas; falls when a replica leaves; absent while a report is missing.",
		func(f *quotient.FleetStats) float64 { return float64(f.Admitted) }),
	total("quotient_fleet_refused", "quotient.fleet.refused",
		"Requests refused on all replicas; falls when a replica leaves; absent while a report is missing.",
		func(f *quotient.FleetStats) float64 { return float64(f.Refused) }),
	total("quotient_fleet_waiting", "quotient.fleet.waiting",
		"Requests in queues on all replicas now; absent while a report is missing.",
		func(f *quotient.FleetStats) float64 { return float64(f.Waiting) }),
	total("quotient_fleet_in_flight", "quotient.fleet.in_flight",
		"Weight of the permits held on all replicas; absent while a report is missing.",
		func(f *quotient.FleetStats) float64 { return float64(f.InFlight) }),
}

// What is shown of each admission, and the bounds of its buckets in seconds. A request within its limits takes a
// tenth of a microsecond. So the buckets of overhead begin at a microsecond, and those of waiting at what a user
// would notice.
const (
	WaitText     = "Time from a request to its admission: intended waiting and overhead together."
	OverheadText = "Time an admitted request spent in the limiter although its tokens and slots were free."
	LimitersText = "Limiters that the collector shows."
)

// The bounds.
var (
	OverheadBuckets = []float64{
		1e-6, 2.5e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3,
		0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
	}
	WaitBuckets = []float64{
		1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300,
	}
)
