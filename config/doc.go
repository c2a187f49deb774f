// Package config reads limits from a TOML file, makes limiters of them, and follows the file while the program runs.
// The command quotient uses it, and so can programs that embed the library.
//
// # A file
//
// A file says how many replicas share the limits, and has a section for each limiter:
//
//	[pool]
//	replicas = 4
//
//	[limiters.api]
//	rates = [{ events = 100, per = "1s", burst = 200 }]
//
//	[limiters.api.plans]
//	free = { rates = [{ events = 10, per = "1s" }] }
//
// Durations are strings with units, such as "1.5h", "1h 30m" or "2days". Names of files in it are relative to its
// folder. The end of this comment has a file with every field of pools and limiters.
//
// # Reading it
//
// [Read] checks a file and fills in every default. [New] makes its limiters in a quotient.Registry, where the program
// gets them by name (Get):
//
//	f, err := config.Read(path)
//	if err != nil {
//		log.Fatal(err) // every line that is wrong, with a hint
//	}
//	var limiters quotient.Registry
//	c, err := config.New(f, &limiters, config.Logger(slog.Default()))
//	if err != nil {
//		log.Fatal(err)
//	}
//
// The error lists up to 20 mistakes, each an [Error] with its position and a hint: an unknown field, a value of
// another type or out of range. In [proxy] it is also an error if a rule is never reached, if two rules overlap, or
// if no rule matches a request. File.Warnings has what is valid but without an effect, such as a limiter that no rule
// uses, or an override of a key that no request can have.
//
// # Following it
//
// [Config.Watch] applies each change of the file, and follows the source of the pool's size if [pool] names one. It
// runs until its context ends:
//
//	go c.Watch(ctx) // follows the file
//
// A change applies as a whole or not at all. If the new file has a mistake the old one stays in force, and both the
// log and [Config.State] say so. A limiter whose section has changed gets the limit, the plans, the overrides and the
// dry run of the section, and keeps its keys, their state and its waiters. A limiter whose section has not changed
// keeps what an operator has changed by hand, and State names the difference. A limiter that is no longer in the file
// leaves the registry.
//
// Some settings cannot change under a limiter in force: the sizes of its queues, its number of keys, policy, ceiling,
// longest-pause, demand, hold-down, max-age and await. A file that changes one of them is refused, so restart for it.
// A rate keeps its state by its name, which is that of its period if it has none: second, minute, hour, day, 10s. A
// second rate of the same name and unit is named by its position, and loses its state when that changes.
//
// # Adjusting it
//
// Flags of a command, which take precedence over the file, belong in [Adjust]. It changes every file before that is
// checked:
//
//	c, err := config.New(f, &limiters, config.Adjust(func(f *config.File) error {
//		f.Pool.Replicas = replicas // of a flag
//		return nil
//	}))
//
// # Options of New
//
//   - [Logger] is the log of changes and of files that were refused.
//   - [Adjust] changes every file that is read, [LimiterOptions] the limiters that are made of it.
//   - [WithSources] adds sources of the pool's size by their scheme, beside dns, file and env.
//   - [With] adds a [Part] of the program that has to follow the file too, such as a proxy.
//   - [WithoutSecrets] is for a mere check of a file.
//
// # The file throttle.toml
//
// [ReadAny] and [ReadThrottle] also read a throttle.toml, the file of the throttle service. Its semaphores are in
// [semaphores], keep-idle is litter_collection_interval, and there is no listen. It may also have grace, max_peers
// and [election] of [leases], with underscores. An unknown key, such as [logging], is one of File.Warnings and no
// error.
//
// # Every field
//
// This is every field of pools and limiters. The types [Proxy], [Rule], [Decide] and [Leases] have those of the other
// sections, where a file spells HeaderBytes header-bytes, and docs/file.md has all of them in tables.
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
package config
