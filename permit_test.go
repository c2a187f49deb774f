package quotient

import (
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-go/quotient/policy"
)

// inFlight fails unless so many slots are taken, of all keys.
func inFlight(t *testing.T, l *Limiter, n int) {
	t.Helper()
	stats(t, l, "InFlight", n)
}

func TestReleaseCountsOnce(t *testing.T) {
	l := mustNew(t, Limit{InFlight: 3})
	p := took(t, l, "k", Weight(2))
	other := took(t, l, "k")
	copied := p
	inFlight(t, l, 3)
	p.Release()
	for range 5 {
		copied.Release()
		p.Done(policy.Feedback{Outcome: policy.Throttled})
	}
	stats(t, l, "InFlight", 1, "DoubleReleases", 10)
	took(t, l, "k", Weight(2))
	refusedFor(t, l, ReasonInFlight, "k")
	other.Release()
	inFlight(t, l, 2)
}

// A slot of the permit table is used again; the permit that had it before is not valid for its successor.
// No number of uses makes a permit of long ago good again.
func TestStalePermit(t *testing.T) {
	limit := Limit{InFlight: 1, Rates: []Rate{perSecond(1e6, 1e6), tokensPerMinute(6e7, 1e6)}}
	l := mustNew(t, limit, Policy(policy.AIMD{}))
	stale := took(t, l, "k", Cost("tokens", 1))
	stale.Release()
	for i := range 10 {
		if i == 5 { // as if it had been used 2^31 times, together with the next taking
			stale.h.gen += 1<<31 - 1
			stale.h.gen += 1<<31 - 1
		}
		p := took(t, l, "k", Cost("tokens", 1))
		if p.h != stale.h || p.h.gen%2 == 0 {
			t.Fatalf("not the same holding: %+v, then %+v", stale, p)
		}
		stale.Release()
		stale.Done(policy.Feedback{Outcome: policy.Throttled})
		stale.Report(policy.Feedback{Outcome: policy.Throttled})
		stale.ExpireIn(1)
		says(t, stale.Correct("tokens", 5), "released")
		says(t, stale.Correct("", 0), "released")
		stats(t, l, "InFlight", 1, "DoubleReleases", 2*(i+1), "Throttled", 0)
		p.Release()
	}
	inFlight(t, l, 0)
}

func TestZeroPermitDoesNothing(t *testing.T) {
	var p Permit
	p.Release()
	p.Release()
	p.Done(policy.Feedback{Outcome: policy.Success})
	p.ExpireIn(time.Second)
	says(t, p.Correct("tokens", 1), "without a Cost")
	is(t, "a permit with nothing to give back", took(t, mustNew(t, Rates(PerSecond(1))), "k"), p)
}

// A waiter that is admitted in the instant in which its context ends gives all back.
func TestCancelOfAGrantedWaiter(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := mustNew(t, Limit{Rates: []Rate{perSecond(1, 1), tokensPerMinute(60, 60)}, InFlight: 1})
		s := l.shard("k")
		s.mu.Lock()
		now := s.now()
		g := s.gate(l.hash("k"), "k", 0)
		w := newWaiter(demand{weight: 1, costs: [maxUnits]int{60}})
		w.key = "k"
		l.waiting.Add(1)
		s.enqueue(g, w, now)
		s.mu.Unlock()
		is(t, "admitted", len(w.ready), 1)
		is(t, "left", fmt.Sprint(tokensOf(t, l, "k")), "[0 0]")
		(&caller{s, g, w}).cancel()
		is(t, "left then", fmt.Sprint(tokensOf(t, l, "k")), "[1 60]")
		stats(t, l, "InFlight", 0, "Admitted", 0, "Cancelled", 1, "Waiting", 0)
	})
}

// Free holdings pin dropped gates, those pin their setting, and it pins all that followed.
func TestSettingsAreGarbage(t *testing.T) {
	l := mustNew(t, Limit{InFlight: 10}, MaxKeys(10))
	var ps []Permit
	for i := range 70 { // two blocks
		ps = append(ps, took(t, l, key(i%10)))
	}
	for _, p := range ps {
		p.Release()
	}
	for i := range 20 { // other keys push the first ones out
		took(t, l, key(10+i)).Release()
	}
	for i := range 50_000 {
		setReplicas(t, l, 1+i%2)
	}
	for _, b := range l.shards[0].permits.blocks {
		for i := range b {
			if g := b[i].gate; g != nil {
				count := 0
				for st := g.setting; st != nil; st = st.next {
					count++
				}
				if count > 2*catchUp {
					t.Fatalf("a free holding keeps %d settings alive", count)
				}
			}
		}
	}
}

