package heap

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkNode is what one interval costs a node with three neighbours when 100 gauges and 100 counters
// change on all of them: three packets are read, and three are written.
func BenchmarkNode(b *testing.B) {
	for _, kind := range []string{"idle", "gauges", "counters"} {
		b.Run(kind, func(b *testing.B) {
			var now time.Duration
			ns := make([]*Node, 7)
			byID := map[uint64]*Node{}
			var ms []Member
			for i := range ns {
				ms = append(ms, Member{fmt.Sprint("n", i), uint64(i) + 1})
			}
			for i := range ns {
				n, err := New(ms[i], Options{})
				if err != nil {
					b.Fatal(err)
				}
				n.SetMembers(0, ms)
				ns[i], byID[ms[i].ID] = n, n
			}
			keys := make([]string, 100)
			for i := range keys {
				keys[i] = fmt.Sprintf("tenant/%04d/api", i)
			}
			say := func(n *Node, round int) {
				for i, key := range keys {
					switch kind {
					case "gauges":
						n.Say(key, Terms{1, int64(1e6 + round*i), 0, int64(1e9 + round), 1})
					case "counters":
						n.Add(now, key, int64(i)+1)
					}
				}
			}
			var inbox [][]byte // of n1, which has three neighbours
			turn := func(round int) {
				now += 200 * time.Millisecond
				inbox = inbox[:0]
				for _, n := range []*Node{ns[0], ns[3], ns[4]} {
					say(n, round)
					n.Tick(now, func(to Member, p []byte) {
						if to.ID == 2 {
							inbox = append(inbox, append([]byte(nil), p...))
						} else if err := byID[to.ID].Receive(now, p); err != nil {
							b.Fatal(err)
						}
					})
				}
			}
			n := ns[1]
			step := func(round int) {
				for _, p := range inbox {
					if err := n.Receive(now, p); err != nil {
						b.Fatal(err)
					}
				}
				say(n, round)
				n.Tick(now, func(Member, []byte) {})
			}
			answer := func(to Member, p []byte) {
				if err := byID[to.ID].Receive(now, p); err != nil {
					b.Fatal(err)
				}
			}
			for round := range 100 {
				turn(round)
				step(round)
				n.Tick(now, answer)
			}
			b.ReportAllocs()
			round := 100
			for b.Loop() {
				b.StopTimer()
				turn(round)
				b.StartTimer()
				step(round)
				b.StopTimer()
				n.Tick(now, answer)
				b.StartTimer()
				round++
			}
		})
	}
}
