package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// A live is a way to learn the pool size while it changes, with the library's defaults.
type live struct {
	name   string
	period time.Duration
	jitter float64       // as a part of the period, up or down
	expiry time.Duration // of those who go without a word, where replicas count themselves; 0: the platform knows at once
}

var lives = []live{
	{"file", time.Second, 0, 0},
	{"dns", 5 * time.Second, .1, 0},
	{"redis", time.Second, .1, 10 * time.Second},
}

// The scenarios of live sources have these numbers in common.
const (
	liveLimit  = 1000.0 // requests a second over the fleet; all clients want more
	liveSmall  = 5
	liveLarge  = 20
	liveHold   = 30 * time.Second // the library's default hold-down
	liveChange = time.Minute      // when the pool grows or shrinks
	liveEnd    = 2 * time.Minute
)

// gap is the time from one look to the next.
func (l live) gap(rng *rand.Rand) time.Duration {
	return time.Duration(float64(l.period) * (1 + l.jitter*(2*rng.Float64()-1)))
}

// longest is the longest gap.
func (l live) longest() time.Duration { return time.Duration(float64(l.period) * (1 + l.jitter)) }

// A platform answers those who ask how many they are. Instants count from the start.
type platform struct {
	live
	count   int
	members map[int]*member
}

// A member is what the store of a fleet that counts itself knows of a replica, and what that replica knows.
type member struct {
	deadline time.Duration
	size     int // that it has reported
	living   int // of its last answer, which it reports the next time
	told     int // what counts for it
}

// ask is one look of a replica; it is not usable when the others cannot know of the replica yet. Replicas
// that count themselves agree when all report the number of the living; until then the largest counts.
func (p *platform) ask(id int, now time.Duration) (replicas int, usable, agreed bool) {
	if p.expiry == 0 {
		return p.count, true, true
	}
	for other, m := range p.members {
		if m.deadline < now {
			delete(p.members, other)
		}
	}
	m, known := p.members[id]
	if !known {
		m = &member{living: 1}
		p.members[id] = m
	}
	m.deadline, m.size = now+p.expiry, m.living
	living := len(p.members)
	agreed = true
	told := living
	for _, other := range p.members {
		told = max(told, other.size)
		agreed = agreed && other.size == living
	}
	if !agreed {
		told = max(told, m.told)
	}
	m.living, m.told = living, told
	return told, known, agreed
}

// look is one look, and how long it is until the next: half as long while those who count themselves disagree.
func (p *platform) look(r *liveReplica, now time.Duration) (replicas int, usable bool, gap time.Duration) {
	n, usable, agreed := p.ask(r.id, now)
	if gap = p.gap(r.rng); usable && !agreed {
		gap /= 2
	}
	return n, usable, gap
}

// A said is a pool size that a source has said from an instant on.
type said struct {
	at       time.Duration
	replicas int
}

// A liveReplica is one replica of a scenario, from start until end.
type liveReplica struct {
	id         int
	start, end time.Duration
	rng        *rand.Rand
	heard      []said
}

// liveFleet makes the replicas of a join or a leave. Those of the start begin to look at chance times, new
// replicas one after the other within milliseconds, and leavers go without a word all at once.
func liveFleet(l live, join bool, seed uint64) []*liveReplica {
	var all []*liveReplica
	for id := range liveLarge {
		r := &liveReplica{id: id, end: liveEnd, rng: rand.New(rand.NewPCG(seed, uint64(id)))}
		r.start = time.Duration(r.rng.Int64N(int64(l.period)))
		switch {
		case id >= liveSmall && join:
			r.start = liveChange + time.Duration(id)*time.Millisecond
		case id >= liveSmall:
			r.end = liveChange
		}
		all = append(all, r)
	}
	return all
}

// counts is what the platform counts before and after the change.
func counts(join bool) (before, after int) {
	if join {
		return liveSmall, liveLarge
	}
	return liveLarge, liveSmall
}

// playLive lets all replicas look, in order of time, until the end.
func playLive(l live, join bool, seed uint64) []*liveReplica {
	fleet := liveFleet(l, join, seed)
	p := &platform{live: l, members: map[int]*member{}}
	before, after := counts(join)
	next := make([]time.Duration, len(fleet))
	for i, r := range fleet {
		next[i] = r.start
	}
	for {
		i := slices.Index(next, slices.Min(next))
		now, r := next[i], fleet[i]
		if now >= liveEnd {
			return fleet
		}
		if p.count = before; now >= liveChange {
			p.count = after
		}
		if next[i] = liveEnd; now < r.end {
			n, usable, gap := p.look(r, now)
			if next[i] = now + gap; usable {
				r.heard = append(r.heard, said{now, n})
			}
		}
	}
}

