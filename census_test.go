package quotient

import (
	"slices"
	"testing"
	"time"
)

// atWindow sleeps until a window opens.
func atWindow(per time.Duration) {
	time.Sleep(time.Duration((time.Now().UnixNano()/int64(per)+1)*int64(per) - time.Now().UnixNano()))
}

// counted400 is a rate that the whole fleet counts.
var counted400 = Rate{Name: "w", Events: 400, Per: time.Minute, Aligned: true, Counted: true}

// counting is a fleet as a window of a minute opens.
func counting(t *testing.T, n int, limit Limit, opts ...Option) (*hub, []*Limiter) {
	h, ls := pooled(t, n, limit, opts...)
	atWindow(time.Minute)
	return h, ls
}

func TestACountThatIsCutOff(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		h, ls := counting(t, 4, Rates(counted400))
		within(t, "the share", 100, 100, hammer(10*time.Millisecond, ls[0])...)
		within(t, "what the others leave", 300, 300, hammer(2*time.Second, ls[0])...)
		within(t, "nothing is left", 0, 0, hammer(time.Second, ls...)...)
		h.cutOff()
		within(t, "nor without news", 0, 0, hammer(5*time.Second, ls...)...)
		atWindow(time.Minute)
		within(t, "the next window is divided", 100, 100, hammer(5*time.Second, ls...)...)
		atWindow(time.Minute)
		within(t, "and owes nothing", 100, 100, hammer(5*time.Second, ls...)...)
	})
}

func TestCountText(t *testing.T) {
	for _, window := range []int64{0, 1, -1, 1 << 40, -1 << 62} {
		for _, key := range []string{"", "k", "c", string(make([]byte, 300))} {
			want := countKey{countedID(id{name: "minute", per: 60}), key}
			text := countText(want, window)
			if k, w, ok := readCount(text); !ok || k != want || w != window {
				t.Errorf("%q of window %d reads as %v of %d, %v", key, window, k, w, ok)
			}
			for n := range min(len(text), 9) {
				if _, _, ok := readCount(text[:n]); ok {
					t.Errorf("%q reads as a count", text[:n])
				}
			}
		}
	}
	ids := []uint64{
		countedID(id{name: "a", unit: "b"}), countedID(id{name: "ab"}), countedID(id{unit: "ab"}),
		countedID(id{name: "a", unit: "b", per: 1}),
	}
	slices.Sort(ids)
	is(t, "ids of four rules", len(slices.Compact(ids)), 4)
}

// hammerUpTo has a limiter take up to n, and returns how much it got.
func hammerUpTo(d time.Duration, n int, l *Limiter) (got int) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Millisecond) {
		for got < n && l.Allow("k") {
			got++
		}
	}
	return got
}

// A replica that does not know of the key might take its share of it.
func TestACountTakesAllReplicas(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		_, ls := counting(t, 4, Rates(counted400))
		ls[3].endExchange()
		within(t, "three of four", 100, 100, hammer(10*time.Second, ls[0])...)
	})
}

