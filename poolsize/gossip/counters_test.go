package gossip

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quotient-go/quotient"
)

// fleet starts n replicas, which all know each other when it returns.
func fleet(t testing.TB, n int) (all []*replica) {
	t.Helper()
	for i := range n {
		var join []string
		if i > 0 {
			join = []string{all[0].address()}
		}
		all = append(all, start(t, config(fmt.Sprintf("r%02d", i), join...)))
	}
	for i, w := range all {
		w.Wants(n, i+1)
	}
	return all
}

// totals waits until all count n.
func totals(all []*replica, key string, n int64) {
	for _, r := range all {
		r.totals(key, n)
	}
}

// All know what any replica adds, also what it has added before it began, and after it has gone.
func TestCounters(t *testing.T) {
	t.Parallel()
	early := source(t, config("early"))
	if !early.Counters().Add("k", 1000) {
		t.Error("nothing was added before Watch")
	}
	if sum, age := early.Counters().Sum("k"); sum != 1000 || age != math.MaxInt64 {
		t.Errorf("before Watch the sum is %d, %v old", sum, age)
	}
	all := fleet(t, 4)
	for i, w := range all {
		w.Counters().Add("k", int64(i+1))
	}
	totals(all, "k", 10)
	early.c.Join = []string{all[0].address()}
	e := watchOf(t, early)
	totals(append(all, e), "k", 1010)
	e.Leave()
	all[1].Leave()
	all[0].Counters().Add("k", 1)
	totals([]*replica{all[0], all[2], all[3]}, "k", 1011)
	all[2].Counters().Add("another", 1)
	totals(all[3:], "another", 1)
	if keys := all[3].Counters().Keys(); !slices.Equal(keys, []string{"another", "k"}) {
		t.Errorf("the counters are %q", keys)
	}
	long := strings.Repeat("k", 256)
	if all[0].Counters().Add("k", 0) || all[0].Counters().Add("k", -1) || all[0].Counters().Add(long, 1) {
		t.Error("what is out of range was added")
	}
	if _, age := all[0].Counters().Sum(long); age != never {
		t.Errorf("the sum of a key that is too long is %v old", age)
	}
}

// A limiter's report is summed for the limiters of its name, for as long as it reports.
func TestCarry(t *testing.T) {
	t.Parallel()
	all := fleet(t, 3)
	type heard struct {
		sum quotient.Terms
		age time.Duration
	}
	var stops []func()
	sums := make([]chan heard, len(all))
	for i, w := range all {
		sums[i] = make(chan heard, 1)
		carry := func(name string, own quotient.Terms) {
			stop, err := w.Carry(name, func(s quotient.Sums) {
				s.Say("k", own)
				for key := range s.Keys() {
					sum, age := s.Sum(key)
					select {
					case <-sums[i]:
					default:
					}
					sums[i] <- heard{sum, age}
				}
			})
			must(t, err)
			stops = append(stops, stop)
		}
		carry("limiter", quotient.Terms{1, int64(i)})
		if _, err := w.Carry("limiter", nil); err == nil {
			t.Error("a name that is in use was accepted")
		}
	}
	wants := func(i int, want quotient.Terms) {
		t.Helper()
		all[i].Until(fmt.Sprint(want), func() bool {
			h := <-sums[i]
			return h.sum == want && h.age < math.MaxInt64
		})
	}
	for i := range all {
		wants(i, quotient.Terms{3, 3})
	}
	stops[2]()
	wants(0, quotient.Terms{2, 1})
	stops[0]()
	stops[0]()
	wants(1, quotient.Terms{1, 1})
	stop, err := all[0].Carry("another", func(s quotient.Sums) {
		for key := range s.Keys() {
			t.Errorf("another limiter's key %q", key)
		}
	})
	must(t, err)
	wants(1, quotient.Terms{1, 1})
	stop()
}
