package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// text is the report as markdown.
func (v verdict) text(r record) string {
	var b strings.Builder
	if r.Gossip {
		v.gossipText(&b, r)
		v.endings(&b)
		return b.String()
	}
	fmt.Fprintf(&b, "# Chaos\n\n%d processes for %v, seed %d, each path limited to %v/s with a burst of %d over the fleet; Redis is %s.\n",
		r.Replicas, r.Duration, r.Seed, r.Limit, r.Burst, r.Redis)
	if r.Absent[fromCluster] == "" {
		fmt.Fprintf(&b, "The Redis Cluster has %d masters, and a replica of the one that has the fleet's keys; its node time-out is %v.\n",
			clusterMasters, nodeTimeout)
	} else {
		fmt.Fprintf(&b, "There is no Redis Cluster: %s.\n", r.Absent[fromCluster])
	}
	fmt.Fprintf(&b, "Hold-down %v. Periods: file %v, dns %v, give or take a tenth, redis %v with an expiry of %v.\n", holdDown, fileEvery, dnsRefresh, redisPeriod, redisExpiry)
	if r.Believe > 0 {
		fmt.Fprintf(&b, "All sources say %d, whatever is true.\n", r.Believe)
	}
	v.faults(&b, r)
	v.bounds(&b, r)
	v.others(&b, r)
	v.late(&b, r)
	v.endings(&b)
	return b.String()
}

// endings prints how processes ended, and what did not hold.
func (v verdict) endings(b *strings.Builder) {
	fmt.Fprintf(b, "\n%d processes ended in order, %d of them left a goroutine behind. The longest time that a process stood still by itself: %v.\n",
		v.Ended, v.Leaks, v.Stall.Round(time.Millisecond))
	if v.Failed > 0 {
		fmt.Fprintf(b, "%d of their requests got no answer, the last one: %s\n", v.Failed, v.LastError)
	}
	if len(v.Broken) == 0 {
		b.WriteString("\nEverything held.\n")
		return
	}
	fmt.Fprintf(b, "\n%d promises were BROKEN:\n\n", len(v.Broken))
	for _, text := range v.Broken[:min(len(v.Broken), 20)] {
		fmt.Fprintf(b, "- %s\n", text)
	}
}

// faults counts what happened.
func (v verdict) faults(b *strings.Builder, r record) {
	var counts [lanes]int
	for _, f := range schedule(r.config) {
		if r.Skip[f.lane] == "" {
			counts[f.lane]++
		}
	}
	fmt.Fprintf(b, "\n%d times kill -9 and a new process, %d times SIGSTOP and SIGCONT, %d restarts of Redis, %d DNS failures, %d file faults.\n",
		counts[laneKill], counts[laneStop], counts[laneRedis], counts[laneDNS], counts[laneFile])
	fmt.Fprintf(b, "%d failovers of the Redis Cluster, %d silences, %d wall clocks stepped and stepped back.\n",
		counts[laneCluster], counts[laneSilence], counts[laneClock])
	if why := r.Skip[laneCluster]; why != "" {
		fmt.Fprintf(b, "Failovers were left out: %s.\n", why)
	}
	if why := r.Skip[laneClock]; why != "" {
		fmt.Fprintf(b, "Steps of the wall clock were left out: %s.\n", why)
	}
}

// bounds prints the windows.
func (v verdict) bounds(b *strings.Builder, r record) {
	b.WriteString("\n## Bounds\n\nThe worst of all windows between two departures: what left in it, and what the bound allows.\n\n")
	b.WriteString("| path | requests | of the limit used | bounds 2, 3: left | allowed | growths seen late | bound 1: left | allowed |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for s, p := range v.Paths {
		if s := source(s); s == onSlots || s == onWindows || !r.has(s) {
			continue
		}
		fmt.Fprintf(b, "| %s | %d | %.1f %% | %d in %.3f s | %.2f | %d | %d in %.3f s | %.2f |\n", source(s), p.Requests, 100*p.Used,
			p.Fleet.Sent, (p.Fleet.To - p.Fleet.From).Seconds(), p.Fleet.Allowed, p.Growths,
			p.Replica.Sent, (p.Replica.To - p.Replica.From).Seconds(), p.Replica.Allowed)
	}
}

