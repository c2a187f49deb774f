package quotient

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
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
				[]string{"level=INFO", "limit set", `limit="in flight: 9" was="in flight: 4"`}},
			{"the same limit", func() { setLimit(t, l, Limit{InFlight: 9}) }, nil},
			{"a limit that is refused", func() { _ = l.SetLimit(Limit{InFlight: -9}) }, nil},
			{"another pool", func() { setReplicas(t, l, 3) },
				[]string{"level=INFO", "pool changed", "replicas=3 was=1 source=set"}},
			{"the same pool", func() { setReplicas(t, l, 3) }, nil},
			{"a limit of a key", func() { must(t, l.Override("k", &Limit{Deny: true}, 0)) },
				[]string{"level=INFO", "override set", "key=k limit=deny was=none"}},
			{"the same limit of a key", func() { must(t, l.Override("k", &Limit{Deny: true}, 0)) }, nil},
			{"until an end", func() { must(t, l.Override("k", &Limit{Deny: true}, time.Hour)) },
				[]string{"key=k limit=deny until=2000-01-01T01:00:00.000Z was=deny"}},
			{"and for good again", func() { must(t, l.Override("k", &Limit{Deny: true}, 0)) },
				[]string{"key=k limit=deny was=deny"}},
			{"none any more", func() { must(t, l.Override("k", nil, 0)) }, []string{"limit=none was=deny"}},
			{"none as before", func() { must(t, l.Override("k", nil, 0)) }, nil},
			{"a plan", func() { must(t, l.SetPlan("p", &Limit{InFlight: 5})) },
				[]string{"level=INFO", "plan set", `plan=p limit="in flight: 5" was=none`}},
			{"the same plan", func() { must(t, l.SetPlan("p", &Limit{InFlight: 5})) }, nil},
			{"no plan", func() { must(t, l.SetPlan("p", nil)) }, []string{`limit=none was="in flight: 5"`}},
			{"an ordinal", func() { must(t, l.SetPool(Pool{Replicas: 3, Ordinal: 2, Fixed: true}, 0)) },
				[]string{"replicas=3 was=3 ordinal=2 ordinal_was=0 fixed=true source=set"}},
			{"a weight", func() { must(t, l.SetPool(Pool{Replicas: 3, Weight: 2}, 0)) },
				[]string{"replicas=3 was=3 ordinal=0 ordinal_was=2 weight=2 weight_was=0 source=set"}},
			{"a dry run", func() { l.SetDryRun(true) }, []string{"level=INFO", "dry_run=true was=false"}},
			{"a dry run as before", func() { l.SetDryRun(true) }, nil},
			{"none", func() { l.SetDryRun(false) }, []string{"dry_run=false was=true"}},
			{"a hint", source(func(s *spoken) { s.says(5) }),
				[]string{"level=INFO", "replicas=5 was=3", "source=followed"}},
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

// A call that is not valid, or that can never be admitted, fails at once.
func TestBadOptionsFailAtOnce(t *testing.T) {
	limit := Limit{Rates: []Rate{perSecond(10, 5), tokensPerMinute(1000, 500)}, InFlight: 8}
	const bad, large = ReasonBadRequest, ReasonTooLarge
	for _, c := range []struct {
		name   string
		opts   []CallOption
		reason Reason
		words  string
	}{
		{"weight 0", []CallOption{Weight(0)}, bad, "Weight 0"},
		{"negative weight", []CallOption{Weight(-1000)}, bad, "Weight -1000"},
		{"smallest int", []CallOption{Weight(math.MinInt)}, bad, fmt.Sprint("Weight ", math.MinInt)},
		{"weight of unit none", []CallOption{Cost("", 0)}, bad, "Weight 0"},
		{"negative cost", []CallOption{Cost("tokens", -1)}, bad, "Cost tokens -1"},
		{"unknown unit", []CallOption{Cost("bytes", 1)}, bad, `Cost "bytes"`},
		{"an overflow", []CallOption{Cost("tokens", maxAmount), Cost("tokens", 1)}, bad, "Cost tokens"},
		{"above the burst", []CallOption{Weight(6)}, large, "second too_large"},
		{"above the burst of a cost", []CallOption{Cost("tokens", 501)}, large, "tokens too_large"},
		{"above the slots", []CallOption{Weight(9)}, large, "in-flight too_large"},
		{"the largest weight", []CallOption{Weight(maxAmount)}, large, "too_large"},
	} {
		row(t, c.name, func(t *testing.T) {
			l := mustNew(t, limit)
			words := strings.Fields(c.words)
			says(t, refusal("k", refusedFor(t, l, c.reason, "k", c.opts...)), words...)
			_, err := l.Acquire(t.Context(), "k", c.opts...)
			says(t, err, words...)
			is(t, "ErrLimited", errors.Is(err, ErrLimited), c.reason != ReasonBadRequest)
			is(t, "refusals", l.Stats().Refused[c.reason], 2)
			for _, n := range beyond {
				says(t, refusal("k", l.Check("k", Weight(n))), "Weight", fmt.Sprint(n))
			}
			wants(t, l, "k", 5) // nothing was taken
		})
	}
}

func TestOptionsOfACallAddUp(t *testing.T) {
	for _, c := range []struct {
		name             string
		opts             []CallOption
		requests, tokens float64 // left of 5 and 500
	}{
		{"nothing asked", nil, 4, 500},
		{"zero value", []CallOption{{}}, 4, 500},
		{"the last weight counts", []CallOption{Weight(4), Weight(2)}, 3, 500},
		{"costs add up", []CallOption{Cost("tokens", 100), Cost("tokens", 50)}, 4, 350},
		{"both", []CallOption{Cost("tokens", 100), Weight(3)}, 2, 400},
		{"a cost of nothing", []CallOption{Cost("tokens", 0)}, 4, 500},
	} {
		row(t, c.name, func(t *testing.T) {
			l := mustNew(t, Rates(perSecond(10, 5), tokensPerMinute(1000, 500)))
			took(t, l, "k", c.opts...)
			if got := tokensOf(t, l, "k"); got[0] != c.requests || got[1] != c.tokens {
				t.Errorf("left %v, want %v and %v", got, c.requests, c.tokens)
			}
		})
	}
}
