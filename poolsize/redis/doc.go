// Package redis counts the replicas of a fleet in Redis. A Source registers its replica and learns the count with one
// round trip per period. It removes the replica at the end. It works with Redis 5 or later and compatible servers: a
// single server, Sentinel, or a Cluster. Nothing on the request path waits for the store.
//
// # How the fleet agrees
//
// To tell them from the replicas of Redis, this page calls the replicas of a fleet processors. Each
// processor calls one script once a Period: a sync. The script records until when the processor counts, and
// which size it reports. It drops the processors whose time is over. It returns the number of the living
// and the largest size that any of them reports.
//
// If all report the number of the living, they agree, and that size counts. Otherwise the largest of three
// counts: the size that the processor had, the largest size reported, and the number of the living. Each
// processor then syncs again half a Period later and reports the number of the living. So all agree within
// two periods of a change, give or take the jitter.
//
// A fleet that changes all the time never agrees. The size that a processor had then counts for one Expiry. The first
// processor in the store delays the agreement for as long as its start takes, which is longer: see Source.Watch.
//
// The package promises:
//
//   - A size that is reported to the limiter is never below the number of the living at that sync.
//   - When any processor learns that all agree, no living processor uses less than that size.
//   - A new processor reports nothing before its second answer. By then the others have had a Period to
//     learn of it. They have also had that time to come back, if the store lost its data just before.
//   - A processor counts for its own Expiry after its last sync, whatever the settings of the others are.
//   - A store that has lost its data makes no processor use a smaller pool for one Expiry. By then all are
//     back. A failed sync counts as such a loss, since it may hide one: while a sync fails once an Expiry,
//     no size shrinks.
//   - All times are those of the store's clock. The clocks of the processors do not matter: a processor
//     measures how long ago the store reported its time. If that time is wrong or missing, the sync takes a
//     second round trip. If the store's clock moves forward, that counts as an outage or as a loss of its
//     data. If it moves back, dead processors count for longer, by ten minutes at most.
//   - An outage removes no processor from the fleet. If none has synced for half an Expiry or longer, all
//     that lived at the last sync count for one Expiry from the next sync on. So a processor that starts
//     just then counts them too. An outage that is longer than an Expiry and a minute counts as the end of
//     the fleet.
//   - A delayed sync changes nothing if its processor no longer waits for it. So a network that recovers
//     does not register a processor again that has left meanwhile.
//   - While the store is away every failed sync is an error. Follow keeps the last good pool, and
//     quotient.HintMaxAge bounds for how long.
//
// # Weights
//
// A processor with a Source.Weight of w counts as w processors: in the number of the living, in the sizes, and in the
// most that a fleet accepts. Its ordinal is the first of w. Use the smallest whole numbers in proportion, such as 2
// and 1 for a machine and half of one. If weights are large, few processors get the remainder of a division. Each
// sync counts the processors of each weight above 1, so its cost grows with the number of different weights.
//
// A version of this package without weights counts every processor as one. Beside weights it uses the largest size
// that is reported. That is the sum of the weights a period after a change, so its share is right then. But such a
// fleet never agrees, and has no ordinals, until the last processor of that version has gone.
//
// # Failover
//
// Redis copies to its replicas asynchronously, so a failover may lose the last writes. A processor that the store has
// forgotten, or whose sync failed meanwhile, treats that as a loss of all data. It keeps its size for one Expiry. Any
// other processor may for a Period miss those whose first sync was lost; quotient.HoldDown covers that.
//
// Deadlines are times of the old master's clock. If the new master's clock is behind, dead processors count
// for longer by the difference. If it is behind by more than ten minutes, all are forgotten. If it is
// ahead, it forgets a processor whose deadline has passed until the next sync of that processor. If it is
// ahead by an Expiry, that is all of them, and counts as an outage. A processor that the store has
// forgotten reports the size that it remembers for one Expiry, so that a new processor counts as many.
//
// # Cluster
//
// A go-redis client reloads the state of a Cluster once a minute. Until then it calls a master that has
// died, for longer than Expiry and hold-down. So before a sync that follows a failed one, the source makes
// the client reload the state, by CLUSTER SLOTS, for a command's time at most. It needs ClusterClient's
// method ForEachMaster for that. If your Client wraps a ClusterClient and hides that method, set
// ClusterStateReloadInterval to less than half an Expiry, such as 2 s.
//
// All processors are back about two periods and two commands after a replica of Redis has become the master. It may
// take a second or two more if the whole host has vanished, and not only the process. The first command of a new
// client may then wait 5 s for that host: go-redis requests the list of commands, whatever the context is.
//
// # Limits
//
// The store counts only the processors that it knows. Suppose that a failover loses all data, and that a
// new processor reaches the new master before all others. It counts itself alone after 2.25 periods and a
// command's time. The others keep their size for one Expiry. A processor that cannot reach the new master
// within an Expiry of the first that did is dropped. Until those that cannot reach it yet learn of a new
// processor, the fleet may use one share too many.
//
// Dead processors may count for longer, so that shares are too small. Those that died or left in an outage
// count for one Expiry after it. A fleet that crashed as a whole counts for one Expiry, if a processor
// starts within an Expiry and a minute. If the connection of a sync breaks, the sync may still arrive after
// the deregistration, within a command's time. That processor then counts for one Expiry.
//
// A processor that can reach its upstream, and not the store, is dropped by the others after its Expiry. A suspended
// processor is dropped too. Until its next sync it uses the share that it had. Every client that may write the
// fleet's keys is trusted. But sizes above 100,000 are ignored, and a fleet of 100,000 processors accepts no more.
//
// # Keys
//
// All keys of a fleet share one hash tag, so that they are on one node of a Cluster. All expire by themselves.
//
//	{quotient:web}:deadlines    sorted set: processors, and until when they count, in ms; kept 11 minutes
//	{quotient:web}:sizes        sorted set: processors, and the sizes that they report; kept 11 minutes
//	{quotient:web}:weights      sorted set: processors that count as more than one, each with its weight; 11 minutes
//	{quotient:web}:silence      string: the last sync of any processor, and the last outage, in ms; kept 11 minutes
//	{quotient:web}:left:<ID>    with Source.Ceiling: the part of its ceiling that a processor reached; kept ResumeFor
//
// A user with these permissions is enough:
//
//	ACL SETUSER quotient on >password ~{quotient:* +evalsha +eval +time +zscore +zadd +zrem +zcard +zrange
//	  +zrangebyscore +zrank +zlexcount +pexpire +del +set +get
//
// A Cluster also needs +cluster|slots and +command: without the latter each sync makes go-redis send a COMMAND that
// is refused. The server may log that it refused CLIENT, by which go-redis names itself; that does no harm.
package redis
