package quotient

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"
)

// Turns, calls, changes and looks at once, for the race detector and for deadlocks. At the end the counts
// must add up.
func TestTurnsAgainstEverything(t *testing.T) {
	h := &hub{turns: time.Millisecond, said: []map[string]Terms{{}, {}}}
	limit := Limit{InFlight: 20, Rates: []Rate{{Events: 1e6, Per: time.Second, Burst: 100}}}
	var ls []*Limiter
	for range 2 {
		l := mustNew(t, limit, MaxKeys(6), Replicas(2), Demand(4, 50*time.Millisecond))
		l.beginExchange()
		ls = append(ls, l)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	var all sync.WaitGroup
	each := func(f func(l *Limiter, i int)) {
		for _, l := range ls {
			all.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					f(l, i)
				}
			})
		}
	}
	for j, l := range ls {
		all.Go(func() {
			for ctx.Err() == nil {
				l.turn(&hubEnd{hub: h, replica: j})
			}
		})
	}
	each(func(l *Limiter, i int) {
		if p, d := l.TryAcquire(key(i%9), Weight(1+i%3)); d.OK {
			p.Release()
		}
	})
	each(func(l *Limiter, i int) {
		if p, err := l.Acquire(ctx, key(i%3)); err == nil {
			p.Release()
		}
	})
	each(func(l *Limiter, i int) {
		switch i % 8 {
		case 0:
			must(t, l.SetLimit(Limit{InFlight: 10 + i%20, Rates: limit.Rates}))
		case 1:
			must(t, l.SetPool(Pool{Replicas: 2 + i%3}, 0))
		case 2:
			l.Reset(key(i % 9))
		case 3:
			_ = l.Override(key(i%2), &Limit{InFlight: 5})
		case 4:
			_ = l.Override(key((i+1)%2), nil)
		default:
			l.Stats()
			l.Explain(key(i % 9))
		}
		time.Sleep(50 * time.Microsecond)
	})
	all.Wait()
	for i, l := range ls {
		l.endExchange()
		if s := l.Stats(); s.InFlight != 0 || s.Waiting != 0 || s.Demand.Keys != 0 {
			t.Error(fmt.Sprint("limiter ", i), s.InFlight, s.Waiting, s.Demand)
		}
	}
}
