package quotient

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-go/quotient/policy"
)

func TestStatsCountCalls(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{Rates: []Rate{
			perSecond(4, 2),
			{Name: "w", Events: 100, Per: time.Minute, Aligned: true},
		}, InFlight: 3}, Replicas(2))
		took(t, l, "a")
		wants(t, l, "b", 1)
		c := asking(t, l, "b", Weight(1))
		st := l.Stats()
		if st.Admitted != 2 || st.Refused[ReasonRate] != 1 || st.Waited != 1 || st.Waiting != 1 ||
			st.Keys != 2 || st.InFlight != 1 {
			t.Errorf("got %+v", st)
		}
		want := []RuleState{
			{Name: "second", Limit: 4, Share: 2, Window: time.Second, Burst: 1, Left: 1},
			{Name: "w", Limit: 100, Share: 50, Window: time.Minute, Left: 50, Reset: time.Minute},
			{Name: "in-flight", Limit: 3, Share: 1, Left: 1},
		}
		if !slices.Equal(st.Rules, want) {
			t.Errorf("rules %+v, want %+v", st.Rules, want)
		}
		for ks := range l.Keys() {
			key := ks.Key
			if want := map[string]int{"a": 1}[key]; ks.InFlight != want || ks.Waiting != 1-want {
				t.Errorf("key %q: %+v", key, ks)
			}
		}
		c.cancel()
	})
}

func TestKeysMayBeLeftEarly(t *testing.T) {
	l := limiterOf(t, rated(PerHour(1)))
	for i := range 10 {
		wants(t, l, fmt.Sprint(i), 1)
	}
	n := 0
	for range l.Keys() {
		if n++; n == 3 {
			break
		}
	}
	if n != 3 {
		t.Errorf("saw %d keys", n)
	}
}

func TestTryAcquireUpToCountsItsReason(t *testing.T) {
	for reason, limit := range map[Reason]Limit{
		ReasonDenied:   Limit{Deny: true},
		ReasonInFlight: {InFlight: 1},
		ReasonRate:     rated(PerHour(1)),
	} {
		row(t, reason, func(t *testing.T) {
			l := limiterOf(t, limit)
			l.TryAcquire("k")
			before := l.Stats().Refused[reason]
			if _, n := l.TryAcquireUpTo("k", 5); n != 0 {
				t.Fatalf("got %d", n)
			}
			if st := l.Stats(); st.Refused[reason] != before+1 {
				t.Errorf("refused %v, want one more for %v", st.Refused, reason)
			}
		})
	}
}

// The counters of calls tell admissions apart from refusals, also for batches.
func TestTryAcquireUpToCountsAdmissions(t *testing.T) {
	l := limiterOf(t, rated(perSecond(1, 10)))
	l.TryAcquireUpTo("k", 7)
	if st := l.Stats(); st.Admitted != 1 || len(st.Refused) != 0 {
		t.Errorf("admitted %d, refused %v, want one ask admitted", st.Admitted, st.Refused)
	}
}

// A waiter that is refused while its context ends is one call, and counted once.
func TestRefusedAndCancelledIsOneCall(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		var l *Limiter
		l = limiterOf(t, Limit{InFlight: 1}, OnWait(func(string, time.Duration) {
			setLimit(t, l, Limit{Deny: true}) // refuses the waiter whose hook this is
			panic("hook")
		}))
		took(t, l, "k")
		func() {
			defer func() { _ = recover() }()
			_, _ = l.Acquire(t.Context(), "k")
		}()
		s := l.Stats()
		n := s.Admitted + s.Cancelled
		for _, r := range s.Refused {
			n += r
		}
		if n != 2 {
			t.Errorf("2 asks, %d counted: admitted %d, cancelled %d, refused %v", n, s.Admitted, s.Cancelled,
				s.Refused)
		}
	})
}

// A state under a version is that version's: else an ETag stands for a body of the version before.
func TestStatsAreOfTheirVersion(t *testing.T) {
	l := limiterOf(t, rated(perSecond(10, 10)))
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for on := true; ; on = !on {
			select {
			case <-stop:
				return
			default:
				l.SetDryRun(on) // an odd version is a dry run
			}
		}
	}()
	wrong := 0
	for range 20000 {
		if s := l.Stats(); s.DryRun != (s.Version%2 == 1) {
			wrong++
		}
	}
	close(stop)
	<-done
	if wrong > 0 {
		t.Errorf("%d of 20000 Stats show the state of another version", wrong)
	}
}

