// Package redis tells a limiter how many replicas there are by counting them in Redis: a Source registers its replica, hears
// of the others once a period by one round trip, and takes it out at the end. It works with Redis 5 or later and what speaks its protocol, as
// one server, with Sentinel, and as a Cluster. Nothing on the request path waits for the store.
//
// # How the fleet agrees
//
// Each replica, called a processor here, syncs once a Period by one script in one round trip. The script records until when the processor counts,
// and which size it reports; it drops those whose time is over; and it answers with the number of the living and the
// largest size that any of them reports. If all report the number of the living, they agree, and that size counts. Else the largest of
// what the processor had, what is reported and what lives counts, and each processor syncs again half a Period later and
// reports the living. So all agree within two periods of a change, give or take the jitter; a fleet that changes all the time agrees never, and
// then what a processor had counts for one Expiry. A processor that is the first in the store holds its fleet's agreement up
// for as long as its start takes, which is longer: see Source.Watch.
//
// What is promised:
//   - A size that is reported to the limiter is never below the number of the living at that sync.
//   - When any processor hears that all agree, no living processor uses less than that size.
//   - A new processor reports nothing before its second answer. By then the others have had a Period to hear of it, and
//     if the store lost its data just before, also to come back.
//   - A processor counts for its own Expiry after its last sync, whatever the others are set to.
//   - A store that has lost its data makes nobody believe in a smaller pool for one Expiry: by then all are back. A sync that
//     failed counts as such a loss, as it may hide one: while a sync fails once an Expiry, no size shrinks.
//   - All instants are the store's. The clocks of the processors do not matter. If the store's clock goes forward, that is
//     as if it had lost its data; if it goes back, the dead count for longer, by ten minutes at most.
//   - While the store is away every failed sync is an error, Follow keeps the last good pool, and quotient.HintMaxAge bounds how long.
//
// # Failover
//
// Redis copies to its replicas asynchronously, so a failover may lose the last writes. Who hears that the store has forgotten it, or had a
// sync fail meanwhile, takes that for a loss of all data and keeps its size for one Expiry. Who had neither may
// miss for a Period those whose first sync was lost; quotient.HoldDown covers that. Deadlines are the old master's instants. If the new one's clock
// is behind, whoever is dead counts for longer by the difference, and if that is more than ten minutes all are forgotten. If it is ahead, whoever's
// deadline has passed by it is forgotten until its next sync: all of them, if it is ahead by an Expiry, and that is a loss of all data again.
//
// # Limits
//
// What is not promised: a processor that cannot reach the store, but its upstream, is dropped by the others after its Expiry, and so is one
// that was suspended; until its next sync it uses the share that it had. Whoever may write the fleet's keys is
// trusted, though no size beyond 100,000 is believed, and a fleet of 100,000 processors takes in no more.
//
// # Keys
//
// All keys of a fleet share one hash tag, so that they lie on one node of a Cluster, and all expire by themselves.
//
//	{quotient:web}:deadlines    sorted set: processors, and until when they count, in ms; kept 11 minutes
//	{quotient:web}:sizes        sorted set: processors, and the sizes that they report; kept 11 minutes
//	{quotient:web}:left:<ID>    with Source.Ceiling: the part of its ceiling that a processor reached; kept ResumeFor
//
// A user who may do this and nothing else:
//
//	ACL SETUSER quotient on >password ~{quotient:* +evalsha +eval +time +zscore +zadd +zrem +zcard +zrange
//	  +zrangebyscore +zrank +pexpire +del +set +get
//
// and for a Cluster +cluster|slots besides. The server may log that go-redis was refused
// CLIENT, by which it names itself; that does no harm.
package redis
