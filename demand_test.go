package quotient

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-go/quotient/internal/carry"
	"github.com/quotient-go/quotient/internal/fairshare"
	"github.com/quotient-go/quotient/internal/inside"
	"github.com/quotient-go/quotient/policy"
)

// hub is what several replicas in one process say to each other. Sums are as of now, and their age is a turn.
type hub struct {
	mu    sync.Mutex
	turns time.Duration
	said  []map[string]carry.Terms // by replica
	cut   bool                     // nothing is carried any more
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
	turn    func(carry.Sums)
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

func (e *hubEnd) Carry(_ string, turn func(carry.Sums)) (func(), error) {
	e.turn = turn
	return func() {}, nil
}

func (e *hubEnd) Say(key string, own carry.Terms) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.said[e.replica][key] = own
	if own == (carry.Terms{}) {
		delete(e.said[e.replica], key)
	}
}

func (e *hubEnd) Keys() iter.Seq[string] {
	e.mu.Lock()
	defer e.mu.Unlock()
	keys := map[string]carry.Terms{}
	for _, m := range e.said {
		maps.Copy(keys, m)
	}
	return maps.Keys(keys)
}

func (e *hubEnd) Sum(key string) (sum carry.Terms, age time.Duration) {
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
	h := &hub{turns: 200 * time.Millisecond, said: make([]map[string]carry.Terms, n)}
	var ls []*Limiter
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() { cancel(); synctest.Wait() })
	for i := range n {
		h.said[i] = map[string]carry.Terms{}
	}
	for i := range n {
		l := Must(New(limit, append(opts, Replicas(n), Demand(10, 2*time.Second))...))
		ls = append(ls, l)
		go func() { _ = l.Follow(ctx, &hubEnd{hub: h, replica: i}) }()
	}
	synctest.Wait() // or a call may be held back before its limiter notes that
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
		_, said := h.said[0][carry.KeyText("k")]
		h.mu.Unlock()
		if n := ls[0].Stats().more.Demand.Named; said || n > 0 {
			t.Errorf("said %v, %d are named", said, n)
		}
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
		demand := inside.Demand{Keys: 1, Named: 1, Age: age, MaxAge: 2 * time.Second, Sent: 1, Received: 2}
		is(t, "stats", s.more.Demand, demand)
		if got := s.Fleet; got.Admitted < 2 || got.Replicas != 2 || got.Age != age {
			t.Errorf("fleet: %+v", got)
		}
		h.cutOff()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		for i, ctrl := range p.kept {
			is(t, []any{"without news, controller", i}, ctrl.news, policy.Fleet{})
		}
		if s := ls[0].Stats(); s.more.Demand.Age != math.MaxInt64 || s.Fleet.Age != math.MaxInt64 {
			t.Errorf("news that is missing: %+v, %+v", s.more.Demand, s.Fleet)
		}
	})
}

// atWindow sleeps until a window opens.
func atWindow(per time.Duration) {
	time.Sleep(time.Duration((time.Now().UnixNano()/int64(per)+1)*int64(per) - time.Now().UnixNano()))
}

// counted400 is a rate that the whole fleet counts.
var counted400 = Rate{Name: "w", Events: 400, Per: time.Minute, Kind: CountedWindow}

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

func TestCountedRulesHaveIDs(t *testing.T) {
	ids := []uint64{
		countedID(id{name: "a", unit: "b"}), countedID(id{name: "ab"}), countedID(id{unit: "ab"}),
		countedID(id{name: "a", unit: "b", per: 1}), countedID(id{name: "a", unit: "b", per: 1, zone: "UTC"}),
	}
	slices.Sort(ids)
	is(t, "ids of five rules", len(slices.Compact(ids)), 5)
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
		wrong(t, d.OK || d.Share != 10 || !last.OK, "eleven of ten: %v; ten: %v", d, last)
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
		wrong(t, d.OK || !seven.OK, "eight of seven: %v; seven: %v", d, seven)
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
		before := x.counts[carry.Count{Rule: countedID(id{name: "w", per: int64(time.Minute)}), Key: "k"}].before
		x.mu.Unlock()
		h.mu.Lock()
		defer h.mu.Unlock()
		is(t, "said of the window before", h.said[0][before][carry.CountEvents], 300)
	})
}

