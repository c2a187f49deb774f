package quotient

import (
	"strings"
	"testing"
	"time"
)

// Time that is measured must not follow the wall clock's steps.
func TestClockIsMonotonic(t *testing.T) {
	for _, r := range []Rate{PerSecond(1), {Events: 1, Per: time.Minute, Aligned: true}} {
		l := limiterOf(t, rated(r))
		if base := l.base.String(); !strings.Contains(base, " m=") {
			t.Errorf("%+v: %s has no monotonic reading", r, base)
		}
	}
}

// Must returns a limiter, and panics with the error that names the field.
func TestMust(t *testing.T) {
	l := Must(New(Rates(PerSecond(1))))
	if !l.Allow("k") || l.Allow("k") {
		t.Error("the limiter does not limit")
	}
	defer func() {
		if err, ok := recover().(error); !ok || !strings.Contains(err.Error(), "Events") {
			t.Errorf("the panic is %v, want an error that names Events", err)
		}
	}()
	Must(New(Rates(PerSecond(-1))))
	t.Error("a limit below 0 made a limiter")
}
