// Package gossip counts the replicas of a fleet without a store: they find each other, watch each other,
// and add up numbers over all of them. Membership, failure detection and encryption are those of
// hashicorp/memberlist. The numbers flow between neighbours in a binary heap of the members. So a replica
// sends to three others at most, however many there are.
//
// A Source is a quotient.Source: it reports how many replicas live. It is a quotient.Carrier too. With
// quotient.Demand a limiter that follows it borrows what the others do not use of a busy key's limit. And
// it has Counters, which are totals over the fleet.
//
// # How a replica finds the others
//
// It asks any one that lives, and that one knows the rest. Where to ask stands in Config.Join, in a file or
// in the DNS, such as the name of a headless Service. All of it is read again every ten seconds, and
// addresses that are not members are tried again, for ever. So new replicas are found, a new list counts
// without a restart, and two halves of a fleet that lost each other meet again. Each replica should have the
// whole list: the own address may be in it.
//
// A replica reports nothing until one of the addresses has answered. It reports a fleet of one only if no
// address but its own is listed. So the first one of a fixed list waits for the second, under the limiter's
// configured pool.
//
// # What is promised
//
//   - A join is known to all within a few hundred milliseconds, and so is a leave.
//   - A replica that dies without a word counts for five to ten probes more: 5 to 10 s by default. A replica
//     that is restarted at its address takes its former place at once.
//   - A part of the fleet that has lost as many replicas as it still has, or more, takes that for a
//     partition. For ten minutes (Config.Forget) it counts them as before, so that it does not take their
//     share. It reports an error meanwhile, and has no ordinals. A larger part goes on without the smaller
//     one.
//   - Two replicas of one name are refused. The later one reports an error that names both addresses, and
//     no pool, until the earlier one has gone.
//   - Members of another version count, and fields that they add are skipped. The sums are not complete
//     while a member's numbers cannot be read, or two that have started have one name.
//
// Ordinals go by the order of the names. A join moves all behind it up by one, and each replica learns of
// that at its own time. So Pool.Fixed is never set: quotient.Follow uses an ordinal for slots once it has
// not changed for a hold-down. With the pods of a StatefulSet use quotient.FixedOrdinal.
//
// # Sums
//
// A number reaches all others after one Interval, and a packet's time, for each edge between them. There
// are 6 edges at most in a fleet of 15, 12 in one of 100, and 23 in one of 5,000. A packet that is lost
// costs an interval. A later value replaces an earlier one, so nothing is counted twice and no sum drifts.
// A sum comes with its age. After each change of the fleet it is not complete for as long as a number takes
// to all others.
//
// # The network
//
// There is one port, for UDP and TCP. Let both in between the replicas, from any port. UDP carries probes
// and numbers, TCP the list of members at a join and twice a minute. Datagrams have Config.PacketSize bytes
// at most.
//
// Beyond loopback all is encrypted, by AES in GCM mode, with a key that all replicas of the fleet have.
// This makes one:
//
//	head -c 32 /dev/urandom | base64 > gossip.key
//
// It can be exchanged while the fleet runs, in three steps. Add the new key as the second line of every
// file. When all have read it, which takes twice ten seconds, make it the first line. When all have read
// that, drop the old key. A file counts when two readings in a row agree. A file that cannot be read is an
// error, and the keys that were read before stay.
//
// Every replica that has the key is trusted in what it reports of members. The gain of a replica that lies
// is bounded: see bound 10 of docs/bounds.md.
//
// # Limits
//
// A replica that loses the network to the others, but not to its upstream, keeps its share. In the larger
// part of the fleet the others divide the whole limit. So one share for each that is cut off is too much.
//
// A new replica takes the place of one that has died. If half of a fleet dies within Config.Forget without
// that, the rest keeps its shares for as long, although there would be more for each. If one of a fleet of
// two was killed, and is not restarted, the survivor has half the limit for ten minutes. Set Forget to less
// where replicas are often killed and never cut off.
package gossip