// One replica takes all ten of a window. Another one knows that, and whatever its key comes under then admits
// nothing more.
func TestWhatIsKnownOfAWindowStays(t *testing.T) {
	ten := Rate{Name: "w", Events: 10, Per: time.Minute, Kind: CountedWindow}
	renamed, divided := ten, ten
	renamed.Name, divided.Kind = "another", Window
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
			must(t, l.Override("k", &own, 0))
		}},
		{"a limit of its own, from a plan without", "", func(t *testing.T, _ *hub, l *Limiter) {
			ask(l, "fast")
			own := Rates(ten)
			must(t, l.Override("k", &own, 0))
		}},
		{"one that it had", "", func(t *testing.T, _ *hub, l *Limiter) {
			ask(l, "p")
			own := Limit{Deny: true}
			must(t, l.Override("k", &own, 0))
			must(t, l.Override("k", nil, 0))
		}},
		{"the other has ended", "", func(_ *testing.T, h *hub, _ *Limiter) {
			h.mu.Lock()
			h.said[0] = map[string]carry.Terms{}
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
	x := &exchange{counts: map[carry.Count]*census{}}
	for i, name := range []string{"a", "b", "c"} {
		c := x.count(carry.Count{Rule: 1, Key: name}, 0)
		c.busy, c.used, c.usedBefore = i == 0, float64(i)/10, float64(i)/20
		x.name(c, 3)
	}
	x.name(x.count(carry.Count{Rule: 1, Key: "d"}, 0), 3)
	if x.counting != 3 || !x.giveWay() || x.counts[carry.Count{Rule: 1, Key: "b"}].asked || !x.giveWay() || x.giveWay() ||
		x.counting != 1 {
		t.Errorf("%d are named", x.counting)
	}
}

// aThousand is a rate of 1,000 a second with a burst.
func aThousand(burst int) Rate { return Rate{Events: 1000, Per: time.Second, Burst: burst} }

// aHundred is a rate of 100 a second with a burst.
func aHundred(burst int) Rate { return Rate{Events: 100, Per: time.Second, Burst: burst} }

// takeFor has a limiter take requests of a cost, each millisecond, and returns how many were admitted.
func takeFor(d time.Duration, l *Limiter, opts ...CallOption) (got int) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Millisecond) {
		for {
			if _, d := l.TryAcquire("k", opts...); !d.OK {
				break
			}
			got++
		}
	}
	return got
}

// waiting has n callers wait for a key, and counts those that were admitted.
func waiting(l *Limiter, n int) (admitted func() int) {
	var count atomic.Int64
	for range n {
		go func() {
			if _, err := l.Acquire(context.Background(), "k"); err == nil {
				count.Add(1)
			}
		}()
	}
	synctest.Wait()
	return func() int { synctest.Wait(); return int(count.Load()) }
}

// admitAll asks up to n times, and returns how many were admitted.
func (l *Limiter) admitAll(n int) (got int) {
	for range n {
		if _, d := l.TryAcquire("k"); d.OK {
			got++
		}
	}
	return got
}

// seenOf is what a turn would see of a key.
func (l *Limiter) seenOf(key string) fairshare.Seen {
	s, hash := l.lock(key)
	defer s.mu.Unlock()
	return s.seen(s.ownGate(hash, key), hash, s.now(), 0)
}

// partIs fails unless a part of a key's limit is lent.
func partIs(t *testing.T, what string, l *Limiter, part float64) {
	t.Helper()
	is(t, what, gateOf(l, "k").part(), part)
}

func TestWaitersGoAtOnceWhereMoreIsLent(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		_, ls := pooled(t, 4, Limit{InFlight: 42})
		admitted := waiting(ls[0], 50)
		is(t, "at first", admitted(), 10)
		time.Sleep(time.Second)
		is(t, "then", admitted(), 42)
		must(t, ls[0].SetLimit(Limit{}))
	})
}