func TestMaxHoldGivesBack(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := mustNew(t, Limit{InFlight: 2}, MaxHold(time.Minute))
		lost := took(t, l, "k")
		time.Sleep(30 * time.Second)
		took(t, l, "k")
		refusedFor(t, l, ReasonInFlight, "k")
		time.Sleep(30*time.Second - 1)
		refusedFor(t, l, ReasonInFlight, "k")
		time.Sleep(time.Nanosecond)
		took(t, l, "k")
		refusedFor(t, l, ReasonInFlight, "k")
		lost.Release() // too late: counted, nothing else
		stats(t, l, "InFlight", 2, "Reclaimed", 1, "DoubleReleases", 1)
		time.Sleep(time.Hour)
		inFlight(t, l, 0) // reading statistics gives back, too
	})
}

// Who forgets permits sees which keys they were of, one line a second at most, however many they are and
// however long their names.
func TestReclaimedPermitsAreLogged(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		log := recording()
		l := mustNew(t, Limit{InFlight: 2}, MaxHold(time.Minute), Logger(slog.New(log)))
		for _, key := range []string{"k", "k", strings.Repeat("x", 1<<20)} {
			took(t, l, key)
			time.Sleep(time.Minute + 30*time.Second)
			l.Stats()
			took(t, l, key).ExpireIn(time.Millisecond)
			time.Sleep(time.Millisecond)
			l.Stats()
			synctest.Wait()
		}
		var all []string
		for _, line := range log.take() {
			wrong(t, len(line) > 200, "a line of %d bytes", len(line))
			all = append(all, line[:min(len(line), 78)])
		}
		is(t, "lines", strings.Join(all, "\n"), `1m30s WARN a permit was not released in time key=k
3m0.001s WARN a permit was not released in time key=k
4m30.002s WARN a permit was not released in time key=`+strings.Repeat("x", 25))
		stats(t, l, "Reclaimed", 6)
	})
}

// The end that a permit has last counts, also for a caller that waits already.
func TestExpireIn(t *testing.T) {
	for _, c := range []struct {
		name    string
		maxHold time.Duration
		set     []time.Duration
		free    time.Duration // after so long; 0: not within an hour
	}{
		{"MaxHold alone", time.Minute, nil, time.Minute},
		{"in place of nothing", 0, []time.Duration{10 * time.Second}, 10 * time.Second},
		{"later than MaxHold", time.Second, []time.Duration{10 * time.Second}, 10 * time.Second},
		{"sooner than MaxHold", time.Minute, []time.Duration{10 * time.Second}, 10 * time.Second},
		{"the last one", 0, []time.Duration{time.Second, time.Minute, 10 * time.Second}, 10 * time.Second},
		{"0 takes the end off", time.Minute, []time.Duration{time.Second, 0}, 0},
		{"so does less", 0, []time.Duration{time.Second, -time.Second}, 0},
		{"the longest, of MaxHold", math.MaxInt64, nil, 0},
		{"the longest", 0, []time.Duration{math.MaxInt64}, 0},
	} {
		for _, waits := range []bool{false, true} { // when the end is set
			row(t, []any{c.name, waits}, func(t *testing.T) {
				l := mustNew(t, Limit{InFlight: 1}, MaxHold(c.maxHold))
				time.Sleep(time.Second)
				p := took(t, l, "k")
				var waiter *call
				if waits {
					waiter = asking(t, l, "k")
				}
				for _, d := range c.set {
					p.ExpireIn(d)
				}
				if !waits {
					waiter = asking(t, l, "k")
				}
				if c.free == 0 {
					time.Sleep(time.Hour)
					waiter.waits(t)
					waiter.cancel()
					return
				}
				time.Sleep(c.free)
				waiter.admittedAfter(t, c.free)
			})
		}
	}
}

func TestMaxHold(t *testing.T) {
	// While a waiter waits for a rate, the end of a permit's time must not make its timer fire without end: here
	// the turn is so far away that it counts as unknown. Nothing may wait for the fake clock while the timer may
	// be busy.
	row(t, "expired permit and a turn that is unknown", func(t *testing.T) {
		hardlyEver := Rate{Events: 0.001, Per: math.MaxInt64}
		l := mustNew(t, Limit{Rates: []Rate{hardlyEver}, InFlight: 5}, MaxHold(time.Minute))
		took(t, l, "k")
		c := asking(t, l, "k")
		time.Sleep(time.Minute)
		g, s := gateOf(l, "k"), l.shard("k")
		s.mu.Lock()
		now := s.now()
		s.serve(g, now)
		m := g.ext
		if len(m.expiring) > 0 && m.nextEnd <= now.At && m.blocked == ReasonInFlight {
			t.Error("the timer is set to an instant that is past: it fires without end")
		}
		s.mu.Unlock()
		c.cancel()
	})
	// MaxHold must bound what is remembered of permits that are never released, also if Stats is never called.
	row(t, "max hold bounds memory", func(t *testing.T) {
		l := mustNew(t, tokenLimit(1000, 1000), MaxHold(time.Second))
		for range 100 {
			for range 1000 {
				took(t, l, "k", Cost("tokens", 1))
			}
			time.Sleep(time.Second)
		}
		if n := len(l.shard("k").permits.blocks) * permitBlock; n > 3000 {
			t.Errorf("%d holdings, though no more than 2000 are within MaxHold", n)
		}
	})
}

