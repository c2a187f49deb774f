package carried_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/carried"
)

// TestTheRealReplicaBorrows: its limiter is the busy one of four, and has what the others leave.
func TestTheRealReplicaBorrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := quotient.Must(quotient.New(quotient.Rates(quotient.PerSecond(1000)), quotient.Replicas(4),
			quotient.Demand(10, time.Second)))
		src := &carried.Source{Replicas: 4, Every: 100 * time.Millisecond, Others: [6]int64{3, 750}}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- l.Follow(ctx, src) }()
		for range 2000 {
			for l.Allow("k") {
			}
			time.Sleep(time.Millisecond)
		}
		s := l.Stats()
		d := carried.DemandOf(s)
		if d.Lent != 1 || s.Fleet.Replicas != 4 || s.Fleet.Admitted <= 750 || d.Received != 3*d.Sent {
			t.Errorf("stats: %+v, %+v", d, s.Fleet)
		}
		if part := l.Explain("k").Part; part < 0.9 {
			t.Errorf("it borrows up to %v of the limit, want nearly all", part)
		}
		src.Silence()
		time.Sleep(time.Second)
		if d = carried.DemandOf(l.Stats()); d.Lent != 0 || d.Age <= d.MaxAge {
			t.Errorf("without news: %+v", d)
		}
		cancel()
		<-ended
	})
}