// Nothing runs at the end of a loan, and slots alone read no clock: a call sees the end all the same.
func TestALoanEndsByItself(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := mustNew(t, Limit{InFlight: 4}, Replicas(4))
		p := took(t, l, "k")
		l.lendKey("k", 1, time.Second)
		time.Sleep(999 * time.Millisecond)
		is(t, "all but one slot", l.admitAll(2), 2)
		time.Sleep(time.Millisecond)
		p.Release()
		is(t, "the loan has ended", l.admitAll(2), 0)

		r := mustNew(t, Rates(aHundred(400)), Replicas(4))
		is(t, "its part of the burst", r.admitAll(500), 100)
		r.lendKey("k", 1, time.Second)
		time.Sleep(3 * time.Second)
		is(t, "a second of all, and two of the share", r.admitAll(500), 100)
		r.lendKey("k", .5, 200*time.Millisecond)
		time.Sleep(time.Second)
		is(t, "a fifth of a second of half", r.admitAll(500), 30)
	})
}

func TestRefundsUnderAPart(t *testing.T) {
	tok := Rate{Events: 100, Per: time.Second, Burst: 400, Unit: "tok"}
	row(t, "what was charged too much comes back under another part", func(t *testing.T) {
		l := mustNew(t, Rates(tok), Replicas(4))
		took(t, l, "k")
		l.lendKey("k", .5, time.Minute)
		p := took(t, l, "k", Cost("tok", 100))
		l.lendKey("k", .25, time.Minute)
		must(t, p.Correct("tok", 40))
		refuses(t, l, "k", Cost("tok", 61))
		took(t, l, "k", Cost("tok", 60))
		time.Sleep(time.Second)
		is(t, "100 of 100 a second", l.seenOf("k").Used, 1)
		must(t, p.Correct("tok", 50))
		time.Sleep(time.Second)
		is(t, "a charge that came later", l.seenOf("k").Used, .1)
	})
	row(t, "events that have come back by themselves do not come back again", func(t *testing.T) {
		l := mustNew(t, Rates(tok), Replicas(4))
		took(t, l, "k")
		l.lendKey("k", .5, time.Minute)
		p := took(t, l, "k", Cost("tok", 60))
		time.Sleep(10 * time.Second)
		took(t, l, "k", Cost("tok", 70))
		l.lendKey("k", .25, time.Minute)
		must(t, p.Correct("tok", 0))
		refuses(t, l, "k", Cost("tok", 31))
	})
	row(t, "a request brings no more than the fastest refill may have left of it", func(t *testing.T) {
		l := mustNew(t, Rates(aHundred(400)), Replicas(4))
		took(t, l, "k")
		l.lendKey("k", 1, time.Minute)
		time.Sleep(time.Second)
		p := upTo(t, l, "k", 100, 100)
		time.Sleep(500 * time.Millisecond)
		is(t, "half has come by itself", l.admitAll(500), 50)
		l.lendKey("k", 0, time.Minute)
		correct(t, p, 0)
		within(t, "half comes back", 49, 50, l.admitAll(500))
	})
}

// The use through a gate that keys share is not known, and so all of the share is claimed.
func TestKeysWithoutAGateOfTheirOwn(t *testing.T) {
	l := mustNew(t, Limit{InFlight: 4}, MaxKeys(1), Demand(1, time.Second))
	wrong(t, l.seenOf("k").Span == 0, "a key that is not remembered was used for sure")
	took(t, l, "a")
	took(t, l, "k")
	is(t, "of a key in the gate of keys without room", l.seenOf("k"), fairshare.Seen{})
	l = mustNew(t, Limit{InFlight: 4}, Demand(1, time.Second), WithHash(func(string) uint64 { return 7 }))
	took(t, l, "a")
	is(t, "of a key with the hash of another", l.seenOf("k"), fairshare.Seen{})
}