func TestCounts(t *testing.T) {
	// A call above what is left waits for the next window, and owes nothing there.
	row(t, "a large call is counted", func(t *testing.T) {
		_, ls := counting(t, 4, Rates(counted400))
		within(t, "most of it", 390, 390, hammerUpTo(3*time.Second, 390, ls[0]))
		time.Sleep(time.Second)
		if r := ls[1].Explain("k").Rules[0]; r.Share != 10 || r.Left != 10 || r.Limit != 400 {
			t.Errorf("another one stands at %+v", r)
		}
		if r := ls[0].Explain("k").Rules[0]; r.Share != 400 || r.Left != 10 {
			t.Errorf("the busy one stands at %+v", r)
		}
		_, d := ls[1].TryAcquire("k", Weight(11))
		_, last := ls[1].TryAcquire("k", Weight(10))
		if d.OK || d.Share != 10 || !last.OK {
			t.Errorf("eleven of ten: %v; ten: %v", d, last)
		}
		begun := time.Now()
		if _, err := ls[1].Acquire(t.Context(), "k", Weight(300)); err != nil ||
			time.Since(begun) < 50*time.Second {
			t.Errorf("300 of the next window came after %v, %v", time.Since(begun), err)
		}
		time.Sleep(2 * time.Second)
		within(t, "and the others", 100, 100, hammer(10*time.Second, ls[2])...)
		atWindow(time.Minute)
		within(t, "nothing is owed", 400, 400, hammer(10*time.Second, ls[1])...)
	})
	// A key has one count in all plans.
	row(t, "a count in two plans", func(t *testing.T) {
		limit := Rates(counted400)
		_, ls := counting(t, 2, limit, Plans(map[string]Limit{"p": limit}))
		within(t, "most of it", 390, 390, hammerUpTo(3*time.Second, 390, ls[0]))
		got := 0
		for range 3000 {
			if _, d := ls[0].TryAcquire("k", Plan("p")); d.OK {
				got++
			}
			time.Sleep(time.Millisecond)
		}
		within(t, "in another plan", 10, 10, got)
		within(t, "and back", 0, 0, hammer(time.Second, ls...)...)
	})
	// While a key is in a plan without the rule the fleet counts on, and what it takes later is reported.
	row(t, "a count goes on in a plan without it", func(t *testing.T) {
		fast := map[string]Limit{"fast": Rates(Rate{Name: "fast", Events: 1000, Per: time.Second})}
		_, ls := counting(t, 2, Rates(counted400), Plans(fast))
		within(t, "at first", 300, 300, hammerUpTo(time.Second, 300, ls[0]))
		time.Sleep(time.Second)
		ls[0].TryAcquire("k", Plan("fast"))
		time.Sleep(500 * time.Millisecond)
		within(t, "later", 99, 99, hammerUpTo(time.Millisecond, 99, ls[0]))
		time.Sleep(time.Second)
		within(t, "what is left", 0, 1, hammer(time.Second, ls[1])...)
	})
	// Events that come back may be taken again, by any replica.
	row(t, "a count takes back", func(t *testing.T) {
		rate := counted400
		rate.Unit = "tokens"
		_, ls := counting(t, 4, Rates(rate))
		var last Permit
		for range 300 {
			if p, d := ls[0].TryAcquire("k", Cost("tokens", 10)); d.OK {
				last = p
			}
			time.Sleep(10 * time.Millisecond)
		}
		must(t, last.Correct("tokens", 3))
		time.Sleep(time.Second)
		_, d := ls[2].TryAcquire("k", Cost("tokens", 8))
		_, seven := ls[2].TryAcquire("k", Cost("tokens", 7))
		if d.OK || !seven.OK {
			t.Errorf("eight of seven: %v; seven: %v", d, seven)
		}
	})
	// A key that is named no more is divided, and takes no place.
	row(t, "a count ends", func(t *testing.T) {
		h, ls := pooled(t, 4, Rates(counted400))
		hammer(2*time.Second, ls[0])
		for range 3 {
			atWindow(time.Minute)
			time.Sleep(20 * time.Second)
		}
		for i, l := range ls {
			l.exchange.mu.Lock()
			if n, m := len(l.exchange.counts), l.exchange.counting; n != 0 || m != 0 {
				t.Errorf("replica %d counts %d keys, and names %d", i, n, m)
			}
			l.exchange.mu.Unlock()
			h.mu.Lock()
			for text := range h.said[i] {
				if text[:1] == textCount {
					t.Errorf("replica %d still says %q", i, text)
				}
			}
			h.mu.Unlock()
		}
	})
	// Events taken at the end of a window are reported after it: at others that window may still go on.
	row(t, "the last of a window is counted", func(t *testing.T) {
		h, ls := counting(t, 2, Rates(counted400))
		within(t, "at first", 290, 290, hammerUpTo(time.Second, 290, ls[0]))
		time.Sleep(59*time.Second - time.Millisecond)
		within(t, "at last", 10, 10, hammerUpTo(time.Millisecond, 10, ls[0]))
		time.Sleep(300 * time.Millisecond)
		x := &ls[0].exchange
		x.mu.Lock()
		before := x.counts[countKey{countedID(id{name: "w", per: int64(time.Minute)}), "k"}].before
		x.mu.Unlock()
		h.mu.Lock()
		defer h.mu.Unlock()
		is(t, "said of the window before", h.said[0][before][countEvents], 300)
	})
}

