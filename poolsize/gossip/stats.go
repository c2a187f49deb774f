package gossip

import "time"

// Stats is the state of this replica at one instant.
type Stats struct {
	// Name is the name of this replica.
	Name string
	// Address is the address that it advertises, "host:port"; "" while it does not listen.
	Address string
	// Members are the live replicas, this one included; 0 before the start is over.
	Members int
	// Age is how old the oldest part of the fleet's sums is; math.MaxInt64 while a part is missing.
	Age time.Duration
	// Diameter is the number of packets, one after the other, that bring a number from one end of the fleet
	// to the other.
	Diameter int
	// Keys is the number of keys that have numbers.
	Keys int
	// Sent and Received count the bytes of all packets and streams, membership included, without the headers
	// of UDP, TCP and IP.
	Sent, Received uint64
	// PacketsSent and PacketsReceived count UDP packets.
	PacketsSent, PacketsReceived uint64
	// Refused counts the packets of numbers that were dropped. They were malformed or of another version,
	// or their sender is no neighbour, as for an instant after each change of the fleet.
	Refused uint64
	// Errors counts the errors that Watch has reported. LastError is the last one, or nil.
	Errors    uint64
	LastError error
}

// Stats returns the state of this replica now.
func (s *Source) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Stats{
		Name: s.c.Name, Address: s.address, Members: s.members,
		Sent: s.traffic.sent.Load(), Received: s.traffic.received.Load(),
		PacketsSent: s.traffic.packetsSent.Load(), PacketsReceived: s.traffic.packetsReceived.Load(),
		Errors: s.errors, LastError: s.last,
	}
	s.numbers.stats(&st)
	return st
}
