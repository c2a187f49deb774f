// Package etcd elects which of several lease servers leads, over etcd. An [Election] stands for one server:
// it makes that one lead, with fencing tokens above those of all leaders before, or sends its clients to the
// one that does. No lease is kept in etcd: holders restore theirs with the next leader. The tests run with
// etcd 3.4.23, as Debian 12 has it, and client 3.6.
//
// # What is promised
//
//   - At most one server grants at a time. A leader stops by itself before the store may let another one
//     lead: its term is counted from the instant at which it sent the last renewal that was answered.
//   - Fencing tokens rise from each leader to the next, as the store's revisions do.
//   - A leader whose Run ends hands over at once. A server that was killed, stopped or cut off is followed
//     after its TTL, and half a second that the store may take.
//   - While the store is away, the leader leads until its term is over, and then no server does. All go on by
//     themselves when it is back.
//
// # What is not
//
// A machine that is suspended as a whole stops the clock by which terms are counted on Linux. A lease.Server
// looks at the time of day too, and grants nothing once that is past its term. Where the time of day stood
// still or was set back as well, it leads until it next asks the store, a quarter of the TTL later at most. A
// process that is stopped stops neither clock. A holder may be suspended too: only fencing tokens help there.
//
// The clocks need not agree, but must run at one speed: a tenth of the TTL is left for what they do not.
//
// A store that has lost its data begins with small revisions, and so with small tokens. A server that has
// seen larger ones does not lead any more, and logs why.
//
// # The client
//
// The program makes the client, sets its options and closes it. Two of them matter here:
//
//	clientv3.Config{
//		Endpoints:            []string{"https://a:2379", "https://b:2379", "https://c:2379"}, // all members
//		DialKeepAliveTime:    10 * time.Second, // or a connection into a black hole holds for minutes
//		DialKeepAliveTimeout: 3 * time.Second,
//	}
//
// # Keys
//
//	quotient-leases/locks/694d9a2c1f0e8a05    https://a.example:8000
//
// The election's name, and the lease in etcd. The oldest key leads. The election package of etcd's own client
// and etcdctl keep theirs in the same way, so "etcdctl elect -l quotient-leases/locks" shows the leader.
// Every client that may write these keys is trusted.
package etcd
