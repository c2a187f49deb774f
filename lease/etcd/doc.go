// Package etcd elects the leader of several lease servers with etcd. An Election takes part for one server.
// It makes that server lead, with fencing tokens above those of all leaders before, or redirects its
// clients to the leader. No lease is stored in etcd: holders restore their leases at the next leader. The
// tests run with etcd 3.4.23, the version in Debian 12, and client 3.6.
//
// # What is promised
//
//   - At most one server grants leases at a time. A leader stops by itself before the store may let another
//     one lead. Its term counts from the time at which it sent the last renewal that was answered.
//   - Fencing tokens rise from each leader to the next, as the store's revisions do.
//   - A leader whose Run ends hands over at once. If a server was killed, stopped or cut off, another one
//     leads after its TTL and half a second that the store may take.
//   - While the store is away, the leader leads until its term is over, and then no server does. All
//     continue by themselves when the store is back.
//
// # What is not promised
//
// On Linux, the clock that counts a term stops while the whole machine is suspended. A lease.Server also
// reads the time of day, and grants nothing once that is past its term. If the time of day stopped or was
// set back as well, the server leads until its next call to the store, at most a quarter of the TTL later.
// If only the process is stopped, both clocks run on. A holder may be suspended too: only fencing tokens
// help there.
//
// The clocks need not agree, but must run at one speed. A tenth of the TTL is the margin for differences.
//
// A store that has lost its data begins with small revisions, and so with small tokens. A server that has
// seen larger tokens leads no more, and logs the reason.
//
// # The client
//
// The program makes the client, sets its options and closes it. Two of the options matter here:
//
//	clientv3.Config{
//		Endpoints:            []string{"https://a:2379", "https://b:2379", "https://c:2379"}, // all members
//		DialKeepAliveTime:    10 * time.Second, // without it a dead connection is found after minutes
//		DialKeepAliveTimeout: 3 * time.Second,
//	}
//
// # Keys
//
//	quotient-leases/locks/694d9a2c1f0e8a05    https://a.example:8000
//
// A key has the election's name, and the lease in etcd. Its value is the server's URL. The server with the
// oldest key leads. The election package of etcd's own client uses such keys too, and so does etcdctl:
// "etcdctl elect -l quotient-leases/locks" shows the leader. Every client that may write these keys is
// trusted.
package etcd
