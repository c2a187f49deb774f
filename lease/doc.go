// Package lease is semaphores as a service. Systems of several processes ask for permission before they use
// a resource. A permission is a lease: it ends by itself when its holder is gone.
//
// A [Table] is the state: peers, their locks, the queue of each semaphore. It is pure: time is an argument,
// and it starts nothing. A [Server] puts one Table behind a lock and a timer and serves it over HTTP. A
// [Client] holds leases on a Server, with a heartbeat, and restores them after the server's restart.
//
// Nothing is kept on disk and nothing is replicated. The holders know what they hold, and restore it on a
// new server.
package lease
