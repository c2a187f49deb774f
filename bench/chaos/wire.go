package main

import "time"

// replicaArg is the only argument of a process that is a replica.
const replicaArg = "replica"

// A source is one way to learn the pool size. Each has a path of its own at the upstream, and so a fleet of its own.
type source int

const (
	fromFile source = iota
	fromDNS
	fromRedis
	sources // how many there are
)

var sourceNames = [sources]string{"file", "dns", "redis"}

func (s source) String() string { return sourceNames[s] }

// What the sources are set to: short, so that much happens in little time.
const (
	holdDown    = 2 * time.Second
	fileEvery   = 200 * time.Millisecond
	dnsRefresh  = 250 * time.Millisecond
	dnsTimeout  = 200 * time.Millisecond
	redisPeriod = 250 * time.Millisecond
	redisExpiry = time.Second
	dnsName     = "replicas.chaos.test"
	redisFleet  = "chaos"
)

// periods is how often each source looks; DNS and Redis give or take a tenth.
var periods = [sources]time.Duration{fileEvery, dnsRefresh + dnsRefresh/10, redisPeriod + redisPeriod/10}

// allowed is how long after a change the shares may be wrong: the hold-down and two periods, and with Redis the expiry
// of those who went without a word.
func (s source) allowed() time.Duration {
	d := holdDown + 2*periods[s]
	if s == fromRedis {
		d += redisExpiry
	}
	return d
}

// An assignment tells a replica what to do: one line of JSON on its standard input, whose end is its own.
type assignment struct {
	ID      int    // 1, 2, …: never used twice
	URL     string // of the upstream, without a path
	File    string
	DNS     string // address of the server
	Redis   string // address of the server
	Limit   float64
	Burst   int
	Believe int           // the pool size that all sources say, whatever is true; 0: the truth
	Life    time.Duration // ends by itself after this, whatever happens
}

// A message is one line of JSON on a replica's standard output. One field is set.
type message struct {
	Born   int64   `json:",omitempty"` // it begins to follow its sources; all instants are by upstream.Clock
	Belief *belief `json:",omitempty"`
	Stall  *stall  `json:",omitempty"`
	End    *ending `json:",omitempty"` // the last message of an orderly end
}

// A belief is a pool size that was put in force at an instant between From and At.
type belief struct {
	Source   source
	Replicas int
	From, At int64
}

// A stall is a time in which the process did not get to run.
type stall struct{ From, To int64 }

// An ending is what a replica has to say when it ends in order.
type ending struct {
	Leak      string // goroutines that were left
	Failed    int    // requests without an answer
	LastError string
}