func TestLoans(t *testing.T) {
	// It is not dropped in the middle of a loan.
	row(t, "keep a key, which would be back under its share", func(t *testing.T) {
		l := mustNew(t, Rates(aHundred(4)), Replicas(4), MaxKeys(1))
		l.Allow("k")
		l.lendKey("k", 1, time.Minute)
		time.Sleep(30 * time.Second)
		l.Allow("other")
		stats(t, l, "Evicted", 0)
		time.Sleep(31 * time.Second)
		l.Allow("another")
		stats(t, l, "Evicted", 1)
	})
	// So is a controller of slots.
	row(t, "are forgiven also where there are slots, as long as they are lent", func(t *testing.T) {
		rate := Rate{Events: 10, Per: time.Second}
		l := mustNew(t, Rates(rate), Replicas(4), Policy(policy.Tracking{}))
		l.Allow("k")
		must(t, l.SetLimit(Limit{InFlight: 2, Rates: []Rate{rate}}))
		l.lendKey("k", 1, time.Second)
		l.Reset("k")
		l.Explain("k")
		within(t, "slots, as many as the controller dares", 1, 2, l.admitAll(5))
		time.Sleep(2 * time.Second)
		l.Reset("k")
		l.Explain("k")
		is(t, "a share of half a slot", l.admitAll(5), 0)
	})
	row(t, "of each rate of a limit, and the tightest decides", func(t *testing.T) {
		_, ls := pooled(t, 4, Rates(aThousand(40),
			Rate{Name: "minute", Events: 600_000, Per: time.Minute, Burst: 400},
			Rate{Events: 4000, Per: time.Second, Burst: 400, Unit: "tok"}))
		takeFor(2*time.Second, ls[0], Cost("tok", 8))
		within(t, "by tokens", 485, 500, takeFor(time.Second, ls[0], Cost("tok", 8)))
		takeFor(2*time.Second, ls[0], Cost("tok", 1))
		within(t, "by requests", 970, 1000, takeFor(time.Second, ls[0], Cost("tok", 1)))
		within(t, "another one begins", 250, 430, takeFor(time.Second, ls[1], Cost("tok", 1)))
	})
	// It may borrow of the other limit from then on.
	row(t, "end when a key changes its plan", func(t *testing.T) {
		gold := Rates(Rate{Events: 2000, Per: time.Second, Burst: 40})
		_, ls := pooled(t, 4, Rates(aThousand(40)), Plans(map[string]Limit{"gold": gold}))
		takeFor(2100*time.Millisecond, ls[0]) // between two turns
		within(t, "a share of gold", 0, 20, takeFor(time.Millisecond, ls[0], Plan("gold")))
		partIs(t, "the loan is that of another plan", ls[0], 0)
		takeFor(3*time.Second, ls[0], Plan("gold"))
		within(t, "gold", 1940, 2000, takeFor(time.Second, ls[0], Plan("gold")))
		must(t, ls[0].SetPlan("gold", &Limit{Rates: []Rate{{Events: 400, Per: time.Second, Burst: 40}}}))
		within(t, "less gold", 380, 440, takeFor(time.Second, ls[0], Plan("gold")))
	})
	row(t, "follow each change at once, from the next call on", func(t *testing.T) {
		_, ls := pooled(t, 4, Rates(aThousand(40)))
		l := ls[0]
		second := func(what string, low, high int) { within(t, what, low, high, takeFor(time.Second, l)) }
		takeFor(3*time.Second, l)
		must(t, l.SetLimit(Rates(Rate{Events: 2000, Per: time.Second, Burst: 40})))
		second("a higher limit", 1940, 2000)
		must(t, l.SetLimit(Limit{Deny: true}))
		second("denied", 0, 0)
		must(t, l.SetLimit(Rates(aThousand(40))))
		takeFor(2*time.Second, l)
		second("again", 970, 1000)
		must(t, l.Override("k", &Limit{Rates: []Rate{{Events: 400, Per: time.Second, Burst: 40}}}, 0))
		takeFor(2*time.Second, l)
		second("its own limit is lent too", 388, 400)
		must(t, l.Override("k", nil, 0))
		takeFor(2*time.Second, l)
		l.Reset("k")
		second("forgiven", 970, 1010)
		must(t, l.SetPool(Pool{Replicas: 5}, 0)) // more than the four that say something
		takeFor(200*time.Millisecond, l)
		second("one is missing", 200, 201)
	})
	// They end also where nothing but answers shows the time.
	row(t, "are the bounds of controllers", func(t *testing.T) {
		l := mustNew(t, Rates(aHundred(40)), Replicas(4), Policy(policy.Tracking{}))
		p := took(t, l, "k")
		ceiling := func() float64 { return gateOf(l, "k").setting.ctrls[0].bounds.Ceiling }
		l.lendKey("k", .5, time.Second)
		is(t, "the ceiling of a part", ceiling(), 50)
		time.Sleep(2 * time.Second)
		p.Done(policy.Feedback{Outcome: policy.Throttled})
		is(t, "the ceiling of the share", ceiling(), 25)
	})
}

