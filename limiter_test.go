package quotient

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

// is fails unless a test has got what it wants.
func is[T comparable](t testing.TB, what any, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%+v: got %+v, want %+v", what, got, want)
	}
}

// stats fails unless the statistics of a limiter have these values: names of fields and numbers in turn.
func stats(t testing.TB, l *Limiter, want ...any) {
	t.Helper()
	all := reflect.ValueOf(l.Stats())
	for i := 0; i < len(want); i += 2 {
		got := all.FieldByName(want[i].(string)).Interface()
		is(t, want[i], fmt.Sprint(got), fmt.Sprint(want[i+1]))
	}
}

// refuses fails if the call is admitted now.
func refuses(t testing.TB, l *Limiter, key string, opts ...CallOption) {
	t.Helper()
	if _, d := l.TryAcquire(key, opts...); d.OK {
		t.Errorf("key %q: admitted, want a refusal", key)
	}
}

// Time that is measured must not follow the wall clock's steps.
func TestClockIsMonotonic(t *testing.T) {
	for _, r := range []Rate{PerSecond(1), {Events: 1, Per: time.Minute, Kind: Window}} {
		if base := mustNew(t, Rates(r)).base.String(); !strings.Contains(base, " m=") {
			t.Errorf("%+v: %s has no monotonic reading", r, base)
		}
	}
}

// Must returns a limiter, and panics with the error that names the field.
func TestMust(t *testing.T) {
	wants(t, Must(New(Rates(PerSecond(1)))), "k", 1)
	defer func() {
		err, _ := recover().(error)
		says(t, err, "Events")
	}()
	Must(New(Rates(PerSecond(-1))))
}
