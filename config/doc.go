// Package config makes limiters from a TOML file and follows its changes. `quotient proxy` uses it, and so can
// programs that embed the library.
//
// Read reads a file and checks it. New makes the file's limiters in a quotient.Registry. Config.Watch follows
// the file and applies each change. A file:
//
//	[pool]                         # the replicas that share the limits
//	source = "dns:api.prod.svc."   # or file:PATH, env:, another of WithSources; none: replicas is the size
//	replicas = 4                   # until the source has reported, and when it is silent for max-age
//	ordinal = 0                    # the number of this replica, from 1; 0: not known
//	weight = 1                     # the number of replicas that this one counts as; only without a source
//	hold-down = "1m"               # before a smaller pool counts
//	max-age = "5m"                 # 0s: the last size stays for ever
//	await = false                  # admit nothing before the source has reported
//
//	[limiters.api]
//	rates = [                      # all hold at once, over the fleet
//	  { name = "minute", events = 100, per = "1m", kind = "window" }, # or "counted-window"
//	  { name = "second", events = 20, per = "1s", burst = 40 },
//	  { name = "pace", events = 10, per = "1s", kind = "paced", no-turns = true },
//	  { name = "tokens", unit = "tokens", events = 90_000, per = "1m" }, # not for a proxy
//	]
//	in-flight = 100
//	mode = "wait"                  # or "refuse"
//	max-wait = "30s"               # 0s: as long as the client stays
//	queue-per-key = 10_000
//	queue = 100_000
//	max-keys = 65_536
//	policy = "fixed"               # or "tracking": follow the upstream's answers
//	ceiling = "share"              # or "limit": tracking may go up to the whole limit
//	longest-pause = "0s"           # of the upstream's announced pauses, that tracking waits out; 0s: ten minutes
//	dry-run = false
//	demand = { keys = 100, max-age = "2s" } # lend shares; needs a source that carries reports between replicas
//
//	[limiters.api.plans.paid]      # a limit for a class of keys
//	in-flight = 500
//
//	[limiters.api.overrides."/old"] # a limit for one key
//	deny = true
//
//	[proxy]                        # only quotient proxy reads it
//	upstreams = ["http://127.0.0.1:8080"]
//
//	[[proxy.rules]]                # in order; the first one that matches a request counts
//	pattern = "/"                  # in the syntax of http.ServeMux, for canonical paths
//	limiter = "api"
//
//	[decide]                       # only quotient decide reads it: upstreams are not needed then
//	http = "127.0.0.1:8080"
//
//	[leases]                       # a lease server, for quotient leases, or for quotient proxy in the same process
//	listen = "127.0.0.1:8000"
//	[leases.semaphores]            # the maximum of each
//	A = 42
//
// The types Proxy, Rule, Decide and Leases describe the fields of [proxy], [decide] and [leases]; a file spells
// HeaderBytes header-bytes. docs/file.md has all of them in tables.
//
// Durations are strings with units, such as "1.5h", "1h 30m" or "2days". Names of files are
// relative to the file's folder. A rate without a name is named by its period: second, minute, hour, day, 10s. A
// second rate of the same name and unit is named by its position, and loses its state when the position changes.
//
// # The file throttle.toml
//
// ReadAny and ReadThrottle also read a throttle.toml, the file of the throttle service. Its semaphores are in
// [semaphores], keep-idle is litter_collection_interval, and there is no listen. It may also have grace, max_peers
// and [election] as above, with underscores. An unknown key, such as [logging], is one of File.Warnings and no error.
//
// # Errors
//
// Each mistake is an error with its position and a hint: an unknown field, a value of another type, or a value out of
// range. In [proxy] it is an error if a rule is never reached, if two rules overlap, or if no rule matches a request.
// File.Warnings also names a limiter that no rule uses, and an override of a key that no request can have.
//
// # Changes of the file
//
// A reload applies the whole file or nothing of it. A limiter whose section has changed gets the limit, the
// plans, the overrides and the dry run of the section. It keeps its keys, their state, and its waiters. A
// limiter whose section has not changed keeps what an operator has changed by hand, and State names the
// difference. A limiter that is no longer in the file leaves the registry.
//
// Some settings of a limiter in force cannot change: the sizes of its queues, its number of keys, policy, ceiling,
// longest-pause, demand, hold-down, max-age and await. A file that changes one of them is refused; restart instead.
package config
