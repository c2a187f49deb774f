// Package inside is what other packages of this module may do to a limiter, and users may not. Package admin asks which
// error a change would return, without the change, and shows with package metrics More than users are told. The judge
// and the properties of internal/judge fix what is chance otherwise, count without a side effect, and lend or report as
// a turn of the replicas' exchange would.
//
// The names of the variables' types are those of package quotient, which sets them when it is initialized; nothing
// changes them later. They are of type any because quotient imports this package.
package inside

import "time"

// SetLimit, SetPlan and Override are the methods of a limiter. If the last argument is true they return the error that
// the method would return now, and limits, units and plans stay as they are. To find out whether there is room for a
// key, Override may evict an idle one, as the method would.
var (
	SetLimit any // func(*Limiter, Limit, bool) (Limit, error)
	SetPlan  any // func(*Limiter, string, *Limit, bool) (*Limit, error)
	Override any // func(*Limiter, string, *Limit, time.Time, bool) (*KeyLimit, error); the time is the end
)

// OverrideBeneath is Override for good, for a reload of package config: a limit of the key that ends goes on over it.
var OverrideBeneath any // func(*Limiter, string, *Limit) error

// SetPool, SetDryRun and Reset are the methods of a limiter without their lines in its log, and so are those above: who
// logs a change with its author logs it alone. WarnOf logs what is suspicious in a limit that was so set; the last
// argument is none for the limiter's own, or "plan" or "key" and a name.
var (
	SetPool   any // func(*Limiter, Pool, time.Duration) error
	SetDryRun any // func(*Limiter, bool) bool
	Reset     any // func(*Limiter, string) bool
	WarnOf    any // func(*Limiter, *Limit, ...any)
)

// MoreOf is where More stands in a limiter's Stats.
var MoreOf any // func(*Stats) *More

// More is of the same instant as the Stats that it is in.
type More struct {
	DryRun, Learns bool // as the limiter's methods
	Demand         Demand
}

// Demand is the replicas' reports on keys (quotient.Demand), zero while no source carries them.
type Demand struct {
	Keys, Named, Lent int           // that any replica reports on, of these by this one, and with more than its share
	Age               time.Duration // of the oldest reports of them; math.MaxInt64 while some is missing
	MaxAge            time.Duration // the option's: the shares hold while reports are older
	Sent, Received    uint64        // bytes of the source that carries it, for all limiters
}

// What tests do to a limiter. They return whether the key is remembered, or is under the rule.
var (
	Fix            any // func(func(*Chance)) Option
	Count          any // func(*Limiter) Counts
	Lend           any // func(l *Limiter, key string, part float64, lasts time.Duration) bool; part 0 is the share
	Report         any // func(l *Limiter, key string, counted Rate, others int64, lasts time.Duration) bool
	ForgetPromises any // func(*Limiter): what callers who were refused have been told binds no other any more
)

// Chance is what is left to chance, or out of reach, unless a test fixes it.
type Chance struct {
	Phase   int64                 // which sparse windows are a replica's own while it knows no ordinal
	Wall    func(time.Time) int64 // the wall clock; nil for the real one
	Hash    func(string) uint64   // of keys: their shards, and the seeds of their controllers; nil for one of its own
	Plans   int                   // how many there may be at a time
	Unswept uint32                // so many calls of a shard come before it looks for idle keys to drop
}

// Counts is what a limiter has counted, without what Stats does before: to give back what was held for too long.
type Counts struct {
	Fired      uint64 // timers
	Overflowed uint64 // as in Stats
	Expired    uint64 // as in Stats
	Dry        uint64 // admitted by a dry run alone
}
