// Package etcd reports to a limiter how many replicas there are by counting them in etcd. A Source gives
// its replica a lease and one key, watches the keys of the others, and takes its own away at the end. It
// counts replicas, not requests: nothing on the request path waits for the store. The tests run with etcd
// 3.4.23, as Debian 12 has it, and client 3.6; the client 3.7.3 has passed them too.
//
// # How a fleet is counted
//
// Each process puts one key under the fleet's prefix, with a lease of Expiry. It lists the prefix and
// watches it from the revision of the listing on. So every join and every leave reaches all others by
// itself, within milliseconds. Once a Period each replica looks at the store. It renews its lease, and asks
// for the number of keys and the newest revision among them. If these are not what the watch has led to, as
// with a watch that hangs, it lists the fleet again. It does so as well after a compaction, and after any
// failure.
//
// It promises:
//   - A replica reports what one revision of the store held, never less than 1, itself among it.
//   - A new replica reports nothing before its start is over: see Source.Watch. Neither does one that the
//     store has lost, by an outage longer than its lease or with all data. By then the others are back as
//     well.
//   - A replica whose Watch ends deletes its key by revoking its lease. A replica that was killed counts
//     until the lease ends: its Expiry after the last renewal and up to half a second. After an election the
//     leader gives each lease its whole time once more, so that an outage of the store takes no replica out
//     of the fleet.
//   - The store's leader alone decides when a lease ends. The clocks of the replicas do not matter.
//   - While the store is away each failed try is an error, and no pool is reported. The last good pool
//     stays, and quotient.HintMaxAge bounds how long.
//   - A registration that was not renewed for an Expiry, as in a process that was suspended, is not
//     reported.
//   - A member may fail or hang while most are there. A command that takes half of its time is tried once
//     more, which a client of several members does at another one.
//
// # Ordinals
//
// They go by the order in which the keys were created: the oldest replica is 1. A replica that leaves moves
// all that are younger down by one, and each of them learns of that at its own time. So two may hold one
// ordinal for an instant, and Pool.Fixed is never set: quotient.Follow uses an ordinal for slots once it
// has not changed for a hold-down. A replica that registers again is the youngest.
//
// # The client
//
// The program makes the client, sets its options and closes it. Three of them matter here:
//
//	clientv3.Config{
//		Endpoints:            []string{"https://a:2379", "https://b:2379", "https://c:2379"}, // all members
//		DialKeepAliveTime:    10 * time.Second, // or a connection into a black hole holds for minutes
//		DialKeepAliveTimeout: 3 * time.Second,
//	}
//
// After a failure the source has the client connect again at once, as gRPC would wait for up to two
// minutes.
//
// # Limits
//
// A replica that cannot reach the store, but its upstream, is dropped by the others when its lease ends.
// Until its next look it uses the share that it had: one share too many, for as long as that lasts.
// quotient.HintMaxAge ends it. If all lose the store for longer than an Expiry, each keeps its last good
// pool.
//
// A new replica that finds an empty store counts those who are back by the end of its start. Others may take
// longer: a connection that was lost without a word is found dead by DialKeepAliveTime.
//
// The store does the work of one check for each replica in each Period, which takes about a microsecond a
// key. So fleets of more than 1,000 check more rarely, by the square of their size: one of 10,000 once in
// 100 periods. Every join lets each replica have one event. A fleet of more than 1,000,000 keys is refused.
//
// # Keys
//
//	quotient/web/web-0:2NCPNFJHJGJYWBAJBP3CXSGDYU    {"version":1}
//
// The prefix, the fleet, and the ID with a random word. The slash after the fleet keeps "app" and "app2"
// apart. A key stands for one replica if it has a lease and a name without a further slash. Its value does
// not matter: a later version may add fields to it, such as a weight, and counts as one here. A key without
// a lease would count for ever, so it never counts. Every client that may write these keys is trusted.
//
// Where the store has users, this role is enough:
//
//	etcdctl role grant-permission quotient --prefix=true readwrite quotient/web/
package etcd
