package sim

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestPropertyStickTableCountsAsHAProxyDoes compares it with a count over the whole history, refusals too.
func TestPropertyStickTableCountsAsHAProxyDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 60).Draw(t, "limit")
		u := NewUpstream(StickTable, NoFields, float64(limit), 0)
		longest := rapid.Int64Range(1, 5*int64(time.Second)/int64(limit)).Draw(t, "longest")
		now := time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "start"))
		periods := [][]time.Duration{{}, {}} // the requests of each; the last one begins at began
		began := now
		for range rapid.IntRange(1, 200).Draw(t, "requests") {
			for now >= began+time.Second {
				periods, began = append(periods, nil), began+time.Second
				if now >= began+time.Second {
					periods, began = append(periods, nil), now
				}
			}
			last := len(periods) - 1
			periods[last] = append(periods[last], now)
			weight := 1 - (now - began).Seconds()
			rate := float64(len(periods[last-1]))*weight + float64(len(periods[last]))
			even := rate-float64(limit+1) < 1e-6 && float64(limit+1)-rate < 1e-6
			if got := u.Admit(now); got != (rate < float64(limit+1)) && !even {
				t.Fatalf("at %v admitted %v at a rate of %v, limit %d", now, got, rate, limit)
			}
			now += time.Duration(rapid.Int64Range(0, longest).Draw(t, "gap"))
		}
	})
}

// TestStickTablePunishesAFlood: what is refused counts. A client that goes on at the limit or beyond gets
// nothing more after the first second, and one that is just slow enough gets all that it asks for.
func TestStickTablePunishesAFlood(t *testing.T) {
	for _, row := range []struct {
		sent, least, most int // in ten seconds
	}{{900, 900, 900}, {990, 990, 990}, {1000, 100, 100}, {1100, 100, 100}, {2000, 100, 100}} {
		u := NewUpstream(StickTable, NoFields, 100, 0)
		admitted := 0
		for i := range row.sent {
			if u.Admit(time.Duration(i) * 10 * time.Second / time.Duration(row.sent)) {
				admitted++
			}
		}
		if admitted < row.least || admitted > row.most {
			t.Errorf("%d of %d admitted", admitted, row.sent)
		}
	}
}
