package quotient

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestOptionsRefuseBadValues(t *testing.T) {
	for _, c := range []struct {
		opt   Option
		words []string
	}{
		{MaxKeys(0), []string{"MaxKeys", "0"}},
		{MaxKeys(-1), []string{"MaxKeys", "-1"}},
		{MaxKeys(maxKeys + 1), []string{"MaxKeys", "1073741825"}},
		{MaxWait(-1), []string{"MaxWait", "-1ns"}},
		{MaxWaiting(-1, 0), []string{"MaxWaiting for a key", "-1"}},
		{MaxWaiting(0, -2), []string{"MaxWaiting in total", "-2"}},
		{MaxHold(-time.Second), []string{"MaxHold", "-1s"}},
		{Policy(nil), []string{"Policy"}},
		{Logger(nil), []string{"Logger"}},
		{StartPool(Pool{}), []string{"Pool.Replicas", "0"}},
		{StartPool(Pool{Replicas: 2, Ordinal: 3}), []string{"Pool.Ordinal", "3"}},
		{HoldDown(-1), []string{"HoldDown", "-1ns"}},
		{HintMaxAge(-1), []string{"HintMaxAge", "-1ns"}},
	} {
		l, err := New(Limit{}, c.opt)
		is(t, "a limiter beside an error", l, nil)
		says(t, err, append(c.words, "quotient: ")...)
	}
}

func TestOptionsThatAreNone(t *testing.T) {
	l := mustNew(t, Limit{InFlight: 1}, OnAdmit(nil), MaxHold(0), MaxWait(0),
		HintMaxAge(0))
	p, err := l.Acquire(t.Context(), "k")
	must(t, err)
	p.Release()
}

// The log has one line for each fact that an operator should see, with old and new values.
func TestLogger(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		var log strings.Builder
		l := mustNew(t, Limit{InFlight: 4}, Logger(slog.New(slog.NewTextHandler(&log, nil))))
		source := func(tells func(*spoken)) func() {
			return func() {
				src := following(t, l)
				tells(src)
				src.cancel()
			}
		}
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
			{"a hint", source(func(s *spoken) { s.says(5) }),
				[]string{"level=INFO", "Replicas:5", "source=followed"}},
			{"a hint that is refused", source(func(s *spoken) { s.says(-5) }),
				[]string{"level=WARN", "refused", "-5"}},
			{"a source that fails", source(func(s *spoken) { s.fails("no such host") }),
				[]string{"level=WARN", "failed", "no such host"}},
			{"traffic", func() { l.Allow("k"); l.TryAcquire("k"); l.Stats() }, nil},
		} {
			log.Reset()
			c.do()
			is(t, c.name, strings.Count(log.String(), "\n"), min(len(c.words), 1))
			says(t, errors.New(log.String()), c.words...)
		}
	})
}
