package gossip

import "testing"

// Replicas find each other by one of them, and each knows its place. One that leaves is missed at once.
func TestFleet(t *testing.T) {
	b := start(t, config("b"))
	b.wants(t, 1, 1)
	seed := b.address(t)
	a, c := start(t, config("a", seed)), start(t, config("c", seed))
	a.wants(t, 3, 1)
	b.wants(t, 3, 2)
	c.wants(t, 3, 3)
	a.leave(t)
	b.wants(t, 2, 1)
	c.wants(t, 2, 2)
}
