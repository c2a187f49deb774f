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
	fmt.Fprintf(&b, "# Chaos\n\n%d processes for %v, seed %d, each path limited to %v/s with a burst of %d over the fleet; Redis is %s.\n",
		r.Replicas, r.Duration, r.Seed, r.Limit, r.Burst, r.Redis)
	fmt.Fprintf(&b, "Hold-down %v. Periods: file %v, dns %v, give or take a tenth, redis %v with an expiry of %v.\n", holdDown, fileEvery, dnsRefresh, redisPeriod, redisExpiry)
	if r.Believe > 0 {
		fmt.Fprintf(&b, "All sources say %d, whatever is true.\n", r.Believe)
	}
	v.faults(&b, r)
	v.bounds(&b)
	v.late(&b)
	fmt.Fprintf(&b, "\n%d processes ended in order, %d of them left a goroutine behind. The longest time that a process stood still by itself: %v.\n",
		v.Ended, v.Leaks, v.Stall.Round(time.Millisecond))
	if v.Failed > 0 {
		fmt.Fprintf(&b, "%d of their requests got no answer, the last one: %s\n", v.Failed, v.LastError)
	}
	if len(v.Broken) == 0 {
		b.WriteString("\nEverything held.\n")
		return b.String()
	}
	fmt.Fprintf(&b, "\n%d promises were BROKEN:\n\n", len(v.Broken))
	for _, text := range v.Broken[:min(len(v.Broken), 20)] {
		fmt.Fprintf(&b, "- %s\n", text)
	}
	return b.String()
}

// faults counts what happened.
func (v verdict) faults(b *strings.Builder, r record) {
	var counts [laneFile + 1]int
	for _, f := range schedule(r.config) {
		counts[f.lane]++
	}
	fmt.Fprintf(b, "\n%d times kill -9 and a new process, %d times SIGSTOP and SIGCONT, %d restarts of Redis, %d DNS failures, %d file faults.\n",
		counts[laneKill], counts[laneStop], counts[laneRedis], counts[laneDNS], counts[laneFile])
}

// bounds prints the windows.
func (v verdict) bounds(b *strings.Builder) {
	b.WriteString("\n## Bounds\n\nThe worst of all windows between two departures: what left in it, and what the bound allows.\n\n")
	b.WriteString("| path | requests | of the limit used | bounds 2, 3: left | allowed | growths seen late | bound 1: left | allowed |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for s, p := range v.Paths {
		fmt.Fprintf(b, "| %s | %d | %.1f %% | %d in %.3f s | %.2f | %d | %d in %.3f s | %.2f |\n", source(s), p.Requests, 100*p.Used,
			p.Fleet.Sent, (p.Fleet.To - p.Fleet.From).Seconds(), p.Fleet.Allowed, p.Growths,
			p.Replica.Sent, (p.Replica.To - p.Replica.From).Seconds(), p.Replica.Allowed)
	}
}

// late prints how soon all agreed after what, and what it cost.
func (v verdict) late(b *strings.Builder) {
	b.WriteString("\n## How soon all agree with the truth\n\nSuperseded: something else changed before all did, or the source broke, and the time began anew. Over: the most that\nleft in a window around a time in which somebody believed in too few, beyond R w + max(B, N); bound 3 allows that much there.\n\n")
	b.WriteString("| what | source | count | superseded | median | worst | allowed | over | bound 3 |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	rows := slices.Clone(v.Rows)
	slices.SortStableFunc(rows, func(a, b row) int {
		if a.Source != b.Source {
			return int(a.Source - b.Source)
		}
		return strings.Compare(a.Kind, b.Kind)
	})
	for _, r := range rows {
		median, worst, over, bound := "-", "-", "-", "-"
		if len(r.Took) > 0 {
			slices.Sort(r.Took)
			median = fmt.Sprintf("%.2f s", r.Took[len(r.Took)/2].Seconds())
			worst = fmt.Sprintf("%.2f s", r.Took[len(r.Took)-1].Seconds())
		}
		if r.Bound3 > 0 {
			over, bound = fmt.Sprintf("%.1f", r.Over), fmt.Sprintf("%.1f", r.Bound3)
		}
		fmt.Fprintf(b, "| %s | %s | %d | %d | %s | %s | %.2f s | %s | %s |\n", r.Kind, r.Source, r.Count, r.Superseded, median, worst, r.Source.allowed().Seconds(), over, bound)
	}
	for s, p := range v.Paths {
		fmt.Fprintf(b, "\n%s: somebody was wrong for %.1f s in all.", source(s), p.Wrong.Seconds())
	}
	b.WriteString("\n")
}
