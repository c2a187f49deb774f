package heap

import (
	"testing"
	"time"
)

// racing is whether the race detector runs, under which large fleets take minutes.
var racing bool

// hop is the time that one edge takes at most.
const hop = 205 * time.Millisecond

func TestPropagation(t *testing.T) {
	for _, c := range []struct{ nodes, diameter int }{
		{3, 2}, {10, 5}, {20, 7}, {50, 10}, {100, 12}, {1000, 18}, {5000, 23},
	} {
		if (racing || testing.Short()) && c.nodes > 100 {
			continue
		}
		if got := Diameter(c.nodes); got != c.diameter {
			t.Errorf("Diameter(%d) = %d, want %d", c.nodes, got, c.diameter)
		}
		f := newFleet(t, 1, Options{})
		ps := f.many(c.nodes)
		whole := f.until(time.Minute, allOf(f, ps, func(p *peer) bool {
			_, age := p.Sum(f.clock(p), "k")
			return age != Never
		}))
		f.run(time.Second)
		worst := time.Duration(0)
		for _, at := range []int{len(ps) - 1, 0, len(ps) / 2} {
			value := int64(f.now)
			ps[at].Say("k", Terms{value})
			want := int64(0)
			for _, p := range ps {
				if en := p.table[name{gauge, "k"}]; en != nil {
					want += en.own[0]
				}
			}
			took := f.until(time.Minute, allOf(f, ps, func(p *peer) bool {
				sum, _ := p.Sum(f.clock(p), "k")
				return sum[0] == want
			}))
			worst = max(worst, took)
		}
		bound := time.Duration(1.1 * float64(c.diameter) * float64(hop))
		t.Logf("N = %4d: diameter %2d, all complete after %v, a change reaches all after %v, bound %v",
			c.nodes, c.diameter, whole, worst, bound)
		if worst > bound {
			t.Errorf("N = %d: a change took %v, more than %v", c.nodes, worst, bound)
		}
	}
}

// allOf reports whether something holds for all nodes. It asks the nodes in turn, and begins with the last
// that said no.
func allOf(f *fleet, ps []*peer, holds func(*peer) bool) func() bool {
	at := 0
	return func() bool {
		for range ps {
			if !holds(ps[at]) {
				return false
			}
			at = (at + 1) % len(ps)
		}
		return true
	}
}