// tokenLimit is a limit of tokens a second, with a burst.
func tokenLimit(events float64, burst int) Limit {
	return Rates(Rate{Name: "tokens", Unit: "tokens", Events: events, Per: time.Second, Burst: burst})
}

// corrects tells the true cost of a permit in tokens.
func corrects(t *testing.T, p Permit, used int) {
	t.Helper()
	if err := p.Correct("tokens", used); err != nil {
		t.Errorf("Correct: %v", err)
	}
}

// admitsNow fails when more tokens than that are admitted at this instant, one by one.
func admitsNow(t *testing.T, l *Limiter, most int) {
	t.Helper()
	for n := 0; ; n++ {
		if _, d := l.TryAcquire("k", Cost("tokens", 1)); !d.OK {
			return
		}
		if n == most {
			t.Fatalf("more than %d tokens are admitted", most)
		}
	}
}

// The bucket was full but for one token when the first nine would have been given back: one comes back, in
// however many calls.
func TestHeadroomComesBackOnce(t *testing.T) {
	for _, calls := range []int{1, 3, 9} {
		row(t, calls, func(t *testing.T) {
			l := mustNew(t, tokenLimit(1, 10))
			first := took(t, l, "k", Cost("tokens", 9))
			time.Sleep(8 * time.Second)
			second := took(t, l, "k", Cost("tokens", 9))
			for i := range calls {
				corrects(t, first, 9-9*(i+1)/calls)
			}
			has(t, l, "k", 1)
			corrects(t, second, 0) // these nine have never been taken
			has(t, l, "k", 10)
			admitsNow(t, l, 10)
		})
	}
}

func TestRefund(t *testing.T) {
	// Or forgetting it would show: the size was lowered meanwhile.
	row(t, "leaves no key better off than one that was never used", func(t *testing.T) {
		l := mustNew(t, Rates(tokensPerMinute(60, 10)))
		p := took(t, l, "k", Cost("tokens", 4))
		setReplicas(t, l, 5)
		setReplicas(t, l, 1)
		corrects(t, p, 0)
		has(t, l, "k", 2)
	})
	row(t, "is dated also if the take was at the limiter's first instant", func(t *testing.T) {
		l := mustNew(t, Limit{Rates: tokenLimit(1, 10).Rates, InFlight: 9})
		p := took(t, l, "k")
		corrects(t, p, 3)
		time.Sleep(10 * time.Second)
		took(t, l, "k", Cost("tokens", 6))
		corrects(t, p, 4)
		corrects(t, p, 0)
		admitsNow(t, l, 4)
	})
}

func TestCorrectRefuses(t *testing.T) {
	row(t, "correct refuses", func(t *testing.T) {
		l := mustNew(t, Rates(tokensPerMinute(60, 100)))
		p := took(t, l, "k", Cost("tokens", 60))
		says(t, p.Correct("tokens", -1), "Correct", `"tokens"`, "-1")
		for _, n := range beyond {
			says(t, p.Correct("tokens", n), "Correct", fmt.Sprint(n))
		}
		says(t, p.Correct("bytes", 1), "Correct", `"bytes"`)
		says(t, p.Correct("", 2), "Correct", "2 is above the 1 requests")
		says(t, Permit{}.Correct("", 0), "Correct", "cannot be corrected")
		has(t, l, "k", 40)
		p.Release()
		says(t, p.Correct("tokens", 1), "Correct", "released")
		has(t, l, "k", 40)
	})
	// Nothing comes back that was not taken, or has come back already.
	row(t, "batch gives back refuses", func(t *testing.T) {
		l := mustNew(t, Rates(PerSecond(10)))
		p := upTo(t, l, "k", 10, 10)
		says(t, p.Correct("", 11), "Correct", "11", "10 requests")
		says(t, p.Correct("", -1), "Correct", "-1")
		time.Sleep(600 * ms) // six have come back by themselves
		correct(t, p, 0)
		has(t, l, "k", 10)
		says(t, p.Correct("", 1), "Correct", "1 is above the 0 requests")
		p.Release()
		says(t, p.Correct("", 0), "Correct", "released")

		p = upTo(t, l, "k", 4, 4)
		time.Sleep(200 * ms) // two have come back by themselves
		upTo(t, l, "k", 6, 6).Release()
		has(t, l, "k", 2)
		correct(t, p, 0)
		has(t, l, "k", 4) // as if the four had not been taken: the bucket was full
		time.Sleep(time.Second)

		q := upTo(t, l, "k", 10, 10)
		setLimit(t, l, Rates(PerSecond(9)))
		correct(t, q, 0)
		has(t, l, "k", 0) // it was taken under another limit
	})
}

