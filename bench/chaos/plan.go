package main

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// A lane is a sequence of faults of which one is there at a time.
type lane int

const (
	laneKill lane = iota
	laneStop
	laneRedis
	laneDNS
	laneFile
	laneCluster
	laneSilence
	laneClock
	lanes // how many there are
)

// A fault happens at an instant of the run and lasts for a while. It ends when the killed process is
// replaced, the stopped one goes on, or the source is well again.
type fault struct {
	at, lasts time.Duration
	lane      lane
	kind      int // counts within the lane
}

// Faults begin after warmUp and end before coolDown, so that what follows the last one can be seen.
const (
	warmUp   = time.Second
	coolDown = holdDown + 3*redisPeriod + redisExpiry + time.Second
	leastGap = 3 * time.Second // between two faults of a lane, where there are more than the duration asks for
)

// plans returns how many faults a lane has in ten minutes, of how many kinds, and how long one lasts.
var plans = []struct {
	lane
	inTenMinutes, kinds int
	lasts               func(kind int) (least, most time.Duration)
}{
	{laneKill, 60, 2, killLasts},
	{laneStop, 60, 2, stopLasts},
	{laneRedis, 30, len(redisKinds), always(200*time.Millisecond, 2*time.Second)},
	{laneDNS, 20, len(dnsKinds), always(time.Second, 3*time.Second)},
	{laneFile, 20, len(fileKinds), always(time.Second, 3*time.Second)},
	{laneCluster, 20, 1, always(3*time.Second, 5*time.Second)},
	{laneSilence, 20, len(silenceKinds), silenceLasts},
	{laneClock, 20, len(clockKinds), always(9*time.Second, 14*time.Second)},
}

func always(least, most time.Duration) func(int) (time.Duration, time.Duration) {
	return func(int) (time.Duration, time.Duration) { return least, most }
}

// stopLasts is well below the expiry of Redis, or long enough for the others to go on without the stopped one.
func stopLasts(kind int) (least, most time.Duration) {
	if kind == 0 {
		return 200 * time.Millisecond, 400 * time.Millisecond
	}
	return coolDown, coolDown + time.Second
}

// killLasts is too short for the others to notice, or long enough for all of them.
func killLasts(kind int) (least, most time.Duration) {
	if kind == 0 {
		return 300 * time.Millisecond, 2 * time.Second
	}
	return coolDown, coolDown + time.Second
}

// schedule is what happens in a run, in order. The same seed gives the same faults.
func schedule(c config) []fault {
	rng := rand.New(rand.NewPCG(c.Seed, 1))
	usable := c.Duration - warmUp - coolDown
	var all []fault
	for _, l := range plans {
		n := int(float64(l.inTenMinutes)*c.Duration.Minutes()/10 + .5)
		n = max(1, n, min(l.kinds, int(usable/leastGap)))
		slot := usable / time.Duration(n)
		first := rng.IntN(l.kinds)
		for i := range n {
			f := fault{lane: l.lane, kind: (first + i) % l.kinds}
			least, most := l.lasts(f.kind)
			if least > slot {
				f.kind = 0
				least, most = l.lasts(0)
			}
			f.lasts = min(least+time.Duration(rng.Int64N(int64(most-least))), slot)
			f.at = warmUp + time.Duration(i)*slot + time.Duration(rng.Float64()*float64(slot-f.lasts))
			all = append(all, f)
		}
	}
	slices.SortStableFunc(all, func(a, b fault) int { return cmp.Compare(a.at, b.at) })
	return all
}