// A paced rate is lent where its replicas take no turns: the interval is shorter. Where they do, and windows,
// are the clock's. Asks for as many as there is room for are held back too.
func TestWhatIsLent(t *testing.T) {
	row(t, "paced", func(t *testing.T) {
		_, ls := pooled(t, 4, Rates(Rate{Events: 100, Per: time.Second, Kind: Paced, NoTurns: true}))
		takeFor(2*time.Second, ls[0])
		within(t, "paced", 96, 100, takeFor(time.Second, ls[0]))
	})
	for _, r := range []Rate{aligned(100, time.Second), {Events: 10, Per: time.Second, Kind: Paced}} {
		row(t, r, func(t *testing.T) {
			l := mustNew(t, Rates(r), StartPool(Pool{Replicas: 4, Ordinal: 1, Fixed: true}))
			l.Allow("k")
			l.lendKey("k", 1, time.Minute)
			most := int(r.Events) / 4
			within(t, "divided by the clock", most-1, most+1, takeFor(time.Second, l))
		})
	}
	row(t, "up to", func(t *testing.T) {
		_, ls := pooled(t, 4, Rates(aThousand(400)))
		got := 0
		for i := range 60 {
			time.Sleep(50 * time.Millisecond)
			if _, n := ls[0].TryAcquireUpTo("k", 100); i >= 40 {
				got += n
			}
		}
		within(t, "the third second", 970, 1000, got)
	})
	row(t, "an awaited pool, once it is known", func(t *testing.T) {
		_, ls := pooled(t, 2, Rates(aThousand(40)), AwaitPool(time.Hour))
		takeFor(2*time.Second, ls[0])
		within(t, "one of two", 970, 1000, takeFor(time.Second, ls[0]))
	})
}

// refusing is a Carrier that carries nothing.
type refusing struct{ hubEnd }

func (refusing) Carry(string, func(carry.Sums)) (func(), error) { return nil, errors.New("not today") }

