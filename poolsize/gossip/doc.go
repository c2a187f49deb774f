// Package gossip counts the replicas of a fleet without a store: they find each other, watch each other, and
// add up numbers over all of them. Membership and encryption are those of hashicorp/memberlist. The numbers
// flow between neighbours in a binary heap of the members, so that a replica talks to three others at most,
// however many there are.
package gossip
