package quotient

import (
	"context"
	"iter"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// farEnd is a replica of two. The report of the other one comes late.
type farEnd struct {
	said  map[string]Terms
	other []map[string]Terms // oldest first
	late  time.Duration
	pause time.Duration // after each sum
}

func (e *farEnd) Bytes() (sent, received uint64) { return 0, 0 }

func (e *farEnd) Say(key string, own Terms) {
	if e.said[key] = own; own == (Terms{}) {
		delete(e.said, key)
	}
}

func (e *farEnd) Keys() iter.Seq[string] {
	all := maps.Clone(e.said)
	maps.Copy(all, e.other[0])
	return maps.Keys(all)
}

func (e *farEnd) Sum(key string) (sum Terms, age time.Duration) {
	sum = e.said[key]
	for i, n := range e.other[0][key] {
		sum[i] += n
	}
	time.Sleep(e.pause)
	return sum, e.late
}

func TestCountedKeysAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const turns, late = 200 * time.Millisecond, 3
		rate := Rate{Events: 400, Per: time.Minute, Aligned: true, Counted: true}
		ends := make([]*farEnd, 2)
		ls := make([]*Limiter, 2)
		for i := range ends {
			ends[i] = &farEnd{said: map[string]Terms{}, other: make([]map[string]Terms, late),
				late: late * turns}
			ls[i] = mustNew(t, Rates(rate), Replicas(2), Demand(10, 2*time.Second))
			ls[i].beginExchange()
		}
		atWindow(rate.Per)
		within(t, "the share", 100, 100, ls[0].admitAll(100))
		for range 4 * time.Minute / turns {
			for i, l := range ls {
				l.turn(ends[i])
				ends[i].other = append(ends[i].other[1:], maps.Clone(ends[1-i].said))
			}
			time.Sleep(turns)
		}
		for i, e := range ends {
			for text := range e.said {
				if strings.HasPrefix(text, textCount) {
					t.Errorf("replica %d still counts %q", i, text)
				}
			}
		}
	})
}

func TestATurnThatIsHeldUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := map[string]Terms{textKey + "k": {1, 1}}
		e := &farEnd{said: map[string]Terms{}, other: []map[string]Terms{said}}
		l := mustNew(t, Limit{InFlight: 4}, Replicas(2), Demand(1, time.Second))
		l.beginExchange()
		for range 3 {
			l.admitAll(4)
			l.turn(e)
			time.Sleep(200 * time.Millisecond)
		}
		if g := gateOf(l, "k"); g.part() != 1 {
			t.Fatal("nothing is lent:", g.part())
		}
		e.pause = 3 * time.Second
		l.turn(e)
		if g := gateOf(l, "k"); g.part() != 0 {
			t.Error("news that was three seconds old when it was used is believed")
		}
	})
}

// oneLock is a Carrier that holds its lock while it reports.
type oneLock struct {
	mu    sync.Mutex
	asked chan struct{} // for the lock
}

func (o *oneLock) Watch(ctx context.Context, _ func(Pool, error)) error { <-ctx.Done(); return nil }

func (o *oneLock) wait() {
	o.asked <- struct{}{}
	o.mu.Lock()
	defer o.mu.Unlock()
}

func (o *oneLock) Carry(string, func(Sums)) (func(), error) { o.wait(); return o.wait, nil }

func TestAFollowerStopsDuringAReport(t *testing.T) {
	l := mustNew(t, Limit{InFlight: 4}, Demand(1, time.Second))
	for _, carried := range []bool{true, false} {
		o := &oneLock{asked: make(chan struct{}, 9)}
		f, _ := l.follower(o)
		during := func() { _ = f.carry(o, "a") }
		if carried {
			during()
			<-o.asked
			during = f.stop
		}
		o.mu.Lock()
		done := make(chan struct{})
		go func() { during(); close(done) }()
		<-o.asked
		f.report(&hint{pool: Pool{Replicas: 2}, at: time.Now()})
		if !carried {
			f.stop() // before Carry returns
		}
		o.mu.Unlock()
		if <-done; l.exchange.keys != nil {
			t.Error("what has ended is still carried")
		}
	}
}