// others prints what is known of the paths that have no bucket, and of the clocks.
func (v verdict) others(b *strings.Builder, r record) {
	slots, windows, turns := v.Paths[onSlots], v.Paths[onWindows], v.Paths[onTurns]
	steps := 0
	for i := range r.Lives {
		steps += len(r.Lives[i].Steps)
	}
	say := func(format string, args ...any) { fmt.Fprintf(b, format+"\n", args...) }
	say("\nSlots: %d permits, %.1f %% of the time of all slots used.", slots.Requests, 100*slots.Used)
	say("Bound 5: at most %d in flight, %.0f allowed, but for the %d times in which a change may not be known yet.",
		slots.Fleet.Sent, slots.Fleet.Allowed, slots.Growths)
	say("%d times a source was silent for longer than HintMaxAge (%v).", slots.Silent, hintAge)
	say("\nAligned windows of %v: %d requests, %.1f %% of the limit used. Wall clocks were stepped %d times.",
		windowPer, windows.Requests, 100*windows.Used, steps)
	one := windows.Replica
	say("Bound 11, each replica: %d left in %.3f s, %.2f allowed.", one.Sent, one.length().Seconds(), one.Allowed)
	say("The fleet, in %d windows in which nothing changed: at most %d, %.0f allowed.",
		windows.Exact, windows.Fleet.Sent, windows.Fleet.Allowed)
	say("The longest that a replica got nothing: %.2f s of its windows, %.2f s of its turns, %v allowed.",
		windows.Gap.Seconds(), turns.Gap.Seconds(), stuckAfter)
}

// late prints how soon all agreed after what, and what it cost.
func (v verdict) late(b *strings.Builder, r record) {
	b.WriteString("\n## How soon all agree with the truth\n\nSuperseded: something else changed before all did, or the source broke, and the time began again. Over: the most that\nleft beyond R w + max(B, N) in a window around a time in which a replica believed in too few. Bound 3 allows that much for\nthis time alone. The window may hold more such times: the bounds above count them all.\n\n")
	v.table(b)
	for s, p := range v.Paths {
		if !r.has(source(s)) {
			continue
		}
		fmt.Fprintf(b, "\n%s: a replica was wrong for %.1f s in all.", source(s), p.Wrong.Seconds())
	}
	b.WriteString("\n")
}

// table prints what followed on what.
func (v verdict) table(b *strings.Builder) {
	b.WriteString("| what | source | count | superseded | median | worst | allowed | over | bound 3 |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	rows := slices.Clone(v.Rows)
	slices.SortStableFunc(rows, func(a, b row) int {
		if a.Source != b.Source {
			return int(a.Source - b.Source)
		}
		return strings.Compare(a.Kind, b.Kind)
	})
	for _, row := range rows {
		median, worst, over, bound := "-", "-", "-", "-"
		if len(row.Took) > 0 {
			slices.Sort(row.Took)
			median = fmt.Sprintf("%.2f s", row.Took[len(row.Took)/2].Seconds())
			worst = fmt.Sprintf("%.2f s", row.Took[len(row.Took)-1].Seconds())
		}
		if row.Bound3 > 0 {
			over, bound = fmt.Sprintf("%.1f", row.Over), fmt.Sprintf("%.1f", row.Bound3)
		}
		fmt.Fprintf(b, "| %s | %s | %d | %d | %s | %s | %.2f s | %s | %s |\n", row.Kind, row.Source, row.Count, row.Superseded, median, worst, row.Source.allowed().Seconds(), over, bound)
	}
}
