// Package lease provides semaphores as a service, for processes on several machines that share something: a report
// that only one may write, or a machine that takes four jobs. A process acquires a lock before it uses the resource,
// and the lock is a lease, which expires when its holder is gone.
//
// # A server
//
// A [Server] is an http.Handler. Each of its semaphores has a maximum, which is the sum of the counts that are held:
//
//	server, err := lease.NewServer(lease.Config{
//		Semaphores: map[string]lease.Semaphore{"reports": {Max: 2}},
//	}, lease.ServerOptions{})
//	if err != nil {
//		log.Fatal(err)
//	}
//	defer server.Close()
//	go http.ListenAndServe(":8000", server)
//
// The command "quotient leases" is the same with a configuration file, metrics and an election. docs/leases.md
// describes it and the HTTP interface, which clients in Python and Rust speak too. The server checks no credentials,
// so let only its clients reach it.
//
// # A client
//
// A [Client] waits for a lock, in the order of arrival, and renews it with heartbeats until Unlock:
//
//	client := &lease.Client{URLs: []string{"http://localhost:8000"}}
//	l, err := client.Lock(ctx, "reports", 1) // waits until it is held
//	if err != nil {
//		log.Fatal(err)
//	}
//	err = work(l.Context()) // this context ends when the lease is lost
//	fmt.Println(err, l.Unlock(ctx))
//
// A lease is lost if no server answers for nine tenths of Client.ExpiresIn, or of the server's grace time where that
// is shorter, or if an operator breaks the lock. Its context then ends with a cause that is [ErrLost], and the
// channel of [Lease.Lost] is closed.
//
// Two processes that each hold what the other waits for would wait for ever. To prevent that, a Lock under the context
// of a lease belongs to the same peer, and the server refuses it unless its semaphore has a lower level than all that
// the peer holds.
//
// # Fencing
//
// A lease does not guarantee that nobody else holds the lock. A process that is stopped, or a machine that sleeps,
// learns of the end of its lease only when it wakes, and may write once more before. Where two writers would do harm,
// send the [Lease.Token] with each write, because a later grant has a larger one, and have the resource refuse a
// smaller token than it has seen:
//
//	write := func(token uint64) int { // at the resource
//		if token < newest {
//			return http.StatusConflict
//		}
//		newest = token
//		return http.StatusOK
//	}
//
// # When the server restarts
//
// Nothing is stored on disk and nothing is replicated, since the holders know their locks and restore them on a new
// server. For Config.Grace after its start a server only restores, so that it gives no lock away which somebody still
// holds. Grace is 0 unless you set it; half a minute suits the default of Client.ExpiresIn. Of several servers one
// leads, by an election such as that of package lease/etcd, which calls [Server.Lead] and [Server.StandBy].
//
// # What is bounded, and what is not done
//
// A server has 100,000 peers unless Config.MaxPeers says otherwise, and bounds bodies and answers in memory. Locks
// are granted first in, first out, and a large count is not overtaken by small ones. There is no lock for reading
// only, and a lease says nothing about how often something happens: for that use package quotient.
//
// # The table
//
// A [Table] is the state behind a Server: the peers, their locks and the queue of each semaphore. It is pure, so time
// is an argument and nothing starts. You need it only to put another protocol before it.
//
// Server, Client and Lease are safe for concurrent use. A Table is for one goroutine at a time.
package lease
