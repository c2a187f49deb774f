// Package config reads what is limited from a file, in TOML, and puts it in force: for `quotient proxy`, and
// for programs that embed the library.
//
// Read reads a file and checks it, New makes its limiters in a quotient.Registry, and Config.Watch follows
// the file. A file:
//
//	[pool]                         # which replicas share the limits
//	source = "dns:api.prod.svc."   # or file:PATH, env:, another of WithSources; none: replicas is the size
//	replicas = 4                   # until the source has reported, and when it is silent for max-age
//	ordinal = 0                    # the number of this replica, from 1; 0: not known
//	weight = 1                     # as how many replicas this one counts; without a source
//	hold-down = "1m"               # before a smaller pool counts
//	max-age = "5m"                 # 0s: the last size stays for ever
//	await = false                  # admit nothing before the source has reported
//
//	[limiters.api]
//	rates = [                      # all hold at once, over the fleet
//	  { name = "minute", events = 100, per = "1m", aligned = true },
//	  { name = "second", events = 20, per = "1s", burst = 40 },
//	  { name = "pace", events = 10, per = "1s", paced = true, no-turns = true },
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
//	dry-run = false
//	demand = { keys = 100, max-age = "2s" } # lend shares; wants a source that carries what replicas say
//
//	[limiters.api.plans.paid]      # a limit for a class of keys
//	in-flight = 500
//
//	[limiters.api.overrides."/old"] # a limit for one key
//	deny = true
//
//	[proxy]                        # only quotient proxy reads it
//	listen = "127.0.0.1:4040"
//	upstreams = ["http://127.0.0.1:8080"] # http, https or h2c
//	fields = "draft-11"            # of answers; or "x-ratelimit", "off"
//	trusted = ["10.0.0.0/8"]       # whose forwarded addresses are believed
//	proxy-protocol = false
//	h2c = false
//
//	[[proxy.rules]]                # in order; each request comes under the first that matches
//	pattern = "GET /assets/"       # as http.ServeMux has it, for canonical paths
//	exempt = true
//
//	[[proxy.rules]]
//	pattern = "/"                  # the last one matches all
//	limiter = "api"
//	key = "path"                   # or pattern, client, host, header:NAME, constant:KEY
//	plan = "header:X-Plan"         # or claim:NAME, with [proxy.jwt]
//
//	[proxy.health]                 # path, every, timeout, unhealthy, healthy
//	[proxy.timeouts]               # read-header, read-body, write, idle, dial, response-header, ...
//	stream = "1h"
//	shutdown = "20s"
//	[proxy.max]                    # header-bytes, body-bytes, connections, streams, upstream
//	[proxy.tls]                    # cert, key, client-ca
//	cert = "cert.pem"
//	key = "key.pem"
//	[proxy.jwt]                    # key-file, issuer, audience
//	key-file = "jwt.pem"
//	[proxy.admin]                  # listen, token-file, read-only-token-file, hosts, [proxy.admin.tls]
//	listen = "127.0.0.1:4041"
//
//	[leases]                       # semaphores as a service: quotient leases, or quotient proxy beside its own
//	listen = "127.0.0.1:8000"
//	keep-idle = "5min"             # how long a peer that holds nothing is kept after it has expired
//	grace = "0s"                   # after the start, in which locks are only restored
//	max-peers = 100_000
//	[leases.semaphores]            # how many may hold each at once
//	A = 42
//	B = { max = 4, level = 1 }     # a peer that holds a lock may ask only for those of lower levels
//	[leases.election]              # several servers, of which one serves
//	endpoints = ["10.0.0.5:2379"]  # of etcd
//	url = "http://10.0.0.7:8000"   # at which clients reach this one; by default http:// and listen
//	name = "leases"
//	ttl = "10s"
//	user = "quotient"              # of etcd, with password-file
//	password-file = "password"
//
// Durations are text with units. In [leases] they may also be as in "1h 30m" and "2days". Names of files are relative to the file's folder. A rate without a name is
// named by its period: second, minute, hour, day, 10s. A second one of the same name and unit is named by its
// position, and loses its state when that changes.
//
// # The other file
//
// ReadAny and ReadThrottle also take a throttle.toml, the file of the server whose clients a lease server
// serves. Its semaphores stand in [semaphores], keep-idle is litter_collection_interval there, and nothing
// has a listen. Beside that it may have grace, max_peers and [election] as above, with underscores. A key
// that is not known there, such as [logging], is accepted, and is one of File.Warnings.
//
// # What is refused
//
// Each mistake is an error, with its place and a hint: an unknown field, a value of another kind or out of
// range. In [proxy] a rule that is never reached or overlaps with another is one, and a request that no rule
// matches. File.Warnings also names a limiter that no rule uses, and an override of a key that no request
// can have.
//
// # What a change does
//
// A reload is whole or not at all. A limiter whose section has changed is set to what the section says: its
// limit, its plans, its overrides and its dry run. It keeps its keys, their state, and its waiters. One whose
// section has not changed is not touched: what an operator has changed by hand stays, and State names it. A
// limiter that has left the file leaves the registry. Size of queues, number of keys, policy, ceiling,
// demand, hold-down, max-age and await of a limiter in force do not change: such a file is refused, and wants
// a restart.
package config
