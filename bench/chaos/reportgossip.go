package main

import (
	"fmt"
	"slices"
	"strings"
)

// gossipText is the report of a fleet that gossips.
func (v verdict) gossipText(b *strings.Builder, r record) {
	say := func(format string, args ...any) { fmt.Fprintf(b, format+"\n", args...) }
	say("# Chaos with gossip\n")
	say("%d processes for %v, seed %d: a rate of %v/s with a burst of %d over the fleet, and %d slots. The busy replicas change.",
		r.Replicas, r.Duration, r.Seed, r.ctrl(onLent).rate, r.ctrl(onLent).burst, r.ctrl(onLentSlots).slots)
	say("Reports every %v, and none that is older than %v counts. Probes every %v. Hold-down %v.",
		gossipEvery, newsMaxAge, gossipProbe, holdDown)
	say("\n%d partitions, %d that go one way only, %d times kill -9 and a new process, %d times SIGSTOP and SIGCONT.",
		r.Struck[strokePart], r.Struck[strokeOneWay], r.Struck[strokeKill], r.Struck[strokeStop])
	say("%d that leave in order, %d changes of the busy replicas.", r.Struck[strokeLeave], r.Struck[strokeLoad]+r.Struck[strokeCalm])
	m := r.Mesh
	say("%d datagrams: %.1f %% were lost by chance, %.1f %% came twice, %.1f %% were stopped by a partition; all were %v to %v late.",
		m.Sent, percent(m.Lost, m.Sent), percent(m.Doubled, m.Sent), percent(m.Cut, m.Sent), leastLate, mostLate)
	v.gossipBounds(say, r)
	g := v.Gossip
	say("\n## Use\n\nIn %d stretches without faults one replica of %d is busy. From %v after it begins it\n", len(g.Calms), r.Replicas, borrowed)
	say("| | least | median |\n| --- | --- | --- |")
	for _, row := range []struct {
		name string
		list []float64
	}{{"of the rate, may use", g.Parts}, {"of the rate, uses", g.Calms}, {"of the slots, uses", g.Slots}} {
		if len(row.list) > 0 {
			say("| %s | %.1f %% | %.1f %% |", row.name, 100*slices.Min(row.list), 100*middle(row.list))
		}
	}
	say("\n## Counters\n\nAfter %v of quiet all %d replicas say the same of %d counters. Those of living replicas are exact.", quietFor, g.Agreed, g.Keys)
	say("The counter of all says %d. Replicas that were killed took %d events with them that none had received.", g.Counted, g.Lost)
	say("Each replica sent %.1f KiB/s.", g.Bytes/1024)
	slices.Sort(g.Healed)
	if n := len(g.Healed); n > 0 {
		say("\n## After a partition\n\nAll have one list of members again after %.2f s as a median, %.2f s at worst (%d times; %d times something else",
			g.Healed[n/2].Seconds(), g.Healed[n-1].Seconds(), n, g.Unhealed)
		say("happened before).")
	}
	b.WriteString("\n## How soon all agree with the truth\n\n")
	v.table(b)
}

func percent(n, of int) float64 { return 100 * float64(n) / float64(max(1, of)) }

// gossipBounds prints the windows.
func (v verdict) gossipBounds(say func(string, ...any), r record) {
	p, slots, g := v.Paths[onLent], v.Paths[onLentSlots], v.Gossip
	say("\n## Bounds\n")
	say("Rate: %d requests. Bounds 2, 3, 4 and 10, the worst of all windows: %d left in %.3f s, %.2f allowed.",
		p.Requests, p.Fleet.Sent, p.Fleet.length().Seconds(), p.Fleet.Allowed)
	say("The most beyond R w + max(B, N) in any window: %.1f, in %.3f s from %.3f s.", g.Over, g.OverAt.length().Seconds(), g.OverAt.From.Seconds())
	say("Slots: %d permits. In %.0f s, in which nothing had changed for as long as reports count: at most %d in flight, %.0f allowed.",
		slots.Requests, g.Checked.Seconds(), slots.Fleet.Sent, slots.Fleet.Allowed)
	say("At any time: at most %d.", g.Most)
	say("Counted windows of %v: %d requests in %d of them, at most %d in one, where the limit is %d. Bound 14 allows more where",
		countedPer, v.Paths[onCounted].Requests, g.Windows, g.Worst, r.ctrl(onCounted).window)
	say("several are busy: what the others admit until reports of it are there.")
}
