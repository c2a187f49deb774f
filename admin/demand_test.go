package admin

import (
	"context"
	"encoding/json"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/carried"
	"github.com/quotient-go/quotient/internal/inside"
)

func TestReportsAreFreshOrNot(t *testing.T) {
	const second, never = time.Second, time.Duration(math.MaxInt64)
	for _, c := range []struct {
		keys, totals time.Duration
		seconds      float64
		missing      bool
		fresh        bool
	}{
		{0, 0, 0, false, true},
		{second, 2 * second, 2, false, true},
		{2*second + 1, second, 2.000000001, false, false},
		{second, 2*second + 1, 2.000000001, false, false},
		{never, second, 0, true, false},
		{second, never, 0, true, false},
	} {
		s := quotient.Stats{Fleet: quotient.FleetStats{Age: c.totals}}
		moreOf(&s).Demand = inside.Demand{Age: c.keys, MaxAge: 2 * second}
		l := newLimiterState(s)
		if d := l.Demand; d.AgeSeconds != c.seconds || d.Missing != c.missing || d.Fresh != c.fresh ||
			l.Fleet.Missing != (c.totals == never) {
			t.Errorf("%+v: got %+v, %+v", c, d, l.Fleet)
		}
	}
}

// TestKeysThatBorrowKeepToTheDocument: of a limiter that borrows, all answers are as the document says,
// before and after the reports end.
func TestKeysThatBorrowKeepToTheDocument(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, quotient.Replicas(4), quotient.Demand(10, time.Second))
		h := quiet(t, l)
		src := &carried.Source{Replicas: 4, Every: 100 * time.Millisecond, Others: [6]int64{3, 750}}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- l.Follow(ctx, src) }()
		for range 300 {
			for l.Allow("k") {
			}
			time.Sleep(10 * time.Millisecond)
		}
		look := func() (s State, keys Keys) {
			for path, v := range map[string]any{"/state": &s, "/keys": &keys} {
				rec := get(path).send(t, h)
				must(t, json.Unmarshal(rec.Body.Bytes(), v))
			}
			return s, keys
		}
		s, keys := look()
		api := s.Limiters["api"]
		if d := api.Demand; d == nil || d.Lent != 1 || !d.Fresh || d.ReceivedBytes != 3*d.SentBytes ||
			keys.Keys[0].Part < 0.9 {
			t.Errorf("it borrows: %+v, %+v", d, keys)
		}
		if f := api.Fleet; f == nil || f.Replicas != 4 || f.Admitted < 750+200 {
			t.Errorf("the fleet: %+v", f)
		}
		src.Silence()
		time.Sleep(3 * time.Second)
		if s, keys = look(); s.Limiters["api"].Demand.Fresh || !s.Limiters["api"].Fleet.Missing ||
			keys.Keys[0].Part != 0 {
			t.Errorf("without news: %+v, %+v", s.Limiters["api"].Demand, keys)
		}
		cancel()
		<-ended
		if s, _ = look(); s.Limiters["api"].Demand != nil || s.Limiters["api"].Fleet != nil {
			t.Errorf("nothing is carried, and the state has %+v", s.Limiters["api"])
		}
	})
}
