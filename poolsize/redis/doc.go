// Package redis tells a limiter how many replicas there are by counting them in Redis. A Source registers its
// replica, learns of the others once a period by one round trip, and takes it out at the end. It works with
// Redis 5 or later and what speaks its protocol, as one server, with Sentinel, and as a Cluster. Nothing on
// the request path waits for the store.
//
// # How the fleet agrees
//
// Each replica, called a processor here, syncs once a Period by one script in one round trip. The script
// records until when the processor counts, and which size it reports. It drops those whose time is over. It
// answers with the number of the living and the largest size that any of them reports. If all report the
// number of the living, they agree, and that size counts. Otherwise the largest of what the processor had,
// what is reported and what lives counts, and each processor syncs again half a Period later and reports the
// living. So all agree within two periods of a change, give or take the jitter. A fleet that changes all the
// time agrees never, and then what a processor had counts for one Expiry. A processor that is the first in
// the store holds its fleet's agreement up for as long as its start takes, which is longer: see
// Source.Watch.
//
// It promises:
//   - A size that is reported to the limiter is never below the number of the living at that sync.
//   - When any processor learns that all agree, no living processor uses less than that size.
//   - A new processor reports nothing before its second answer. By then the others have had a Period to learn
//     of it, and if the store lost its data just before, also to come back.
//   - A processor counts for its own Expiry after its last sync, whatever the others are set to.
//   - A store that has lost its data makes no processor believe in a smaller pool for one Expiry: by then all
//     are back. A sync that failed counts as such a loss, as it may hide one: while a sync fails once an
//     Expiry, no size shrinks.
//   - All instants are the store's. The clocks of the processors do not matter: a processor counts how long
//     it is since the store gave it the time. Where it is wrong, or has no time yet, that costs a second
//     round trip. If the store's clock goes forward, that is an outage, or as if it had lost its data. If it
//     goes back, the dead count for longer, by ten minutes at most.
//   - An outage takes no processor out of the fleet. If none has synced for half an Expiry or longer, all
//     that lived at the last sync count for one Expiry from the next one on. So one that starts just then
//     counts them too. An outage that is longer than an Expiry and a minute is taken for the end of the
//     fleet.
//   - A write that arrives after its processor has given it up changes nothing. A processor that left while
//     the network swallowed everything is not registered once more when the network heals.
//   - While the store is away every failed sync is an error, Follow keeps the last good pool, and quotient.HintMaxAge bounds how long.
//
// # Weights
//
// A processor with a Source.Weight of w counts as w wherever this page counts processors: in the number of
// the living, the sizes, the most that a fleet takes in. Its ordinal is the first of w. Take the smallest
// whole numbers in proportion, such as 2 and 1 for a machine and half of one. If weights are large, few
// processors get the remainder of a division. Each sync counts the processors of each weight above 1: what
// that costs goes by how many different weights there are.
//
// A version of this package without weights counts itself as one and every other processor too. Beside weights it uses the
// largest size that is reported, which is the sum of the weights a period after a change, so its share is right then. But such a fleet agrees never and
// has no ordinals, until the last of that version has gone.
//
// # Failover
//
// Redis copies to its replicas asynchronously, so a failover may lose the last writes. A processor that the
// store has forgotten, or whose sync failed meanwhile, takes that for a loss of all data and keeps its size
// for one Expiry. Any other one may miss for a Period those whose first sync was lost; quotient.HoldDown
// covers that. Deadlines are the old master's instants. If the new one's clock is behind, the dead count for
// longer by the difference, and if that is more than ten minutes all are forgotten. If it is ahead, a
// processor whose deadline has passed by it is forgotten until its next sync. If it is ahead by an Expiry
// those are all of them, and that is an outage again. A processor that the store has forgotten reports for
// one Expiry what it remembers, so that one that starts then counts as many.
//
// # Cluster
//
// By itself go-redis finds out once a minute which node serves what, and until then asks a master that has
// died: for longer than Expiry and hold-down. So before a sync that follows a failed one the source has the
// client find out again, by CLUSTER SLOTS, for a command's time at most. It needs ClusterClient's method
// ForEachMaster for that. A Client of your own that wraps a ClusterClient and hides that method needs a
// ClusterStateReloadInterval of less than half an Expiry, say 2 s.
//
// All are back about two periods and two commands after a replica has become the master. If not the process
// alone but its host has vanished it may be a second or two more. The first command of a new client may then
// wait 5 s for that host: go-redis asks for the list of commands, whatever the context says.
//
// # Limits
//
// Processors that the store cannot know do not count. If a failover loses all data, a processor that starts
// then and reaches the new master before all others counts itself alone after 2.25 periods and a command's
// time. The others keep their size for one Expiry. A processor that cannot reach the new master within an
// Expiry of the first that did is dropped. And until those that cannot reach it yet learn of one that has
// started meanwhile, the fleet may use one share too many.
//
// The dead may count for longer, so that shares are too small. Those that died or left in an outage do so for
// one Expiry after it. A fleet that crashed as a whole does so for one Expiry, if a processor starts within
// an Expiry and a minute. If the connection of a sync breaks, it may still arrive after the deregistration,
// within a command's time: then that processor counts for one Expiry.
//
// It does not promise this: a processor that cannot reach the store, but its upstream, is dropped by the
// others after its Expiry. A processor that was suspended is dropped too. Until its next sync it uses the
// share that it had. Every client that may write the fleet's keys is trusted, though no size beyond 100,000
// is believed, and a fleet of 100,000 processors takes in no more.
//
// # Keys
//
// All keys of a fleet share one hash tag, so that they lie on one node of a Cluster, and all expire by themselves.
//
//	{quotient:web}:deadlines    sorted set: processors, and until when they count, in ms; kept 11 minutes
//	{quotient:web}:sizes        sorted set: processors, and the sizes that they report; kept 11 minutes
//	{quotient:web}:weights      sorted set: processors that count as more than one, each with its weight; kept 11 minutes
//	{quotient:web}:silence      string: the last sync of any processor, and the last outage, in ms; kept 11 minutes
//	{quotient:web}:left:<ID>    with Source.Ceiling: the part of its ceiling that a processor reached; kept ResumeFor
//
// A user who may do this and nothing else:
//
//	ACL SETUSER quotient on >password ~{quotient:* +evalsha +eval +time +zscore +zadd +zrem +zcard +zrange
//	  +zrangebyscore +zrank +zlexcount +pexpire +del +set +get
//
// and for a Cluster +cluster|slots and +command besides: without the latter go-redis asks in vain at each sync.
// The server may log that go-redis was refused CLIENT, by which it names itself; that does no harm.
package redis
