package main

import "fmt"

// kind is what an operation does.
type kind int

const (
	newPeer kind = iota
	heartbeat
	removePeer
	expire // the end of a peer's time, where the time of other operations is not known
	ask
	wait // the rest of a call that was blocked
	release
	breakLock
	restore
	configure
	remainder
	acquired
	removeExpired
	restart // a server starts, or takes over, without peers
)

var kinds = [...]string{"new_peer", "heartbeat", "remove_peer", "expire", "ask", "wait", "release", "break",
	"restore", "configure", "remainder", "is_acquired", "remove_expired", "restart"}

func (k kind) String() string { return kinds[k] }

// input is what a client asks for. In fake time, at is the instant at which an operation was done; in real
// time it is 0, and only the order counts.
type input struct {
	kind      kind
	epoch     int // the server that was called
	at        int64
	id        uint64
	ttl       int64 // of a peer; of a call that blocks, how long it does at most
	semaphore int
	count     int64
	token     uint64 // of a call and a wait: what the lock's token will be seen to be; 0: it is never seen
	blocks    bool   // a call that is answered only by the wait that follows
	locks     [semaphores]lockState
}

// String is for a history that is refuted.
func (in input) String() string {
	text := fmt.Sprintf("%v e%d @%d peer %x", in.kind, in.epoch, in.at, in.id)
	switch in.kind {
	case newPeer, heartbeat:
		return fmt.Sprintf("%s ttl %d", text, in.ttl)
	case restore:
		return fmt.Sprintf("%s ttl %d %v", text, in.ttl, in.locks)
	}
	return fmt.Sprintf("%s s%d count %d token %d blocks %v", text, in.semaphore, in.count, in.token, in.blocks)
}

// unseen is a number that the client does not get to know.
const unseen = -1 << 62

// output is what a client sees. A lost answer may be any, and the operation may never have been done.
type output struct {
	lost  bool
	token uint64
	err   string
	n     int64
}

// The texts of the interface, as its page has them.
const (
	unknownPeer    = "Unknown peer"
	alreadyPending = "Already pending. Only one pendig lock per peer is allowed."
	restoreChanges = "Restore is not allowed to change existing peers."
	tooManyPeers   = "Too many peers."
	notHeld        = "No such lock is held."
)

func never(count, most int64) string {
	return fmt.Sprintf("Lock can never be acquired. Lock asks for count %d yet full count is only %d.", count,
		most)
}

func hierarchy(held, asked int64) string {
	return fmt.Sprintf("Lock hierachy violation. This may deadlock. The current lock level is %d the\n"+
		"        requested lock level was %d.", held, asked)
}

func grow(has, asked int64) string {
	return fmt.Sprintf("Lock count can only shrink. The lock has count %d, asked for is %d.", has, asked)
}
