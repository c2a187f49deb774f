package quotient

import (
	"context"
	"iter"
	"maps"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// hub is what several replicas in one process say to each other. Sums are as of now, and their age is a turn.
type hub struct {
	mu    sync.Mutex
	turns time.Duration
	said  []map[string]Terms // by replica
	cut   bool               // nothing is carried any more
}

// cutOff ends all news.
func (h *hub) cutOff() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cut = true
}

// hubEnd is the Carrier of one replica.
type hubEnd struct {
	*hub
	replica int
	turn    func(Sums)
}

func (e *hubEnd) Watch(ctx context.Context, report func(Pool, error)) error {
	tick := time.NewTicker(e.turns)
	defer tick.Stop()
	for {
		report(Pool{Replicas: len(e.said)}, nil)
		if e.turn != nil {
			e.turn(e)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

func (e *hubEnd) Carry(_ string, turn func(Sums)) (func(), error) {
	e.turn = turn
	return func() {}, nil
}

func (e *hubEnd) Say(key string, own Terms) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.said[e.replica][key] = own
	if own == (Terms{}) {
		delete(e.said[e.replica], key)
	}
}

func (e *hubEnd) Keys() iter.Seq[string] {
	e.mu.Lock()
	defer e.mu.Unlock()
	keys := map[string]Terms{}
	for _, m := range e.said {
		maps.Copy(keys, m)
	}
	return maps.Keys(keys)
}

func (e *hubEnd) Sum(key string) (sum Terms, age time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, m := range e.said {
		for i, n := range m[key] {
			sum[i] += n
		}
	}
	if e.cut {
		return sum, math.MaxInt64
	}
	return sum, e.turns
}

func (e *hubEnd) Bytes() (sent, received uint64) { return 1, 2 }

// pooled runs limiters that share a pool and say to each other what they want, within a synctest bubble.
func pooled(t *testing.T, n int, limit Limit, opts ...Option) (*hub, []*Limiter) {
	h := &hub{turns: 200 * time.Millisecond, said: make([]map[string]Terms, n)}
	var ls []*Limiter
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() { cancel(); synctest.Wait() })
	for i := range n {
		h.said[i] = map[string]Terms{}
	}
	for i := range n {
		l := Must(New(limit, append(opts, Replicas(n), Demand(10, 2*time.Second))...))
		ls = append(ls, l)
		go func() { _ = l.Follow(ctx, &hubEnd{hub: h, replica: i}) }()
	}
	return h, ls
}

// hammer has each limiter take whatever it gets, each millisecond, and returns how much each got.
func hammer(d time.Duration, ls ...*Limiter) []int {
	got := make([]int, len(ls))
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Millisecond) {
		for i, l := range ls {
			for l.Allow("k") {
				got[i]++
			}
		}
	}
	return got
}

// within fails unless all values lie between two bounds.
func within(t *testing.T, what string, low, high int, got ...int) {
	t.Helper()
	for _, n := range got {
		if n < low || n > high {
			t.Errorf("%s: %v are not between %d and %d", what, got, low, high)
			return
		}
	}
}

func TestBusyReplicas(t *testing.T) {
	row(t, "a busy replica borrows", func(t *testing.T) {
		h, ls := pooled(t, 4, Rates(Rate{Events: 1000, Per: time.Second, Burst: 40}))
		hammer(2*time.Second, ls[0])
		within(t, "one of four", 970, 1000, hammer(time.Second, ls[0])...)
		within(t, "a second one begins", 250, 1000, hammer(time.Second, ls[:2]...)...)
		within(t, "two of four", 480, 500, hammer(time.Second, ls[:2]...)...)
		h.cutOff()
		hammer(2500*time.Millisecond, ls[:2]...)
		within(t, "no news", 248, 251, hammer(time.Second, ls[:2]...)...)
	})
	// A key that has not been wanted for a while is reported no longer.
	row(t, "a key that is idle is not reported", func(t *testing.T) {
		h, ls := pooled(t, 2, Rates(PerSecond(10)))
		hammer(2*time.Second, ls...)
		time.Sleep(2 * askedFor)
		h.mu.Lock()
		_, said := h.said[0][textKey+"k"]
		h.mu.Unlock()
		if n := ls[0].Stats().Demand.Named; said || n > 0 {
			t.Errorf("said %v, %d are named", said, n)
		}
	})
	row(t, "a busy replica borrows slots", func(t *testing.T) {
		_, ls := pooled(t, 4, Limit{InFlight: 42})
		var held []Permit
		take := func(l *Limiter) (n int) {
			for p, d := l.TryAcquire("k"); d.OK; p, d = l.TryAcquire("k") {
				held = append(held, p)
				n++
			}
			return n
		}
		within(t, "at first", 10, 10, take(ls[0]))
		for range 10 {
			time.Sleep(200 * time.Millisecond)
			take(ls[0])
		}
		within(t, "then", 42, 42, len(held))
		within(t, "another one", 10, 10, take(ls[1]))
	})
}

// wordy is a controller that says something, and keeps the reports that it gets.
type wordy struct {
	of   *wordyControllers
	word policy.Report
	news policy.Fleet
}

// wordyControllers makes them. Those that have seen an answer are kept: every second one is wanting.
type wordyControllers struct{ kept []*wordy }

func (p *wordyControllers) New(uint64) policy.Controller { return &wordy{of: p} }

func (w *wordy) Next(s policy.Sample, b policy.Bounds) policy.Pace {
	if s.Outcome == policy.Success && w.word.Rate == 0 {
		w.word = policy.Report{Wanting: len(w.of.kept)%2 == 0, Rate: 7, Refused: 1.5}
		w.of.kept = append(w.of.kept, w)
	}
	if w.news = (policy.Fleet{}); b.Fleet != nil {
		w.news = *b.Fleet
	}
	return policy.Pace{Rate: 10}
}

func (w *wordy) Report(time.Duration) policy.Report { return w.word }

func TestControllersGetReportsOfTheFleet(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		p := &wordyControllers{}
		h, ls := pooled(t, 2, Rates(PerSecond(1000)), BeyondShare(), Policy(p))
		for _, l := range ls {
			for range 20 {
				if permit, d := l.TryAcquire("k"); d.OK {
					permit.Done(policy.Feedback{Outcome: policy.Success})
				}
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		want := policy.Fleet{Weight: 2, Limit: 1000, Wanting: 1, Rate: 7, Used: 7, Refused: 3}
		for i, ctrl := range p.kept {
			is(t, []any{"controller", i}, ctrl.news, want)
		}
		time.Sleep(h.turns / 4) // the reports of the latest turn have aged by that
		s, age := ls[0].Stats(), h.turns+h.turns/4
		demand := DemandStats{Keys: 1, Named: 1, Age: age, MaxAge: 2 * time.Second, Sent: 1, Received: 2}
		is(t, "stats", s.Demand, demand)
		if got := s.Fleet; got.Admitted < 2 || got.Replicas != 2 || got.Age != age {
			t.Errorf("fleet: %+v", got)
		}
		h.cutOff()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		for i, ctrl := range p.kept {
			is(t, []any{"without news, controller", i}, ctrl.news, policy.Fleet{})
		}
		if s := ls[0].Stats(); s.Demand.Age != math.MaxInt64 || s.Fleet.Age != math.MaxInt64 {
			t.Errorf("news that is missing: %+v, %+v", s.Demand, s.Fleet)
		}
	})
}
