package main

import (
	"bytes"
	"fmt"
	"io"

	"github.com/quotient-go/quotient/bench/arena/contenders"
	"github.com/quotient-go/quotient/bench/arena/sim"
)

const gossipPreface = `# Gossip

The controller of the library alone, and with reports from other replicas: %d runs in virtual time, seeds %s.
Each replica sends five packets a second to each neighbour of a binary heap. One of twenty is lost, and a
packet takes 5 to 50 ms. Score and scenarios are those of [results.md](results.md). In the last three columns
gossip stops after two minutes, and what came %s seconds after the start and later is scored.
`

// gossips prints what reports are worth.
func (g grid) gossips(w io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, gossipPreface, g.played(), seedList(g.seeds), digits(sim.LateFrom.Seconds(), 1))
	t := table{header: []string{
		"scenario", "alone", "gossip", "gain", "goodput", "429 %", "Jain", "convergence s", "late, alone", "late, stopped", "gain, stopped",
	}}
	for s := range g.scenarios {
		by := func(name string) figures {
			return g.mean(func(c cell) bool { return c.scenario == s && g.contenders[c.contender].Name == name })
		}
		t.add(g.gossipRow(g.scenarios[s].Name, by)...)
	}
	for _, part := range []struct {
		name  string
		given bool
	}{{"mean of the given", true}, {"mean of our own", false}} {
		by := func(name string) figures {
			return g.meanOfFamilies(func(c cell) bool { return g.given(c) == part.given && g.contenders[c.contender].Name == name })
		}
		if by(contenders.Ours).runs > 0 {
			t.add(g.gossipRow(part.name, by)...)
		}
	}
	fmt.Fprintln(&b)
	t.print(&b)
	_, err := w.Write(b.Bytes())
	return err
}

// gossipRow is one row, of the figures by contender.
func (g grid) gossipRow(name string, by func(contender string) figures) []string {
	alone, news, stops := by(contenders.Ours), by(contenders.Gossiping), by(contenders.Stops)
	return []string{
		name, digits(alone.score, .001), digits(news.score, .001), fmt.Sprintf("%+.3f", news.score-alone.score),
		digits(news.goodput, .001), digits(news.refused*100, .1), digits(news.jain, .01), digits(news.converged, .1),
		digits(alone.late, .001), digits(stops.late, .001), fmt.Sprintf("%+.3f", stops.late-alone.late),
	}
}