// A refund gives back what rates have given, once, and neither slots nor costs.
func TestRefundable(t *testing.T) {
	row(t, "refund", func(t *testing.T) {
		limit := Rates(PerSecond(10), Rate{Unit: "tokens", Events: 100, Per: time.Hour})
		limit.InFlight = 4
		l := mustNew(t, limit)
		l.Allow("k")
		l.Allow("k")
		p := took(t, l, "k", Weight(2), Cost("tokens", 60), Refundable())
		has(t, l, "k", 6)
		for range 2 {
			p.Refund()
			has(t, l, "k", 8)
			inFlight(t, l, 2)
		}
		correct(t, p, 0)
		has(t, l, "k", 8)
		inFlight(t, l, 0)
		p.Release()
		took(t, l, "k", Refundable()).Release()
		p.Refund()
		has(t, l, "k", 7)
		refusedFor(t, l, ReasonRate, "k", Cost("tokens", 41))

		bare := mustNew(t, Rates(PerSecond(10)))
		took(t, bare, "k").Refund()
		has(t, bare, "k", 9)
		p = took(t, bare, "k", Refundable())
		setLimit(t, bare, Rates(PerSecond(9)))
		p.Refund()
		has(t, bare, "k", 8)
		p.Release()
	})
	row(t, "refund serves who waits", func(t *testing.T) {
		l := mustNew(t, Rates(Rate{Events: 1, Per: time.Hour}))
		p := took(t, l, "k", Refundable())
		admitted := make(chan error, 1)
		go func() {
			_, err := l.Acquire(t.Context(), "k")
			admitted <- err
		}()
		synctest.Wait()
		p.Refund()
		synctest.Wait()
		wrong(t, len(admitted) == 0, "the refund does not serve who waits")
		must(t, <-admitted)
	})
}

// More than an int32 of requests may be given back.
func TestGiveBackOfBillions(t *testing.T) {
	for _, n := range []int{1 << 30, min(1<<31, math.MaxInt), min(3_000_000_000, math.MaxInt)} {
		l := mustNew(t, Rates(Rate{Events: 1e10, Per: time.Second}))
		correct(t, upTo(t, l, "k", n, n), 0)
		setLimit(t, l, Limit{InFlight: 5})
		upTo(t, l, "k", 9, 5)
		refuses(t, l, "k")
	}
}

// A take is refunded exactly as if it had never been made, whatever is taken and refunded in between.
func TestPropertyCorrectIsReplay(t *testing.T) {
	type taking struct {
		at time.Time
		n  int
		p  Permit
	}
	property(t, func(rt *rapid.T) {
		const perSecond, burst = 1.0, 20
		l := mustNew(rt, tokenLimit(perSecond, burst))
		began, ops := time.Now(), 0
		var all []taking
		replay := func() float64 {
			left, last := float64(burst), began
			for _, e := range all {
				left = min(burst, left+e.at.Sub(last).Seconds()*perSecond) - float64(e.n)
				last = e.at
			}
			return min(burst, left+time.Since(last).Seconds()*perSecond)
		}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch rapid.IntRange(0, 2).Draw(rt, "what") {
			case 0:
				time.Sleep(time.Duration(rapid.IntRange(0, 12_000).Draw(rt, "ms")) * ms)
			case 1:
				n := rapid.IntRange(1, 9).Draw(rt, "take")
				if p, d := l.TryAcquire("k", Cost("tokens", n)); d.OK {
					all = append(all, taking{time.Now(), n, p})
				}
			default:
				if len(all) == 0 || len(all) >= 32 {
					continue
				}
				e := &all[rapid.IntRange(0, len(all)-1).Draw(rt, "which")]
				e.n = rapid.IntRange(0, e.n).Draw(rt, "used")
				must(rt, e.p.Correct("tokens", e.n))
				ops++
			}
			if len(all) == 0 {
				continue
			}
			got, want := l.Explain("k").Rules[0].Left, replay()
			if math.Abs(got-want) > 0.002*float64(ops+1) {
				rt.Fatalf("%v tokens, %v as if what came back had never been taken", got, want)
			}
		}
	})
}