// One replica takes all ten of a window. Another one knows that, and whatever its key comes under then admits
// nothing more.
func TestWhatIsKnownOfAWindowStays(t *testing.T) {
	ten := Rate{Name: "w", Events: 10, Per: time.Minute, Aligned: true, Counted: true}
	renamed, divided := ten, ten
	renamed.Name, divided.Counted = "another", false
	fast := Rates(Rate{Name: "fast", Events: 1000, Per: time.Second})
	ask := func(l *Limiter, plan string) (n int) {
		for range 10 {
			if _, d := l.TryAcquire("k", Plan(plan)); d.OK {
				n++
			}
		}
		return n
	}
	for _, row := range []struct {
		name, plan string
		then       func(*testing.T, *hub, *Limiter)
	}{
		{"another plan", "p", nil},
		{"a plan without the rule", "", func(_ *testing.T, _ *hub, l *Limiter) { ask(l, "fast") }},
		{"two plans with one without between", "p", func(_ *testing.T, _ *hub, l *Limiter) { ask(l, "fast") }},
		{"a denied plan", "p", func(t *testing.T, _ *hub, l *Limiter) { must(t, l.SetLimit(Limit{Deny: true})) }},
		{"another name", "", func(t *testing.T, _ *hub, l *Limiter) { must(t, l.SetLimit(Rates(renamed))) }},
		{"counted no more", "", func(t *testing.T, _ *hub, l *Limiter) { must(t, l.SetLimit(Rates(divided))) }},
		{"a limit of its own", "", func(t *testing.T, _ *hub, l *Limiter) {
			own := Rates(ten)
			must(t, l.Override("k", &own))
		}},
		{"a limit of its own, from a plan without", "", func(t *testing.T, _ *hub, l *Limiter) {
			ask(l, "fast")
			own := Rates(ten)
			must(t, l.Override("k", &own))
		}},
		{"one that it had", "", func(t *testing.T, _ *hub, l *Limiter) {
			ask(l, "p")
			own := Limit{Deny: true}
			must(t, l.Override("k", &own))
			must(t, l.Override("k", nil))
		}},
		{"the other has ended", "", func(_ *testing.T, h *hub, _ *Limiter) {
			h.mu.Lock()
			h.said[0] = map[string]Terms{}
			h.mu.Unlock()
			time.Sleep(2 * askedFor)
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			inFakeTime(t, func(t *testing.T) {
				h, ls := pooled(t, 2, Rates(ten), Plans(map[string]Limit{"p": Rates(ten), "fast": fast}))
				ask(ls[1], "p")
				ask(ls[1], "")
				atWindow(time.Minute) // in which it names the key
				atWindow(time.Minute)
				within(t, "the first", 10, 10, hammer(3*time.Second, ls[0])...)
				time.Sleep(time.Second)
				if ls[0].endExchange(); row.then != nil {
					row.then(t, h, ls[1])
				}
				look := ls[1].Check("k", Plan(row.plan))
				if n := ask(ls[1], row.plan); n > 0 || look.OK {
					t.Errorf("%d more, and a look says %v", n, look)
				}
			})
		})
	}
}

// If there are more keys than may be named, those that have used the least are dropped.
func TestTheLeastCountedGiveWay(t *testing.T) {
	x := &exchange{counts: map[countKey]*census{}}
	for i, name := range []string{"a", "b", "c"} {
		c := x.count(countKey{1, name}, 0)
		c.busy, c.used, c.usedBefore = i == 0, float64(i)/10, float64(i)/20
		x.name(c, 3)
	}
	x.name(x.count(countKey{1, "d"}, 0), 3)
	if x.counting != 3 || !x.giveWay() || x.counts[countKey{1, "b"}].asked || !x.giveWay() || x.giveWay() ||
		x.counting != 1 {
		t.Errorf("%d are named", x.counting)
	}
}

// Events that a replica gave back in its earlier life are not taken off its takes in the next.
func TestWhatIsLostOfACount(t *testing.T) {
	for _, row := range []struct {
		name   string
		sums   [][2]int64 // taken and given back
		joined bool       // at the last
		want   int64
	}{
		{"nothing", [][2]int64{{10, 2}, {12, 3}}, false, 9},
		{"a replica is gone", [][2]int64{{10, 2}, {6, 1}}, false, 8},
		{"and comes back", [][2]int64{{10, 2}, {6, 1}, {10, 2}}, true, 8},
		{"it takes as much as before", [][2]int64{{2, 1}, {2, 0}}, false, 2},
		{"it gives all back", [][2]int64{{10, 9}, {6, 0}}, false, 6},
	} {
		var got int64
		var n taken
		for i, s := range row.sums {
			got = n.see(Terms{countEvents: s[0], countBack: s[1]}, row.joined && i == len(row.sums)-1)
		}
		is(t, row.name, got, row.want)
	}
}
