package redis

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// Failure mode 20: the store's clock alone decides. A processor sends the same whatever its clock shows, but
// for the store's own time. A store 200 s ahead or behind of the processors, or processors that are so of
// each other, change nothing.
func TestClockOfAClient(t *testing.T) {
	for _, skew := range []time.Duration{-200 * time.Second, 0, 200 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			mini := miniredis.NewMiniRedis()
			defer mini.Close()
			client := pipeClient(t, mini)
			hook := &sent{}
			client.AddHook(hook)
			c, err := (&Source{Client: client, Fleet: "f", ID: "a"}).complete()
			must(t, err)
			a, b := c.store("a"), c.store("b")
			start := time.Now()
			for i := range 20 {
				mini.SetTime(time.Now().Add(skew))
				for rank, st := range []*store{a, b} {
					got, err := st.sync(t.Context(), 2, "")
					must(t, err)
					if i > 0 && got != (answer{true, true, 2, 2, rank}) {
						t.Errorf("skew %v, sync %d: got %+v", skew, i, got)
					}
				}
				time.Sleep(time.Second)
			}
			if len(hook.args) != 2*20+2 {
				t.Errorf("%d syncs were seen, want two of each second and one more of each processor",
					len(hook.args))
			}
			for i, got := range hook.args {
				if want := hook.args[i/2%2*2]; i < 4 && got != want || i >= 4 && got != hook.args[i%2*2] {
					t.Errorf("sync %d sent %s, an earlier one %s", i, got, want)
				}
			}
			for i, got := range hook.times {
				want := start.Add(skew + time.Duration(max(0, i-2)/2)*time.Second).UnixMilli()
				if i < 4 && i%2 == 0 { // neither has an answer of the store yet
					want = 0
				}
				if got != want {
					t.Errorf("sync %d was sent at %d by the store's clock, want %d", i, got, want)
				}
			}
		})
	}
}

// When the store's clock jumps, the dead count for ten minutes longer at most, and the living are never too
// few.
func TestClockOfTheStore(t *testing.T) {
	for _, row := range []struct {
		jump      time.Duration
		forgotten bool // the processor, with all others
		longer    time.Duration
	}{
		{0, false, modelExpiry},
		{-5 * time.Minute, false, 5*time.Minute + modelExpiry},
		{-longestExpiry - modelExpiry, true, 0},
		{-365 * 24 * time.Hour, true, 0},
		// for which it takes the jump for a time without it
		{30 * time.Second, true, 2*time.Second + modelExpiry - 1},
		{time.Hour, true, 0},
		{365 * 24 * time.Hour, true, 0},
	} {
		mini := miniredis.NewMiniRedis()
		defer mini.Close()
		s, err := (&Source{Client: pipeClient(t, mini), Fleet: "f", ID: "a"}).complete()
		must(t, err)
		a, dies := s.store("a"), s.store("b")
		now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		mini.SetTime(now)
		m := newMember(s.Expiry, s.Weight)
		for range 3 {
			_, err := dies.sync(t.Context(), 2, "")
			must(t, err)
			got, err := a.sync(t.Context(), m.report, "")
			must(t, err)
			m.learn(got, now)
		}
		for after := 2 * time.Second; after < longestExpiry+time.Minute; after += 2 * time.Second {
			mini.SetTime(now.Add(row.jump + after))
			got, err := a.sync(t.Context(), m.report, "")
			must(t, err)
			if after == 2*time.Second && got.known == row.forgotten {
				t.Errorf("jump %v: got %+v", row.jump, got)
			}
			p, _ := m.learn(got, now.Add(after))
			if want := after <= row.longer; (got.living == 2) != want {
				t.Fatalf("jump %v: after %v %d live", row.jump, after, got.living)
			}
			if after < modelExpiry && p.Replicas != 2 {
				t.Errorf("jump %v: after %v %d count", row.jump, after, p.Replicas)
			}
			if after > row.longer+2*modelExpiry && p.Replicas != 1 {
				t.Fatalf("jump %v: after %v %d count still", row.jump, after, p.Replicas)
			}
		}
	}
}