func TestCarriersOfLimiters(t *testing.T) {
	row(t, "a carrier that refuses", func(t *testing.T) {
		l := mustNew(t, Rates(PerSecond(10)), Demand(1, time.Second))
		h := &hub{turns: time.Second, said: []map[string]carry.Terms{{}}}
		err := l.Follow(t.Context(), &refusing{hubEnd{hub: h}})
		is(t, "Follow", fmt.Sprint(err), "quotient: Follow: source: not today")
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = l.Follow(ctx, FixedOrdinal(1, &hubEnd{hub: h})) }()
		time.Sleep(3 * time.Second)
		wrong(t, l.Follow(t.Context(), &hubEnd{hub: h}) == nil, "two sources carry what one limiter says")
		is(t, "age behind FixedOrdinal", l.Stats().more.Demand.MaxAge, time.Second)
		is(t, "fixed", l.Stats().Pool.Pool.Fixed, true)
		cancel()
		synctest.Wait()
		is(t, "Follow has ended", l.Stats().more.Demand, inside.Demand{})
	})
	// A loan ends with the Follow that brought it, and the next Follow may bring another.
	row(t, "follow ends and begins again", func(t *testing.T) {
		h := &hub{turns: 200 * time.Millisecond, said: []map[string]carry.Terms{{}, {}}}
		l := mustNew(t, Rates(aThousand(40)), Replicas(2), Demand(4, 2*time.Second))
		other := mustNew(t, Rates(aThousand(40)), Replicas(2), Demand(4, 2*time.Second))
		go func() { _ = other.Follow(t.Context(), &hubEnd{hub: h, replica: 1}) }()
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			go func() { _ = l.Follow(ctx, &hubEnd{hub: h}) }()
			hammer(2*time.Second, l)
			within(t, "borrowed", 970, 1000, hammer(time.Second, l)...)
			cancel()
			synctest.Wait()
			within(t, "alone", 500, 501, hammer(time.Second, l)...)
		}
	})
	row(t, "counted keys are forgotten", func(t *testing.T) {
		const turns, late = 200 * time.Millisecond, 3
		rate := Rate{Events: 400, Per: time.Minute, Kind: CountedWindow}
		ends, ls := make([]*farEnd, 2), make([]*Limiter, 2)
		for i := range ends {
			ends[i] = &farEnd{own: map[string]carry.Terms{}, other: make([]map[string]carry.Terms, late),
				late: late * turns}
			ls[i] = mustNew(t, Rates(rate), Replicas(2), Demand(10, 2*time.Second))
			ls[i].beginExchange()
		}
		atWindow(rate.Per)
		is(t, "of the share", ls[0].admitAll(100), 100)
		for range 4 * time.Minute / turns {
			for i, l := range ls {
				l.turn(ends[i])
				ends[i].other = append(ends[i].other[1:], maps.Clone(ends[1-i].own))
			}
			time.Sleep(turns)
		}
		for i, e := range ends {
			for text := range e.own {
				wrong(t, isCount(text), "replica %d still counts %q", i, text)
			}
			x := &ls[i].exchange
			is(t, "keys that are counted, and named", [2]int{len(x.counts), x.counting}, [2]int{})
		}
	})
	row(t, "a registry lends each of its limiters", func(t *testing.T) {
		var r Registry
		s := &shelf{turns: map[string]func(carry.Sums){}}
		go func() { _ = r.Follow(t.Context(), s) }()
		synctest.Wait()
		for _, name := range []string{"a", "b"} {
			l, err := r.Limiter(name, Rates(aThousand(40)), Demand(4, 2*time.Second))
			must(t, err)
			takeFor(2*time.Second, l)
			within(t, name, 970, 1000, takeFor(time.Second, l))
		}
		s.mu.Lock()
		is(t, "carried", len(s.turns), 2)
		s.mu.Unlock()
		a, _ := r.Get("a")
		r.Remove("a")
		within(t, "removed", 490, 530, takeFor(time.Second, a))
	})
}

// farEnd is a replica of two. The report of the other one comes late.
type farEnd struct {
	own   map[string]carry.Terms
	other []map[string]carry.Terms // oldest first
	late  time.Duration
	pause time.Duration // after each sum
}

func (e *farEnd) Say(key string, own carry.Terms) {
	if e.own[key] = own; own == (carry.Terms{}) {
		delete(e.own, key)
	}
}

func (e *farEnd) Bytes() (sent, received uint64) { return 0, 0 }

func (e *farEnd) Keys() iter.Seq[string] {
	all := maps.Clone(e.own)
	maps.Copy(all, e.other[0])
	return maps.Keys(all)
}

func (e *farEnd) Sum(key string) (sum carry.Terms, age time.Duration) {
	sum = e.own[key]
	for i, n := range e.other[0][key] {
		sum[i] += n
	}
	time.Sleep(e.pause)
	return sum, e.late
}