// believes is the pool size that counts for a replica, as the library damps it: the largest report within
// the hold-down; 0: it has no share.
func (r *liveReplica) believes(t time.Duration) (n int) {
	if t >= r.end {
		return 0
	}
	for i, s := range r.heard {
		if s.at > t {
			break
		}
		if i+1 == len(r.heard) || t-r.heard[i+1].at < liveHold {
			n = max(n, s.replicas)
		}
	}
	return n
}

// A liveResult is what a change of the pool has cost.
type liveResult struct {
	over   float64       // let through beyond the limit
	unused float64       // not let through though the limit would have
	late   time.Duration // D: until those who were there before know of the new replicas
	right  time.Duration // until all believe the truth
}

// bound3 is what a join may cost that is seen so late.
func (r liveResult) bound3() float64 {
	return liveLimit * r.late.Seconds() * (float64(liveLarge)/liveSmall - 1)
}

// measureLive adds up the shares of all replicas, each of which uses all of its own, from the change on.
func measureLive(fleet []*liveReplica, join bool) (m liveResult) {
	_, after := counts(join)
	cuts := []time.Duration{liveChange, liveEnd}
	for _, r := range fleet {
		for _, s := range r.heard {
			cuts = append(cuts, s.at, s.at+liveHold)
		}
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	for i, from := range cuts[:len(cuts)-1] {
		if from < liveChange || from >= liveEnd {
			continue
		}
		to, share := cuts[i+1], 0.0
		for _, r := range fleet {
			n := r.believes(from)
			if n > 0 {
				share += liveLimit / float64(n)
			}
			if n != after && from < r.end {
				m.right = to - liveChange
				if r.start < liveChange && n < after {
					m.late = to - liveChange
				}
			}
		}
		w := (to - from).Seconds()
		m.over += max(0, share-liveLimit) * w
		m.unused += max(0, liveLimit-share) * w
	}
	return m
}

// mayTake is how long it may take until all are right: two periods up; down the hold-down more, and the expiry where replicas
// count themselves.
func (l live) mayTake(join bool) time.Duration {
	if join {
		return 2 * l.longest()
	}
	return liveHold + 2*l.longest() + l.expiry
}

// liveTable shows how joins and leaves are followed with each live source; the worst of all seeds.
func liveTable(b *bytes.Buffer, seeds []uint64) {
	fmt.Fprintf(b, `
## Live sources

%.0f/s over the fleet, all want more. The pool grows from %d to %d, or %d of %d go without a word. Sources look as
often as they do by default, the hold-down is %v. Each figure is the worst of the seeds %s. Over and unused are
requests; bound 3 is that of the same run. Right: from the change until all believe the truth; allowed are two periods, jitter included,
down after the hold-down, and after the expiry where replicas count themselves.

`, liveLimit, liveSmall, liveLarge, liveLarge-liveSmall, liveLarge, liveHold, seedList(seeds))
	t := table{header: []string{"scenario", "source", "over", "bound 3", "seen late s", "right after s", "allowed s", "unused", ""}}
	for _, join := range []bool{true, false} {
		for _, l := range lives {
			t.add(liveRow(l, join, seeds)...)
		}
	}
	t.print(b)
}

// liveRow is one row of the table.
func liveRow(l live, join bool, seeds []uint64) []string {
	var worst liveResult
	bound, held := 0.0, true
	for _, seed := range seeds {
		m := measureLive(playLive(l, join, seed), join)
		held = held && m.over <= m.bound3() && m.right <= l.mayTake(join)
		if m.over >= worst.over {
			worst.over, bound = m.over, m.bound3()
		}
		worst.late, worst.right = max(worst.late, m.late), max(worst.right, m.right)
		worst.unused = max(worst.unused, m.unused)
	}
	before, after := counts(join)
	name, verdict := fmt.Sprintf("live leave %d -> %d", before, after), "met"
	if join {
		name = fmt.Sprintf("live join %d -> %d", before, after)
	}
	if !held {
		verdict = "**MISSED**"
	}
	return []string{name, l.name, digits(worst.over, .1), digits(bound, .1), digits(worst.late.Seconds(), .01), digits(worst.right.Seconds(), .01),
		digits(l.mayTake(join).Seconds(), .01), digits(worst.unused, 1), verdict}
}
