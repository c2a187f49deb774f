package quotient

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// sum adds up.
func sum(list []int) (n int) {
	for _, v := range list {
		n += v
	}
	return n
}

// atWindow sleeps until a window opens.
func atWindow(per time.Duration) {
	time.Sleep(time.Duration((time.Now().UnixNano()/int64(per)+1)*int64(per) - time.Now().UnixNano()))
}

func TestTheFleetsCountDecides(t *testing.T) {
	for name, busy := range map[string][]int{"one replica": {0}, "two": {1, 2}, "all": {0, 1, 2, 3}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rate := Rate{Events: 1000, Per: 10 * time.Second, Aligned: true, Counted: true}
				_, all := pooled(t, 4, Rates(rate))
				var ls []*Limiter
				for _, i := range busy {
					ls = append(ls, all[i])
				}
				atWindow(rate.Per)
				for range 3 {
					got := 0
					for range 99 {
						for _, l := range ls {
							for n := 0; n < 20 && l.Allow("k"); n++ {
								got++
							}
						}
						time.Sleep(100 * time.Millisecond)
					}
					within(t, "a window", 1000, 1000+100*(len(busy)-1), got)
					atWindow(rate.Per)
				}
			})
		})
	}
}

func TestACountThatIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rate := Rate{Events: 400, Per: time.Minute, Aligned: true, Counted: true}
		h, ls := pooled(t, 4, Rates(rate))
		atWindow(rate.Per)
		within(t, "the share", 100, 100, hammer(10*time.Millisecond, ls[0])...)
		within(t, "what the others leave", 300, 300, hammer(2*time.Second, ls[0])...)
		within(t, "nothing is left", 0, 0, hammer(time.Second, ls...)...)
		h.mu.Lock()
		h.cut = true
		h.mu.Unlock()
		within(t, "nor without news", 0, 0, hammer(5*time.Second, ls...)...)
		atWindow(rate.Per)
		within(t, "the next window is divided", 100, 100, hammer(5*time.Second, ls...)...)
		atWindow(rate.Per)
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
		countedID(id{name: "a", unit: "b"}), countedID(id{name: "ab"}), countedID(id{unit: "ab"}), countedID(id{name: "a", unit: "b", per: 1}),
	}
	slices.Sort(ids)
	if len(slices.Compact(ids)) != 4 {
		t.Error("rules share an id")
	}
}
