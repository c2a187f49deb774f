package heap

import (
	"math/bits"
	"time"
)

// counts are the packets since New that did not count.
type counts struct {
	malformed uint64 // they made no sense, or were of another version
	strange   uint64 // from or for a node that is no neighbour
	otherList uint64 // of a node with another member list
	late      uint64 // they came twice, too late or out of an earlier session
}

// Stats are a node's numbers at one moment.
type Stats struct {
	Diameter int           // edges between the two nodes that are farthest apart
	Age      time.Duration // of the oldest part of the sums; Never while they are not complete
	Keys     int           // gauges and counters that are kept
	Refused  uint64        // packets since New that did not count, but for those that came late or twice
}

// Stats returns the numbers of this node.
func (n *Node) Stats(now time.Duration) Stats {
	n.tell(now)
	return Stats{Diameter: Diameter(len(n.members)), Age: n.age(0), Keys: len(n.table),
		Refused: n.count.malformed + n.count.strange + n.count.otherList}
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
