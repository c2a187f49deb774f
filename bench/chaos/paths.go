package main

import (
	"time"

	"github.com/quotient-go/quotient"
)

const (
	ms  = time.Millisecond
	sec = time.Second
)

// A path is one limiter of each replica, and so a fleet of its own.
type path int

// The first three differ in where their pool comes from. The next three differ in what is limited, and learn their
// pool, with ordinals, from a second DNS server, which never fails. The last three are those of the fleet that
// gossips, and no other.
const (
	fromFile path = iota
	fromDNS
	fromRedis
	onSlots   // permits in flight
	onWindows // aligned
	onTurns   // a paced rate
	onLent    // replicas lend what they do not use
	onLentSlots
	onCounted // windows that the fleet's count decides
	paths     // how many there are
)

// The sources have these settings: short, so that much happens in little time. Those of DNS and Redis look a tenth
// sooner or later than their period.
const (
	holdDown    = 2 * sec
	fileEvery   = 200 * ms
	dnsRefresh  = 250 * ms
	dnsTimeout  = 200 * ms
	redisPeriod = 250 * ms
	redisExpiry = sec

	gossipEvery   = 200 * ms
	gossipRejoin  = sec
	gossipNotices = 5 * sec                  // a death, at the latest
	newsMaxAge    = 2 * sec                  // of Demand
	newsCount     = newsMaxAge + gossipEvery // how long a report counts, at most

	windowPer  = 250 * ms // of the aligned rate
	countedPer = 10 * sec
)

// specs are what the paths are. looks is two periods of the source: a report may be on its way for one, and be read
// after another. slow is how long those may count who went without a word.
var specs = [paths]struct {
	name        string
	looks, slow time.Duration
}{
	{"file", 2 * fileEvery, 0},
	{"dns", 2 * dnsRefresh * 11 / 10, 0},
	{"redis", 2 * redisPeriod * 11 / 10, redisExpiry},
	{"slots", 2 * dnsRefresh * 11 / 10, 0},
	{"windows", 2 * dnsRefresh * 11 / 10, 0},
	{"turns", 2 * dnsRefresh * 11 / 10, 0},
	{"lent", 2 * gossipEvery, gossipNotices},
	{"lent-slots", 2 * gossipEvery, gossipNotices},
	{"counted", 2 * gossipEvery, gossipNotices},
}

type limit struct {
	rate   float64 // events a second; 0: there is no such limit
	burst  int
	window int // events of each window
	slots  int // in flight
}

// usual is what a fleet of eight may do on each path. Slots leave a remainder when they are divided. A replica has
// one of eight aligned windows for itself, so that one that opens the same window again and again has far too much, or
// nothing. The burst of the lent rate is some ten milliseconds for each, so that one that is busy can be late a little.
var usual = [paths]limit{
	{rate: 200, burst: 8}, {rate: 200, burst: 8}, {rate: 200, burst: 8}, {slots: 13}, {rate: 4, window: 1},
	{rate: 10, burst: 1}, {rate: 100, burst: 32}, {slots: 13}, {rate: 24, window: 240},
}

func (p path) String() string       { return specs[p].name }
func (p path) looks() time.Duration { return specs[p].looks }
func (p path) gossips() bool        { return p >= onLent }

// counts reports whether replicas count themselves.
func (p path) counts() bool { return specs[p].slow > 0 }

// allowed is how long after a change the shares may be wrong.
func (p path) allowed() time.Duration { return holdDown + specs[p].looks + specs[p].slow }

func (c config) paths() (list []path) {
	for p := range paths {
		if p.gossips() == c.Gossip {
			list = append(list, p)
		}
	}
	return list
}

// whole is the usual limit as a limiter takes it.
func (p path) whole() quotient.Limit {
	l := usual[p]
	rate := quotient.Rate{Name: "rate", Events: l.rate, Per: time.Second, Burst: l.burst}
	switch p {
	case onTurns:
		rate.Kind = quotient.Paced
	case onSlots, onLentSlots:
		return quotient.Limit{InFlight: l.slots}
	case onWindows:
		rate = quotient.Rate{Name: "window", Events: float64(l.window), Per: windowPer, Kind: quotient.Window}
	case onCounted:
		rate = quotient.Rate{Name: "counted", Events: float64(l.window), Per: countedPer, Kind: quotient.CountedWindow}
	}
	return quotient.Rates(rate)
}

// bucket is a replica's part of the burst as one of n: none is smaller than one event. Turns take a tenth of an
// event besides: see docs/bounds.md.
func (r record) bucket(p path, n int) float64 {
	return max(1, float64(r.limits[p].burst)/float64(n)) + map[path]float64{onTurns: .1}[p]
}
