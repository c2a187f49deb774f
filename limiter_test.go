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
