package quotient

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient/internal/waited"
)

func TestOnWait(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		var got []string
		l := limiterOf(t, Limit{Rates: []Rate{perSecond(1, 2)}, InFlight: 2},
			OnWait(func(key string, wait time.Duration) { got = append(got, fmt.Sprint(key, " ", wait)) }))
		p := asking(t, l, "k").permit
		p2 := asking(t, l, "k").permit
		asking(t, l, "k")
		asking(t, l, "k")
		p.Release()
		p2.Release()
		time.Sleep(10 * time.Second)
		c := asking(t, l, "k")
		if want := []string{"k 1s", "k 2s", "k 0s"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		c.cancel()
	})
}

// Panics of the hook belong to the caller; the limiter is as if it had not been called.
func TestPanicInOnWaitLeavesNoTrace(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{InFlight: 1}, OnWait(func(string, time.Duration) { panic("hook") }))
		p := took(t, l, "k")
		func() {
			defer func() {
				if recover() != "hook" {
					t.Error("the panic does not reach the caller")
				}
			}()
			l.Acquire(t.Context(), "k") //nolint:errcheck // it panics
		}()
		if got := l.Stats().Waiting; got != 0 {
			t.Errorf("%d wait", got)
		}
		p.Release()
		took(t, l, "k").Release()
		inFlight(t, l, 0)
	})
}

func TestOnAdmit(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		var got []string
		l := limiterOf(t, Limit{Rates: []Rate{perSecond(1, 2)}, InFlight: 1},
			OnAdmit(func(key string, waited, overhead time.Duration) {
				got = append(got, fmt.Sprint(key, " ", waited, " ", overhead))
			}))
		p := asking(t, l, "k").permit
		asking(t, l, "k")
		time.Sleep(3 * time.Second)
		p.Release()
		synctest.Wait()
		took(t, l, "other")
		took(t, l, "third").Release()
		if !l.Allow("fourth") {
			t.Error("refused")
		}
		l.Allow("other")              // is refused,
		l.TryAcquireUpTo("other", 1)  // this too,
		l.TryAcquireUpTo("fourth", 9) // and this takes what is left
		want := []string{"k 0s 0s", "k 3s 0s", "other 0s 0s", "third 0s 0s", "fourth 0s 0s", "fourth 0s 0s"}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// OnAdmit that panics loses the permit.
func TestPanickingOnAdmit(t *testing.T) {
	l := limiterOf(t, Limit{InFlight: 1},
		OnAdmit(func(string, time.Duration, time.Duration) { panic("hook") }))
	func() {
		defer func() { _ = recover() }()
		_, _ = l.Acquire(t.Context(), "k")
	}()
	if n := l.Stats().InFlight; n != 0 {
		t.Errorf("%d in flight that no caller can release", n)
	}
}

func TestContextGetsAWait(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		var got []string
		l := limiterOf(t, Limit{InFlight: 1})
		with := func(f waited.Hook) context.Context { return context.WithValue(t.Context(), waited.Key{}, f) }
		ctx := with(func(w, o time.Duration) { got = append(got, fmt.Sprint(w, " ", o)) })
		p, err := l.Acquire(ctx, "k") // does not wait
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(3*time.Second, p.Release)
		p, err = l.Acquire(ctx, "k")
		if err != nil {
			t.Fatal(err)
		}
		if want := []string{"3s 0s"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		ctx = with(func(_, _ time.Duration) { panic("hook") })
		time.AfterFunc(time.Second, p.Release)
		func() {
			defer func() { _ = recover() }()
			_, _ = l.Acquire(ctx, "k")
		}()
		if n := l.Stats().InFlight; n != 0 {
			t.Errorf("%d in flight that no caller can release", n)
		}
	})
}