func TestTop(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{Rates: []Rate{perSecond(1, 10)}, InFlight: 10})
		for i := range 9 {
			for range i {
				took(t, l, key(i)).Release()
			}
		}
		took(t, l, "slots", Weight(10))
		waiter := asking(t, l, "slots")
		top := l.Top(3)
		got := fmt.Sprint(len(top))
		for _, u := range top {
			got += fmt.Sprintf(" %s %.1f %d", u.Key, u.Used, u.Waiting)
		}
		if want := "3 slots 1.0 1 key-8 0.8 0 key-7 0.7 0"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if n := len(l.Top(100)); n != 9 {
			t.Errorf("%d keys", n) // key-0 was never asked for
		}
		if l.Top(0) != nil || l.Top(-1) != nil {
			t.Error("none is not none")
		}
		l.SetDryRun(true)
		waiter.admittedAfter(t, 0)
	})
}

func TestAppendState(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{Rates: []Rate{
			perSecond(10, 20),
			{Name: "w", Events: 60, Per: time.Minute, Aligned: true},
		}, InFlight: 4}, Replicas(2))
		time.Sleep(15 * time.Second)
		took(t, l, "k")
		l.Allow("k")
		want := []RuleState{
			{Name: "second", Limit: 10, Share: 5, Window: time.Second, Burst: 10, Left: 8,
				Reset: 400 * time.Millisecond},
			{Name: "w", Limit: 60, Share: 30, Window: time.Minute, Left: 28, Reset: 45 * time.Second},
			{Name: "in-flight", Limit: 4, Share: 2, Left: 1},
		}
		got := l.AppendState(nil, "k")
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%v, want %v", got, want)
		}
		if got := l.AppendState(nil, "new"); got[0].Left != 10 || got[1].Left != 30 || got[2].Left != 2 {
			t.Errorf("%v", got)
		}
		buf := make([]RuleState, 0, 4)
		if n := testing.AllocsPerRun(10, func() { l.AppendState(buf, "k") }); n != 0 {
			t.Errorf("%v allocations", n)
		}
		setLimit(t, l, Limit{Deny: true})
		if got := l.AppendState(nil, "k"); got != nil {
			t.Errorf("%v under a limit that denies", got)
		}
	})
}

// While the pool is awaited it is not known what is left; Stats still lists the rules.
func TestAppendStateAddsNothingWithoutAPool(t *testing.T) {
	l := limiterOf(t, rated(perSecond(10, 20)), AwaitPool(), HintMaxAge(time.Minute), Replicas(4))
	into := []RuleState{{Name: "old"}}
	if d := refusedFor(t, l, ReasonPool, "k", StateInto(&into)); len(into) != 0 ||
		len(l.AppendState(nil, "k")) != 0 {
		t.Errorf("%v beside %v", into, d)
	}
	if len(l.Stats().Rules) != 1 {
		t.Error("Stats lists no rules")
	}
}

// StateInto gets what AppendState says behind the decision, of each verb and after a wait too.
func TestPropertyStateInto(t *testing.T) {
	property(t, func(t *rapid.T) {
		opts := []Option{StartPool(drawNumberedPool(t))}
		if rapid.Bool().Draw(t, "learns") {
			opts = append(opts, Policy(policy.AIMD{}))
		}
		l, err := New(drawLimit(t), append(opts, MaxKeys(3))...)
		if err != nil {
			t.Fatal(err)
		}
		var permits []Permit
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			key := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(t, "key")
			into, now := []RuleState{{Name: "old"}}, time.Now()
			switch rapid.IntRange(0, 5).Draw(t, "verb") {
			case 0:
				l.Check(key, StateInto(&into))
			case 1, 2:
				p, _ := l.TryAcquire(key, StateInto(&into))
				permits = append(permits, p)
			case 3:
				ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond+drawPause(t))
				p, _ := l.Acquire(ctx, key, StateInto(&into))
				permits = append(permits, p)
				cancel()
			case 4:
				time.Sleep(drawPause(t))
				continue
			case 5:
				for _, p := range permits {
					p.Release()
				}
				permits = nil
				continue
			}
			if got := l.AppendState(nil, key); fmt.Sprint(got) != fmt.Sprint(into) {
				t.Fatalf("after %v told %v, AppendState %v", time.Since(now), into, got)
			}
		}
	})
}

// AppendState is "like Check", which counts permits whose time is over as given back.
func TestQuotasCountNoPermitWhoseTimeIsOver(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{InFlight: 1}, MaxHold(time.Second))
		took(t, l, "k")
		time.Sleep(2 * time.Second)
		left := l.AppendState(nil, "k")[0].Left
		top := l.Top(1)[0]
		if ok := l.Check("k").OK; ok && left != 1 {
			t.Errorf("Check admits, AppendState before it said %v left, Top %v in flight", left, top.InFlight)
		}
	})
}
