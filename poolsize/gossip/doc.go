// Package gossip counts the replicas of a fleet without a store: they find each other, watch each other,
// and compute sums over all of them. Membership, failure detection and encryption are those of
// hashicorp/memberlist. The sums travel between neighbours in a binary tree of the members. So a replica
// sends to at most three others, whatever the size of the fleet.
//
// A Source is a quotient.Source that reports the number of live replicas. With quotient.Demand a limiter that follows
// it borrows the part of a busy key's limit that the others do not use. The same packets carry the fleet's count of a
// quotient.CountedWindow, what replicas learn by policy.Tracking under BeyondShare, and Counters, which are totals of
// your own numbers over the fleet.
//
// # How a replica finds the others
//
// A replica contacts any live one, which knows the rest. The addresses to contact come from Config.Join,
// from a file, or from DNS, such as the name of a headless Service. The source reads all of them again
// every ten seconds, and keeps contacting addresses that are not members. So it finds new replicas, a new
// list counts without a restart, and two halves of a fleet that lost each other meet again. Give each
// replica the whole list, which may contain its own address.
//
// A replica reports nothing until one of the addresses has answered. It reports a fleet of one only if no
// address except its own is listed. So the first replica of a fixed list waits for the second, and the
// limiter uses its configured pool meanwhile.
//
// # What is promised
//
//   - All replicas learn of a new replica within a few hundred milliseconds, and of one that leaves as
//     well.
//   - A replica that dies without leaving counts for five to ten probes more: 5 to 10 s by default. A
//     replica that restarts at its address takes its former place at once.
//   - A part of the fleet that has lost at least as many replicas as it still has treats that as a
//     partition. For ten minutes (Config.Forget) it counts them as before, so that it does not take their
//     share. Meanwhile it reports an error and has no ordinals. A larger part continues without the smaller
//     one.
//   - A second replica of one name reports an error that names both addresses, and no pool, until the first
//     one has gone.
//   - Members of another version count, and the fields that they add are skipped. The sums are incomplete
//     while a member's numbers cannot be read, or while two started members have one name.
//
// The order of the names gives the ordinals. A new replica raises the ordinals of all behind it by one, and each
// replica learns of that at its own time. So Pool.Fixed is never set: quotient.Follow uses an ordinal for slots once
// it has not changed for a hold-down. With the pods of a StatefulSet use quotient.FixedOrdinal.
//
// # Sums
//
// For each edge between two replicas a number takes one Interval and the time of a packet. There are at
// most 6 edges in a fleet of 15, 12 in one of 100, and 23 in one of 5,000. A lost packet costs one
// Interval. A later value replaces an earlier one, so nothing counts twice and no sum drifts. Each sum has
// an age. After each change of the fleet a sum is incomplete until the numbers have reached all replicas.
//
// # The network
//
// There is one port, for UDP and TCP. A firewall must let both in from any port of the other replicas. UDP
// carries probes and numbers. TCP carries the list of members when a replica joins and twice a minute.
// Datagrams have at most Config.PacketSize bytes.
//
// Beyond loopback all traffic is encrypted, by AES in GCM mode, with a key that all replicas of the fleet
// have. This command makes one:
//
//	head -c 32 /dev/urandom | base64 > gossip.key
//
// To exchange the key while the fleet runs, take three steps. Add the new key as the second line of every
// file. When all have read it, which takes twice ten seconds, make it the first line. When all have read
// that, remove the old key. A file counts when two reads in a row agree. A file that cannot be read is an
// error, and the earlier keys stay.
//
// Every replica that has the key is trusted in what it reports of members. The gain of a replica that lies
// is bounded, as docs/bounds.md says of lent shares.
//
// # Limits
//
// A replica that loses the network to the others, but not to its upstream, keeps its share. The others
// divide the whole limit among the larger part of the fleet. So the fleet exceeds the limit by one share
// for each replica that is cut off.
//
// A new replica takes the place of a dead one. If half of a fleet dies within Config.Forget and is not replaced, the
// rest keeps its smaller shares for as long. If one replica of two is killed and does not restart, the survivor has
// half the limit for ten minutes. Set Forget to less where replicas are often killed and never cut off.
//
// If a replica with the key lies, others may borrow what is in use, but keep at least their even shares, with two
// exceptions: a forged count may close a quotient.CountedWindow, and a forged report may lower a rate that is learned
// under BeyondShare.
//
// A replica of a fleet of 50 uses 2.2 ms of a processor and 1.5 KB a second when it is idle (TestCost).
package gossip
