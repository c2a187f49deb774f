package heap

import (
	"math/bits"
	"time"
)

// counts are what happened since the start.
type counts struct {
	sent, sentBytes, received, receivedBytes uint64
	malformed, strange, otherList, late      uint64
}

// Stats are a node's numbers at one moment. Those of packets count since New.
type Stats struct {
	Members  int           // nodes in the list, this one included
	Index    int           // the place of this node in the heap, from 0
	Diameter int           // edges between the two nodes that are farthest apart
	Nodes    int           // nodes that the sums count, this one included
	Age      time.Duration // of the oldest part of the sums; Never while they are not complete

	// LastComplete is the age, now, of the last sums that were complete; Never before any.
	LastComplete time.Duration

	Keys    int  // gauges and counters that are kept
	Totals  int  // totals of single other members that are kept
	Limited bool // some node has no room for all keys

	Sent, SentBytes         uint64 // packets, and their bytes without UDP and IP headers
	Received, ReceivedBytes uint64
	Malformed               uint64 // packets that made no sense, or were of another version
	Strange                 uint64 // packets from or for a node that is no neighbour
	OtherList               uint64 // packets of a node with another member list
	Late                    uint64 // packets that came twice, too late or out of an earlier session
}

// Stats returns the numbers of this node.
func (n *Node) Stats(now time.Duration) Stats {
	n.tell(now)
	nodes, _ := n.side(nil)
	c := &n.count
	s := Stats{
		Members: len(n.members), Index: n.index(), Diameter: Diameter(len(n.members)),
		Nodes: nodes, Age: n.age(0), LastComplete: Never,
		Keys: len(n.table), Totals: n.totals, Limited: n.fleet+1 != 0,
		Sent: c.sent, SentBytes: c.sentBytes, Received: c.received, ReceivedBytes: c.receivedBytes,
		Malformed: c.malformed, Strange: c.strange, OtherList: c.otherList, Late: c.late,
	}
	if s.Age != Never {
		s.LastComplete = s.Age
	} else if n.everFull {
		s.LastComplete = n.now - n.complete
	}
	return s
}

// Diameter is how many edges lie between the two nodes of a heap that are farthest apart.
func Diameter(nodes int) int {
	if nodes < 2 {
		return 0
	}
	depth := bits.Len(uint(nodes)) - 1
	if half := 1<<depth - 1 + 1<<(depth-1); nodes > half {
		return 2 * depth // both children of the root reach the last level
	}
	return 2*depth - 1
}
