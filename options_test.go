package quotient

import (
	"log/slog"
	"strings"
	"testing"
)

// The log has one line for each fact that an operator should see, with old and new values.
func TestLogger(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		var log strings.Builder
		l := limiterOf(t, Limit{InFlight: 4}, Logger(slog.New(slog.NewTextHandler(&log, nil))))
		for _, c := range []struct {
			name  string
			do    func()
			words []string // none: no line
		}{
			{"a new limit", func() { setLimit(t, l, Limit{InFlight: 9}) },
				[]string{"level=INFO", "limit set", "old=", "in flight: 4", "new=", "in flight: 9"}},
			{"a limit that is refused", func() { _ = l.SetLimit(Limit{InFlight: -9}) }, nil},
			{"another pool", func() { setReplicas(t, l, 3) },
				[]string{"level=INFO", "pool changed", "Replicas:1", "Replicas:3", "source=set"}},
			{"the same pool", func() { setReplicas(t, l, 3) }, nil},
			{"a hint", func() {
				src := following(t, l)
				src.says(5)
				src.cancel()
			}, []string{"level=INFO", "Replicas:5", "source=followed"}},
			{"a hint that is refused", func() {
				src := following(t, l)
				src.says(-5)
				src.cancel()
			}, []string{"level=WARN", "refused", "-5"}},
			{"a source that fails", func() {
				src := following(t, l)
				src.fails("no such host")
				src.cancel()
			}, []string{"level=WARN", "failed", "no such host"}},
			{"traffic", func() { l.Allow("k"); l.TryAcquire("k"); l.Stats() }, nil},
		} {
			log.Reset()
			c.do()
			line := log.String()
			if want := min(len(c.words), 1); strings.Count(line, "\n") != want {
				t.Errorf("%s: %d lines, want %d: %s", c.name, strings.Count(line, "\n"), want, line)
			}
			for _, w := range c.words {
				if !strings.Contains(line, w) {
					t.Errorf("%s: %q does not say %q", c.name, line, w)
				}
			}
		}
	})
}

func TestOptionsThatAreNone(t *testing.T) {
	l := limiterOf(t, Limit{InFlight: 1}, OnWait(nil), OnAdmit(nil), LeakCheck(nil), MaxHold(0), MaxWait(0),
		HintMaxAge(0))
	if p, err := l.Acquire(t.Context(), "k"); err != nil {
		t.Error(err)
	} else {
		p.Release()
	}
}
