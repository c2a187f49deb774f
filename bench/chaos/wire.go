package main

import "time"

// replicaArg is the only argument of a process that is a replica.
const replicaArg = "replica"

// A source is one way to learn the pool size. Each has a path of its own at the upstream, and so a fleet of its own.
type source int

// The first four are paths that differ in where their pool comes from. The others differ in what is limited,
// and learn their pool, with ordinals, from a second DNS server, which never fails.
const (
	fromFile source = iota
	fromDNS
	fromRedis
	fromCluster
	onSlots   // permits in flight; its source, and that of fromFile, may fall silent
	onWindows // an aligned rate, whose wall clock may be stepped
	onTurns   // a paced rate, whose wall clock may be stepped

	// Those of a fleet that gossips, and no other: they learn their pool from each other, and lend what they do
	// not use.
	onLent      // a rate
	onLentSlots // permits in flight
	onCounted   // an aligned rate that the fleet's count decides
	sources     // how many there are
)

var sourceNames = [sources]string{"file", "dns", "redis", "cluster", "slots", "windows", "turns", "lent", "lent-slots", "counted"}

func (s source) String() string { return sourceNames[s] }

// counted reports whether replicas count themselves there.
func (s source) counted() bool { return s == fromRedis || s == fromCluster || s.gossips() }

// gossips reports whether a path is of a fleet that gossips.
func (s source) gossips() bool { return s >= onLent }

// has reports whether a fleet has a path.
func (c config) has(s source) bool { return c.Gossip == s.gossips() }

// The sources have these settings: short, so that much happens in little time.
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

const (
	dnsPeriod   = dnsRefresh + dnsRefresh/10
	storePeriod = redisPeriod + redisPeriod/10
)

// periods is how often each source looks; DNS and Redis give or take a tenth.
var periods = [sources]time.Duration{
	fileEvery, dnsPeriod, storePeriod, storePeriod, dnsPeriod, dnsPeriod, dnsPeriod, gossipEvery, gossipEvery, gossipEvery,
}

// allowed is how long after a change the shares may be wrong: the hold-down and two periods, and with Redis the expiry
// of those who went without a word.
func (s source) allowed() time.Duration {
	d := holdDown + 2*periods[s]
	switch {
	case s.gossips():
		d += gossipNotices
	case s.counted():
		d += redisExpiry
	}
	return d
}

// An assignment tells a replica what to do: one line of JSON on its standard input. Commands follow, and the
// end of the input is its own.
type assignment struct {
	config
	ID      int    // 1, 2, …: never used twice
	Address string // its own, in DNS
	URL     string // of the upstream, without a path
	File    string
	DNS     string        // address of the server
	Steady  string        // address of the one that never fails
	Redis   string        // address of the server
	Cluster []string      // addresses of the nodes; none: there is no such path
	Whisper *gossiping    // of a fleet that gossips
	Life    time.Duration // ends by itself after this, whatever happens
}

// has reports whether the replica has a path.
func (a assignment) has(s source) bool {
	return a.config.has(s) && (s != fromCluster || len(a.Cluster) > 0)
}

// A command is one further line. A replica answers by a message for each step that it has done.
type command struct {
	Mute  []source       `json:",omitempty"` // say nothing from now on
	Speak []source       `json:",omitempty"` // say again what there is to say
	Step  *time.Duration `json:",omitempty"` // the wall clock is to be ahead by so much, or behind
	Busy  *bool          `json:",omitempty"` // callers ask, or do not
	Count bool           `json:",omitempty"` // say what is known of all
}

// A message is one line of JSON on a replica's standard output. One field is set.
type message struct {
	Born   int64   `json:",omitempty"` // it begins to follow its sources; all instants are by upstream.Clock
	Belief *belief `json:",omitempty"`
	Place  *place  `json:",omitempty"`
	Listed *listed `json:",omitempty"`
	Lent   *lent   `json:",omitempty"`
	Muted  *muted  `json:",omitempty"`
	Step   *step   `json:",omitempty"`
	Stall  *stall  `json:",omitempty"`
	Counts *counts `json:",omitempty"` // it was asked for
	End    *ending `json:",omitempty"` // the last message of an orderly end
}

// A belief is a pool size that was put in force at an instant between From and At.
type belief struct {
	Source   source
	Replicas int
	From, At int64
}

// A place is an ordinal that counts since an instant between From and At; 0 means no ordinal.
type place struct {
	Source   source
	Ordinal  int
	From, At int64
}

// A listed is how many members a replica knows of since an instant.
type listed struct {
	Members int
	At      int64
}

// A lent is a part of the limit that a replica has since an instant; 0: its share.
type lent struct {
	Source source
	Part   float64
	At     int64
}

// A muted reports that a source has fallen silent, or reports again.
type muted struct {
	Source source
	Silent bool
	At     int64
}

// A step of the wall clock happened between From and At. It is Ahead now, of what it was at the start.
type step struct {
	Ahead    time.Duration
	From, At int64
}

// A stall is a time in which the process did not get to run.
type stall struct{ From, To int64 }

// A counts is what a replica that gossips knows of the fleet.
type counts struct {
	Added                   int64            // by itself, to its own counter and to that of all
	Sums                    map[string]int64 // of each counter
	Age                     time.Duration    // of the oldest sum
	Members                 int
	Sent, Received, Refused uint64 // bytes, and packets
}

// An ending is what a replica has to say when it ends in order.
type ending struct {
	Leak      string // goroutines that were left
	Failed    int    // requests without an answer
	LastError string
}
