// Package lease provides semaphores as a service, for processes on several machines. A process acquires a
// lock before it uses a resource. The lock is a lease: it expires when its holder is gone.
//
// A Server serves a Table over HTTP. A Client holds leases on a Server, renews them with heartbeats, and
// restores them after a restart of the server. A Table is the state: the peers, their locks, and the queue
// of each semaphore. It is pure: time is an argument, and it starts nothing.
//
// Nothing is stored on disk and nothing is replicated. The holders know their locks, and restore them on a new server.
package lease
