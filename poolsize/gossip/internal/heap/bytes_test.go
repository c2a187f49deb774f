package heap

import (
	"flag"
	"fmt"
	"testing"
	"time"
)

// traffic is what a fleet says in every interval.
type traffic struct {
	name  string
	keys  int
	terms func(f *fleet, nodes int) Terms // of a gauge; nil for counters
}

// shares are what replicas say when they lend: each knows the key, most terms stay, its claim and its pace
// change.
func shares(f *fleet, nodes int) Terms {
	part := func(whole int64) int64 { return whole/int64(nodes) + f.rand.Int64N(whole/int64(nodes)/4+2) }
	return Terms{1, part(1e6), 1 / (1 + f.rand.Int64N(int64(nodes))), part(1e9), 1}
}

// perSecond measures bytes a second with all headers: of the busiest node, and on average of nodes with
// three edges.
func perSecond(t *testing.T, nodes int, w traffic) (busiest, mean float64) {
	f := newFleet(t, 5, Options{})
	ps := f.many(nodes)
	say := func() {
		for k := range w.keys {
			key := fmt.Sprintf("tenant/%04d/api", k)
			for _, p := range ps {
				if w.terms == nil { // 25000 events a second of each key, over the whole fleet
					p.Add(f.clock(p), key, int64(5000/nodes))
				} else {
					p.Say(key, w.terms(f, nodes))
				}
			}
		}
	}
	var turn func()
	turn = func() {
		say()
		f.after(f.interval, turn)
	}
	turn()
	f.run(14 * time.Second) // acknowledgements are longer during the first 64 packets
	const seconds = 1
	clear(f.sent)
	f.run(seconds * time.Second)
	inner := 0
	for _, p := range ps {
		rate := float64(f.sent[p.self.ID]) / seconds
		busiest = max(busiest, rate)
		if p.edges[0].peer.ID != 0 && p.edges[2].peer.ID != 0 {
			mean += rate
			inner++
		}
	}
	return busiest, mean / float64(inner)
}

// huge asks for the figures of 5000 nodes, which take a minute.
var huge = flag.Bool("huge", false, "measure bytes of 5000 nodes, not of 127")

func TestBytes(t *testing.T) {
	if racing {
		t.Skip("large fleets take minutes under the race detector")
	}
	large := 127
	if *huge {
		large = 5000
	}
	for _, w := range []struct {
		traffic
		most float64
	}{
		{traffic{"idle", 0, nil}, 2 << 10},
		{traffic{"100 gauges that change", 100, shares}, 20 << 10},
		{traffic{"100 counters that change", 100, nil}, 20 << 10},
	} {
		small, smallMean := perSecond(t, 15, w.traffic)
		big, bigMean := perSecond(t, large, w.traffic)
		t.Logf("%s, bytes/s of the busiest node: %.0f at N = 15, %.0f at N = %d (%+.1f %%); mean of nodes "+
			"with three edges: %.0f, %.0f (%+.1f %%)",
			w.name, small, big, large, 100*(big/small-1), smallMean, bigMean, 100*(bigMean/smallMean-1))
		if max(small, big) > w.most {
			t.Errorf("%s: %.0f bytes/s, more than %.0f", w.name, max(small, big), w.most)
		}
		if ratio := big / small; ratio > 1.05 || ratio < .95 && w.terms != nil {
			t.Errorf("%s: %.3f times the bytes at N = %d", w.name, ratio, large)
		}
	}
}