// Reports are believed for maxAge, from when they were made on: not for longer if their clock is ahead, or
// if the turn that brings them is held up.
func TestReportsGrowOld(t *testing.T) {
	start := func(t *testing.T) (*Limiter, *farEnd) {
		l := mustNew(t, Limit{InFlight: 4}, Replicas(2), Demand(1, time.Second))
		l.beginExchange()
		is(t, "the share", l.admitAll(4), 2)
		said := map[string]carry.Terms{carry.KeyText("k"): {1, 1}}
		return l, &farEnd{own: map[string]carry.Terms{}, other: []map[string]carry.Terms{said}}
	}
	row(t, "of the future", func(t *testing.T) {
		l, e := start(t)
		e.late = -time.Hour
		for range 4 {
			l.turn(e)
			l.admitAll(1)
			time.Sleep(900 * time.Millisecond)
		}
		partIs(t, "within maxAge", l, 1)
		time.Sleep(100 * time.Millisecond)
		l.admitAll(1)
		partIs(t, "after maxAge", l, 0)
	})
	row(t, "a turn that is held up", func(t *testing.T) {
		l, e := start(t)
		for range 3 {
			l.admitAll(4)
			l.turn(e)
			time.Sleep(200 * time.Millisecond)
		}
		partIs(t, "fresh", l, 1)
		e.pause = 3 * time.Second
		l.turn(e)
		partIs(t, "three seconds old when it was used", l, 0)
	})
}

// shelf is a Carrier that carries for several limiters, each under its name, in a pool of two.
type shelf struct {
	mu    sync.Mutex
	turns map[string]func(carry.Sums)
}

func (s *shelf) Watch(ctx context.Context, report func(Pool, error)) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		report(Pool{Replicas: 2}, nil)
		s.mu.Lock()
		for _, turn := range s.turns {
			turn(newIdle())
		}
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

func (s *shelf) Carry(name string, turn func(carry.Sums)) (func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turns[name] = turn
	return func() { s.mu.Lock(); defer s.mu.Unlock(); delete(s.turns, name) }, nil
}

// idle are sums with a replica that uses nothing of any key.
type idle struct{ farEnd }

func newIdle() *idle {
	return &idle{farEnd{own: map[string]carry.Terms{}, other: []map[string]carry.Terms{{}}}}
}

