// Package etcd counts the replicas of a fleet in etcd. A Source gives its replica a lease and one key, and watches
// the keys of the others. It deletes its own key at the end. Nothing on the request path waits for the store. The
// tests run with etcd 3.4.23, the version in Debian 12, and client 3.6; client 3.7.3 has passed them too.
//
// # How a fleet is counted
//
// Each process puts one key under the fleet's prefix, with a lease of Expiry. It lists the prefix, and watches it
// from the revision of the list. So every start and every end of a replica reaches all others within milliseconds.
//
// Once a Period each replica renews its lease and checks the store: it reads the number of keys and the
// newest revision among them. If these do not match the result of the watch, as with a watch that hangs, it
// lists the fleet again. It also lists the fleet again after a compaction, and after any failure.
//
// The package promises:
//
//   - A replica reports the count of one revision of the store. It includes this replica, so it is at least
//     1.
//   - A new replica reports nothing before its start is over: see Source.Watch. The same holds for a
//     replica that the store has lost, by an outage longer than its lease or with all data. By then the
//     others are back as well.
//   - A replica whose Watch ends deletes its key by revoking its lease. A replica that was killed counts
//     until the lease ends: its Expiry after the last renewal and up to half a second. After an election
//     etcd's leader extends each lease by its whole time. So an outage of the store removes no replica from
//     the fleet.
//   - Only the store's leader decides when a lease ends. The clocks of the replicas do not matter.
//   - While the store is away each failed attempt is an error, and no pool is reported. The last good pool
//     stays, and quotient.HintMaxAge bounds for how long.
//   - A registration that was not renewed for an Expiry, as in a process that was suspended, is not
//     reported.
//   - A member of etcd may fail or hang while most members work. A command that takes half of its time is
//     repeated once, and a client of several members sends it to another one.
//
// # Ordinals
//
// The oldest key has the ordinal 1, the next one 2, and so on. When a replica leaves, the ordinals of all
// younger ones fall by one. Each replica learns of that at its own time. So two may have one ordinal for an
// instant, and Pool.Fixed is never set. quotient.Follow uses an ordinal for slots once it has not changed
// for a hold-down. A replica that registers again is the youngest.
//
// # The client
//
// The program makes the client, sets its options and closes it. Three of the options matter here:
//
//	clientv3.Config{
//		Endpoints:            []string{"https://a:2379", "https://b:2379", "https://c:2379"}, // all members
//		DialKeepAliveTime:    10 * time.Second, // without it a dead connection is found after minutes
//		DialKeepAliveTimeout: 3 * time.Second,
//	}
//
// With a user name and a password clientv3.New fails while the store is away: try it again, beside the start
// of the program. After a failure the source makes the client connect again at once. Without that gRPC would
// wait for up to two minutes.
//
// # Limits
//
// A replica that can reach its upstream, and not the store, is dropped by the others when its lease ends. Until its
// next check it uses the share that it had, so the fleet uses one share too many for as long as that lasts.
// Only quotient.AwaitPool without Replicas ends it. If all lose the store for longer than an Expiry, each keeps its
// last good pool.
//
// A new replica that finds an empty store counts those that are back by the end of its start. Others may
// take longer: DialKeepAliveTime bounds how long a connection can be dead without notice.
//
// Others count a new replica within 0.12 s in a fleet of 300, and it reports itself after 2.25 s. A fleet of 100 uses
// 0.09 of a processor of the store, one of 300 uses 0.24. Choose poolsize/redis for thousands of replicas, or to resume
// policy.Ramp, and do not use the etcd of Kubernetes itself.
//
// The store does the work of one check for each replica in each Period, which takes about a microsecond a key. So
// fleets of more than 1,000 check less often, by the square of their size: one of 10,000 checks once in 100 periods.
// Every new replica causes one event at each other replica. A fleet of more than 1,000,000 keys is an error.
//
// # Keys
//
//	quotient/web/web-0:2NCPNFJHJGJYWBAJBP3CXSGDYU    {"version":1}
//
// A key has the prefix, the fleet, and the ID with a random word. The slash after the fleet separates "app" from
// "app2". A key counts as one replica if it has a lease and a name without a further slash. Its value is ignored: a
// later version may add fields, such as a weight, and such a replica counts as one here. A key without a lease would
// never expire, so it does not count. Every client that may write these keys is trusted.
//
// Where the store has users, this role is enough:
//
//	etcdctl role grant-permission quotient --prefix=true readwrite quotient/web/
package etcd
