package gossip

import "time"

// Stats is what a replica knows of itself at one instant.
type Stats struct {
	// Name is what the others call this replica.
	Name string
	// Address is what it advertises, "host:port"; "" while it does not listen.
	Address string
	// Members are the live replicas, this one included; 0 before the start is over.
	Members int
	// Age is how old the oldest part of the fleet's sums is; math.MaxInt64 while a part is missing.
	Age time.Duration
	// Diameter is how many packets one after the other bring a number from one end of the fleet to the
	// other.
	Diameter int
	// Keys are those that have numbers.
	Keys int
	// Sent and Received count the bytes of all packets and streams, membership included, without the headers
	// of UDP, TCP and IP.
	Sent, Received uint64
	// PacketsSent and PacketsReceived count UDP packets.
	PacketsSent, PacketsReceived uint64
	// Refused counts the packets of numbers that were not taken in. They were garbage or of another version,
	// or came from one that is no neighbour, as for an instant after each change of the fleet.
	Refused uint64
	// Errors counts what Watch has reported as an error, and LastError is the last one; nil: none.
	Errors    uint64
	LastError error
}

// Stats returns what this replica knows of itself now.
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