func (*idle) Sum(string) (carry.Terms, time.Duration) {
	return carry.Terms{2, 1}, 200 * time.Millisecond
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

func (o *oneLock) Carry(string, func(carry.Sums)) (func(), error) { o.wait(); return o.wait, nil }

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

// isCount reports whether a text is of a key that replicas count together.
func isCount(text string) bool {
	_, _, ok := carry.ReadCount(text)
	return ok
}

// borrowers are limiters of one pool whose callers come and go. They say to each other what they want.
type borrowers struct {
	*rapid.T
	*hub
	ls     []*Limiter
	asks   []int // of each limiter: in a step of 10 ms
	onsets []time.Time
	events []time.Time
	held   [][]Permit
}

func newBorrowers(t *rapid.T, limit Limit) *borrowers {
	n := rapid.IntRange(1, 5).Draw(t, "replicas")
	b := &borrowers{T: t, asks: make([]int, n), held: make([][]Permit, n)}
	b.hub = &hub{turns: 100 * time.Millisecond, said: make([]map[string]carry.Terms, n)}
	for i := range n {
		b.said[i] = map[string]carry.Terms{}
		l := mustNew(t, limit, few, Replicas(n), Demand(3, time.Second))
		b.ls = append(b.ls, l)
		l.beginExchange()
	}
	return b
}

// step plays 10 ms. A replica takes its turn every tenth of them, each at another one.
func (b *borrowers) step(i int) {
	for j, l := range b.ls {
		if (i+3*j)%10 == 0 {
			before := b.said[j][carry.KeyText("k")]
			l.turn(&hubEnd{hub: b.hub, replica: j})
			if now := b.said[j][carry.KeyText("k")]; before[2] == 0 && now[2] > 0 { // it wants more
				b.onsets = append(b.onsets, time.Now())
			}
		}
		for range b.asks[j] {
			if p, d := l.TryAcquire("k"); d.OK {
				b.events = append(b.events, time.Now())
				b.held[j] = append(b.held[j], p)
			}
		}
	}
	time.Sleep(10 * time.Millisecond)
}

// phase has the callers of one replica come, go, or become more.
func (b *borrowers) phase(most int) {
	i := rapid.IntRange(0, len(b.ls)-1).Draw(b.T, "replica")
	was := b.asks[i]
	if b.asks[i] = rapid.SampledFrom([]int{0, 0, 1, most / 4, most}).Draw(b.T, "asks"); b.asks[i] > was {
		b.onsets = append(b.onsets, time.Now())
	}
}

// Bound 10 of a rate. A rate above the limit lasts no longer than reports take, from each onset on. It is no
// more than the shares of all others.
func TestPropertyBorrowedRate(t *testing.T) {
	property(t, func(t *rapid.T) {
		const perSecond, burst = 400, 20
		b := newBorrowers(t, Rates(Rate{Events: perSecond, Per: time.Second, Burst: burst}))
		i := 0
		for range rapid.IntRange(1, 8).Draw(t, "phases") {
			b.phase(8)
			for range rapid.IntRange(1, 300).Draw(t, "steps") {
				b.step(i)
				i++
			}
		}
		b.check(perSecond, max(burst, float64(len(b.ls))), 400*time.Millisecond)
	})
}

// check holds every window against its rate, its burst, and what onsets bring in it. Those that overlap count
// once.
func (b *borrowers) check(perSecond, burst float64, lasts time.Duration) {
	extra := perSecond * (1 - 1/float64(len(b.ls)))
	sum, last, until := 0.0, time.Time{}, time.Time{}
	for _, e := range b.events {
		passed := e.Sub(last).Seconds()
		for len(b.onsets) > 0 && !b.onsets[0].After(e) {
			until = b.onsets[0].Add(lasts)
			b.onsets = b.onsets[1:]
		}
		sum = max(0, sum-perSecond*passed)
		if over := min(passed, max(0, until.Sub(last).Seconds())); over > 0 {
			sum = max(0, sum-extra*over)
		}
		if sum, last = sum+1, e; sum > burst+1+.01*perSecond {
			b.Fatalf("%v above the rate of %v, with a burst of %v", sum, perSecond, burst)
		}
	}
}

// Bound 10 of slots. Beside the limit no more are in flight than the shares of the others. It is the limit
// alone when none has begun to want more for as long as reports takes, and permits from before are back.
func TestPropertyBorrowedSlots(t *testing.T) {
	property(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 60).Draw(t, "limit")
		b := newBorrowers(t, Limit{InFlight: limit})
		i := 0
		for range rapid.IntRange(1, 8).Draw(t, "phases") {
			b.phase(limit)
			keep := rapid.SampledFrom([]int{0, 1, 10, 1000}).Draw(t, "keep")
			began := i
			for range rapid.IntRange(1, 150).Draw(t, "steps") {
				b.step(i)
				i++
				if n, most := b.inFlight(), limit+limit*(len(b.ls)-1)/len(b.ls); n > most {
					t.Fatalf("%d in flight of %d", n, limit)
				}
				b.release(i, keep)
			}
			if n := b.inFlight(); keep <= 1 && i-began > 60 && n > limit {
				t.Fatalf("%d in flight of %d, long after the last onset", n, limit)
			}
		}
	})
}

func (b *borrowers) inFlight() (n int) {
	for _, l := range b.ls {
		n += int(l.Stats().InFlight)
	}
	return n
}

// release gives back the oldest permits of all replicas, every so many steps; 0: all of them at each.
func (b *borrowers) release(i, every int) {
	for j, held := range b.held {
		n := len(held)
		if every > 0 {
			if n = min(n, 1); i%every != 0 {
				n = 0
			}
		}
		for _, p := range held[:n] {
			p.Release()
		}
		b.held[j] = held[n:]
	}
}

// All replicas are busy at once: none has more than its share at any time, so that the surge costs nothing.
func TestASurgeOfAll(t *testing.T) {
	for n := 1; n <= 5; n++ {
		synctest.Test(t, func(t *testing.T) {
			_, ls := pooled(t, n, Rates(Rate{Events: 1000, Per: time.Second, Burst: 40}))
			time.Sleep(time.Second)
			sum := 0
			for _, got := range hammer(5*time.Second, ls...) {
				sum += got
			}
			within(t, fmt.Sprint(n, " replicas"), 4900, 5040, sum)
		})
	}
}
