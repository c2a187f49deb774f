package quotient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-go/quotient/policy"
)

// spoken is a source that reports what a test makes it report.
type spoken struct {
	report func(Pool, error)
	ended  chan error // what Follow returned
	cancel context.CancelFunc
}

func (s *spoken) Watch(ctx context.Context, report func(Pool, error)) error {
	s.report = report
	<-ctx.Done()
	return ctx.Err()
}

func (s *spoken) says(replicas int) { s.report(Pool{Replicas: replicas}, nil) }

func (s *spoken) saysPool(p Pool) { s.report(p, nil) }

func (s *spoken) fails(text string) { s.report(Pool{}, errors.New(text)) }

func (s *spoken) stops() (err error) { s.cancel(); return <-s.ended }

// cancelled ends a source, and reports the error that Follow returned.
func (s *spoken) cancelled() error {
	if err := s.stops(); err != nil {
		return fmt.Errorf("Follow returned %w", err)
	}
	return nil
}

// each says what a source reports, a second after the other.
func (s *spoken) each(reports string) {
	for _, r := range reports {
		switch r {
		case 'F':
			s.fails("SERVFAIL")
		case 'f':
			s.fails("no such host")
		case '7', '8':
			s.fails("SERV" + string(r) + "FAIL")
		case 'R':
			s.says(0)
		case 'G':
			s.says(5)
		}
		time.Sleep(time.Second)
	}
}

// following returns a source that a limiter or a registry follows, in a bubble: to the end of a test, but a
// property has to cancel it.
func following(t rapid.TB, l interface {
	Follow(ctx context.Context, s Source) error
}) *spoken {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &spoken{ended: make(chan error, 1), cancel: cancel}
	if t, ok := t.(*testing.T); ok {
		t.Cleanup(cancel)
	}
	go func() { s.ended <- l.Follow(ctx, s) }()
	synctest.Wait()
	return s
}

// counted fails unless so many replicas share the limit.
func counted(t *testing.T, l *Limiter, n int) {
	t.Helper()
	is(t, "replicas at "+time.Now().Format(time.TimeOnly), l.Stats().Pool.Replicas, n)
}

func TestFollowRefusesNil(t *testing.T) {
	says(t, mustNew(t, Limit{}).Follow(t.Context(), nil), "Follow", "source", "nil")
}

// ends is a source that fails after ten seconds.
type ends struct{}

func (ends) Watch(ctx context.Context, _ func(Pool, error)) error {
	select {
	case <-time.After(10 * time.Second):
	case <-ctx.Done():
	}
	return errors.New("connection lost")
}

// isInForce fails unless so many replicas share the limit by the word of such a source, and calls are admitted
// unless the pool is awaited.
func isInForce(t *testing.T, l *Limiter, n int, source string) {
	t.Helper()
	synctest.Wait()
	p := l.Stats().Pool
	is(t, time.Now().Format(time.TimeOnly), fmt.Sprint(p.Replicas, " ", p.Source), fmt.Sprint(n, " ", source))
	if source != "set" {
		is(t, "until", p.Until.IsZero(), true)
	}
	permit, d := l.TryAcquire("probe")
	permit.Release()
	reason, words := ReasonNone, l.Explain("probe").String()
	if source == "awaited" {
		reason = ReasonPool
	}
	is(t, "refused for", d, Decision{OK: reason == ReasonNone, Reason: reason})
	is(t, "explained", strings.Contains(words, "the replica count is not known"), reason == ReasonPool)
	is(t, "explained, with what is left", strings.Contains(words, ": share "), reason != ReasonPool)
}

// plays has sources and operators speak to a limiter, in words: "says 4" is a report, "set 9 1m" is SetPool
// with a ttl, "is 4 followed" is what must be in force, and by whose word.
func plays(t *testing.T, l *Limiter, log *recorded, script string) {
	t.Helper()
	var src *spoken
	var waiter *call
	var until [2]time.Time // of the last two calls of SetPool
	for step := range strings.SplitSeq(script, ", ") {
		w := append(strings.Fields(step), "", "")
		n, _ := strconv.Atoi(w[1])
		d, _ := time.ParseDuration(w[len(w)-3])
		switch w[0] {
		case "follow":
			src = following(t, l)
		case "says":
			src.says(n)
		case "fails":
			src.fails("SERVFAIL")
		case "end":
			must(t, src.cancelled())
		case "breaks":
			says(t, l.Follow(t.Context(), ends{}), "connection lost")
		case "set":
			must(t, l.SetPool(Pool{Replicas: n}, d))
			until = [2]time.Time{until[1], l.Stats().Pool.Until}
			want := time.Time{}
			if d > 0 {
				want = time.Now().Add(d)
			}
			is(t, step, until[1].Equal(want), true)
		case "late": // the timer of a ttl goes off just as it is replaced
			l.ttlEnds(until[0])
		case "wait":
			time.Sleep(d)
		case "asks":
			waiter = asking(t, l, "k", Weight(2))
		case "served":
			waiter.admittedAfter(t, d)
		case "age":
			is(t, step, l.Stats().Pool.Age, d)
		case "version":
			is(t, step, l.Stats().Version, uint64(n))
		case "stops":
			text := strings.Join(log.take(), "\n")
			is(t, step, strings.Count(text, "WARN pool not known: nothing is admitted last="), n)
		case "is":
			isInForce(t, l, n, w[2])
		default:
			t.Fatalf("what is %q?", step)
		}
	}
}

// What a source reports and what SetPool sets, for how long each counts, and when nothing is admitted.
func TestPoolInForce(t *testing.T) {
	configured := func(n int, opts ...Option) Option { return together(append(opts, Replicas(n))...) }
	awaits := func(n int, d time.Duration) Option { return configured(n, AwaitPool(d)) }
	stops := AwaitPool(time.Minute) // it admits nothing while hints are old
	old := HintMaxAge(time.Minute)
	for _, c := range []struct {
		name   string
		opt    Option
		script string
	}{
		{"what is out of range, or fails, leaves the last good pool", configured(6),
			"follow, fails, says 0, is 6 configured, age 0s, says 4, says -2, says 1000001, fails, " +
				"wait 1h, is 4 followed, age 1h"},
		{"hints grow old", configured(6, old),
			"follow, says 4, wait 30s, says 4, wait 40s, fails, says 0, is 4 followed, " +
				"wait 19.999999999s, is 4 followed, wait 1ns, is 6 configured, says 4, is 4 followed"},
		{"hints of a source that ends again and again too", configured(9, HintMaxAge(25*time.Second)),
			"follow, says 4, end, breaks, breaks, breaks, breaks, is 9 configured"},
		{"a Follow that begins again holds down as before", together(),
			"follow, says 8, end, is 8 followed, follow, says 1, end, is 8 followed"},
		{"silence is not one replica", old,
			"follow, says 4, end, follow, wait 1h, is 4 followed, end, set 6, follow, wait 1h, " +
				"is 6 set"},

		{"SetPool with a ttl", configured(3),
			"set 6 1m, is 6 set, wait 59.999999999s, is 6 set, wait 1ns, is 3 configured, version 2"},
		{"a ttl holds against hints", configured(3, HoldDown(0)),
			"follow, says 4, is 4 followed, set 9 1m, says 12, is 9 set, says 5, is 9 set, wait 1m, " +
				"is 5 followed, version 2"},
		{"a ttl is replaced", configured(3),
			"set 6 1m, wait 30s, set 7 1m, late, wait 59s, is 7 set, wait 1s, is 3 configured, " +
				"set 6 1m, set 8, wait 1h, is 8 set, set 6 1m, wait 1m, is 3 configured"},
		{"the end of a ttl is not the whole limit", together(),
			"set 10, set 20 1m, wait 61s, is 10 set"},
		{"SetPool stays until the source says something new", together(),
			"follow, says 4, set 2, is 2 set, age 0s, wait 10s, says 4, is 2 set, wait 90s, says 4, " +
				"is 2 set, says 5, is 5 followed"},

		{"a source that never reports stops no replica for ever", awaits(5, 20*time.Second),
			"follow, asks, wait 1m, served 20s, is 5 configured"},
		{"nor does one that ends before HintMaxAge", awaits(9, 25*time.Second),
			"breaks, breaks, breaks, breaks, is 9 configured"},
		{"the wait counts from the first Follow, also while a ttl runs", awaits(3, time.Minute),
			"follow, fails, wait 40s, set 6 30s, wait 10s, end, follow, fails, wait 30s, " +
				"is 3 configured"},
		{"the wait is back when a ttl ends, but not after SetPool without one", awaits(3, time.Hour),
			"set 6 1m, wait 1s, is 6 set, wait 1m, is 3 awaited, set 10, wait 1m, is 10 set, " +
				"set 20 1m, wait 2h, is 10 set"},

		{"a stop begins with old hints and ends with a new one", stops,
			"is 1 awaited, follow, wait 1h, is 1 awaited, says 2, is 2 followed, wait 59.999999999s, " +
				"is 2 followed, wait 1ns, is 2 awaited, fails, wait 1h, is 2 awaited, says 2, " +
				"is 2 followed, stops 1"},
		{"SetPool ends a stop, and it is back with the end of a ttl", stops,
			"follow, says 2, wait 2m, set 4 1m, is 4 set, wait 1m, is 2 awaited, set 4, wait 1h, " +
				"is 4 set, says 3, is 3 followed, wait 1m, is 3 awaited"},
		{"hints also grow old when Follow has ended, or a source ends", stops,
			"follow, says 2, wait 30s, end, wait 29.999999999s, is 2 followed, wait 1ns, " +
				"is 2 awaited, follow, says 2, is 2 followed, end, breaks, breaks, breaks, breaks, " +
				"breaks, is 2 followed, wait 10s, is 2 awaited"},
		{"a stop goes by the last hint", stops,
			"follow, says 2, end, follow" + strings.Repeat(", wait 50s, says 2, is 2 followed", 10)},
	} {
		row(t, c.name, func(t *testing.T) {
			log := recording()
			plays(t, mustNew(t, Limit{InFlight: 100}, c.opt, Logger(slog.New(log))), log, c.script)
		})
	}
}

// Nothing of a Follow is left when its context has ended.
func TestFollowEndsWithItsContext(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := mustNew(t, Limit{InFlight: 100}, HintMaxAge(time.Minute))
		// 4 would count in half a minute, and 9 is from a source that does not end with its context.
		plays(t, l, nil, "follow, says 8, says 4, end, wait 1h, is 8 followed, says 9, is 8 followed")
		is(t, "reports", l.Stats().Pool.Reports, 2)
	})
}

func TestFollowAndAwait(t *testing.T) {
	// Each key begins with its share of the first pool. A call from before the stop goes on too, and so do a key
	// with a limit of its own and one of a plan. The end of a stop brings no burst.
	row(t, "await pool starts full", func(t *testing.T) {
		l := mustNew(t, Rates(PerHour(1000)), AwaitPool(time.Minute),
			Plans(map[string]Limit{"paid": Rates(PerHour(5000))}))
		own := Rates(PerHour(3000))
		must(t, l.Override("own", &own, 0))
		refusedFor(t, l, ReasonPool, "asked before")
		src := following(t, l)
		src.says(2)
		upTo(t, l, "asked before", 9999, 500)
		upTo(t, l, "new", 9999, 500)
		upTo(t, l, "own", 9999, 1500)
		upTo(t, l, "tenant", 9999, 2500, Plan("paid"))
		limit := Rates(PerHour(3600))
		must(t, l.Override("new", &limit, 0))
		upTo(t, l, "new", 9999, 0)
		time.Sleep(2 * time.Minute)
		refusedFor(t, l, ReasonPool, "new")
		src.says(2)
		upTo(t, l, "asked before", 9999, 1)
		upTo(t, l, "later", 9999, 1)
		must(t, src.cancelled())
	})
	// A limit that refused everything when the pool became known keeps nothing of the wait: keys begin with the
	// rules of the limit that comes next.
	row(t, "await pool denied", func(t *testing.T) {
		limit := Rates(PerHour(1000))
		l := mustNew(t, limit, AwaitPool(time.Hour))
		refusedFor(t, l, ReasonPool, "asked before")
		must(t, l.SetLimit(Limit{Deny: true}))
		setReplicas(t, l, 2)
		refusedFor(t, l, ReasonDenied, "asked before")
		must(t, l.SetLimit(limit))
		upTo(t, l, "asked before", 9999, 500)
		upTo(t, l, "new", 9999, 500)
	})
	// Callers wait through a stop, and those that hold a slot keep it.
	row(t, "waiters wait through a stop", func(t *testing.T) {
		l := mustNew(t, Limit{InFlight: 4}, AwaitPool(time.Minute))
		src := following(t, l)
		src.says(2)
		a, b := took(t, l, "k"), took(t, l, "k")
		c, d := asking(t, l, "k"), asking(t, l, "k", Weight(2))
		time.Sleep(2 * time.Minute)
		isInForce(t, l, 2, "awaited")
		a.Release()
		b.Release()
		c.waits(t)
		d.waits(t)
		src.says(2)
		c.admittedAfter(t, 2*time.Minute)
		d.waits(t)
		c.permit.Release()
		d.admittedAfter(t, 2*time.Minute)
	})
}

// The only report of a source that reports once does not grow old, however often it is followed.
func TestWhatDoesNotGrowOld(t *testing.T) {
	says5 := Pool{Replicas: 5, Ordinal: 2, Fixed: true}
	t.Setenv("QUOTIENT_REPLICAS", "5")
	t.Setenv("QUOTIENT_ORDINAL", "1")
	for name, src := range map[string]Source{
		"static":   steady(says5),
		"env":      Env(),
		"numbered": FixedOrdinal(2, steady(Pool{Replicas: 5})),
	} {
		row(t, name, func(t *testing.T) {
			l := mustNew(t, Rates(PerSecond(100)), Replicas(9), AwaitPool(time.Minute))
			for range 2 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				must(t, l.Follow(ctx, src))
				cancel()
				is(t, "after an hour", l.Stats().Pool.Pool, says5)
				time.Sleep(time.Hour)
				is(t, "an hour after Follow has ended", l.Stats().Pool.Pool, says5)
			}
		})
	}
}

func TestAwaitPoolNeedsAnEnd(t *testing.T) {
	_, err := New(Rates(PerSecond(10)), AwaitPool(0))
	says(t, err, "AwaitPool: maxAge", "0s")
	_, err = New(Limit{}, AwaitPool(time.Minute), HintMaxAge(0))
	says(t, err, "HintMaxAge", "AwaitPool")
}

// No caller waits where nothing is to be shared.
func TestAwaitPoolWithoutLimit(t *testing.T) {
	wrong(t, !mustNew(t, Limit{}, Replicas(9), AwaitPool(time.Minute)).Allow("k"), "refused")
}

// Nothing passes, whatever the limit is made of, before a source or SetPool brings the size of the pool.
func TestAwaitPool(t *testing.T) {
	thousand := PerSecond(1000)
	for _, limit := range []Limit{
		Rates(thousand),
		Rates(PerSecond(1e9)), // enough for the largest pool
		{InFlight: 10},
		{Rates: []Rate{thousand}, InFlight: 10},
		Rates(aligned(1000, time.Second)),
		Rates(thousand, Rate{Unit: "tokens", Events: 1000, Per: time.Second}),
	} {
		row(t, limit, func(t *testing.T) {
			l := mustNew(t, limit, Replicas(9), AwaitPool(time.Minute), AtLeastOne())
			src := following(t, l)
			time.Sleep(59 * time.Second)
			isInForce(t, l, 9, "awaited")
			wants(t, l, "k", 0)
			upTo(t, l, "k", 5, 0)
			is(t, "Check", l.Check("k").Reason, ReasonPool)
			waiter := asking(t, l, "k", Weight(2)) // above the share too, which is not known yet
			src.says(2)
			time.Sleep(time.Second) // a window that is open has nothing for it
			if !waiter.ended() || waiter.err != nil {
				t.Errorf("a second after the first hint: ended %v, %v", waiter.ended(), waiter.err)
			}
		})
	}
}

// What was not admitted while the pool was awaited is not saved up.
func TestAwaitPoolStartsEmpty(t *testing.T) {
	row(t, "at the start", func(t *testing.T) {
		l := mustNew(t, Rates(PerSecond(1000)), AwaitPool(time.Hour), StartEmpty())
		time.Sleep(30 * time.Minute)
		setReplicas(t, l, 4)
		_, n := l.TryAcquireUpTo("k", 1000)
		within(t, "at once", 0, 2, n)
		time.Sleep(100 * time.Millisecond)
		_, n = l.TryAcquireUpTo("other", 1000)
		within(t, "after .1 s at 250/s", 24, 27, n)
	})
	row(t, "in a stop", func(t *testing.T) {
		l := mustNew(t, Rates(perSecond(100, 100)), AwaitPool(time.Minute))
		src := following(t, l)
		src.says(1)
		time.Sleep(time.Hour)
		src.says(1)
		_, n := l.TryAcquireUpTo("k", 1000)
		within(t, "at once after a stop", 0, 2, n)
	})
}

// While the pool is awaited no controller is called, so no timer is set for when one wants to be: it would
// go off again and again.
func TestNoTimerSpinsWhileThePoolIsAwaited(t *testing.T) {
	for mode := range policy.RampGoBack + 1 {
		row(t, mode, func(t *testing.T) {
			ramp := policy.Ramp{Mode: mode, Start: .2, Over: 5 * time.Second, CoolDown: 2 * time.Second}
			l := mustNew(t, Limit{InFlight: 1}, Policy(ramp), BeyondShare(), AwaitPool(time.Second), Replicas(2))
			must(t, l.SetPool(Pool{Replicas: 1}, 10*time.Second))
			time.Sleep(time.Second)
			took(t, l, "k")
			c := asking(t, l, "k")
			time.Sleep(time.Minute) // the pool is awaited again
			if n := l.counted().Fired; n > 100 {
				t.Errorf("the timer has gone off %d times in a minute", n)
			}
			c.gaveUp(t)
		})
	}
}

func TestSetPoolRefuses(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := mustNew(t, Rates(perSecond(6, 6)), Replicas(3))
		for _, p := range []Pool{{}, {Replicas: -1}, {Replicas: math.MaxInt}, {Replicas: 2, Ordinal: 3}} {
			says(t, l.SetPool(p, 0), "Pool.")
		}
		says(t, l.SetPool(Pool{Replicas: 3}, -time.Second), "SetPool", "ttl", "-1s")
		says(t, l.SetPool(Pool{Replicas: -3}, time.Second), "Replicas", "-3")
		isInForce(t, l, 3, "configured")
		wants(t, l, "k", 2)
		if s := l.Stats(); s.Pool.Rejected != 5 || s.Version != 0 {
			t.Errorf("got %+v", s)
		}
	})
}

// recorded is a handler that keeps the lines of a log, with the second of each.
type recorded struct {
	began time.Time
	with  []slog.Attr
	log   *lines
}

type lines struct {
	mu  sync.Mutex
	all []string
}

func recording() *recorded { return &recorded{began: time.Now(), log: new(lines)} }

func (r *recorded) Enabled(context.Context, slog.Level) bool { return true }

func (r *recorded) Handle(_ context.Context, rec slog.Record) error {
	line := fmt.Sprintf("%v %v %s", time.Since(r.began), rec.Level, rec.Message)
	add := func(a slog.Attr) bool { line += " " + a.String(); return true }
	for _, a := range r.with {
		add(a)
	}
	rec.Attrs(add)
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	r.log.all = append(r.log.all, line)
	return nil
}

func (r *recorded) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &recorded{r.began, append(r.with[:len(r.with):len(r.with)], attrs...), r.log}
}

func (r *recorded) WithGroup(string) slog.Handler { return r }

// take returns the lines since it was last called.
func (r *recorded) take() []string {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	all := r.log.all
	r.log.all = nil
	return all
}

// wrote fails unless the lines are these.
func (r *recorded) wrote(t *testing.T, want ...string) {
	t.Helper()
	got, wanted := strings.Join(r.take(), "\n"), strings.Join(want, "\n")
	wrong(t, got != wanted, "the log says\n%s\nwant\n%s", got, wanted)
}

// Each line of a limiter that has a name says whose it is.
func TestNameIsLogged(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		var r Registry
		log := recording()
		logger := Logger(slog.New(log))
		limit := Rates(PerHour(1))
		byItself, err := r.Limiter("api", limit, logger)
		must(t, err)
		web, err := r.Limiter("web", limit, logger)
		must(t, err)
		own := mustNew(t, limit, Logger(slog.New(log).With("limiter", "own")))
		nameless := mustNew(t, limit, logger)
		must(t, r.Add("added", nameless))
		limiters := map[string]*Limiter{"api": byItself, "web": web, "own": own, "": nameless}
		for want, l := range limiters {
			saysEverything(t, l)
			all := log.take()
			wrong(t, len(all) < 10, "%q: %d lines", want, len(all))
			for _, line := range all {
				names, right := strings.Count(line, " limiter="), strings.Count(line, " limiter="+want+" ")
				wrong(t, names != min(len(want), 1) || right != names, "%q is not named: %s", want, line)
				wrong(t, strings.ContainsAny(line, "[{"), "a value of Go: %s", line)
			}
		}
	})
}

// Without a Logger the default log has what keeps the pool from being known, and nothing else. Where a Logger
// discards it, nobody has.
func TestFailuresAreSeenWithoutALogger(t *testing.T) {
	for name, opts := range map[string][]Option{
		"": nil, "api": {called("api")}, "discarded": {called("api"), Logger(slog.New(slog.DiscardHandler))},
	} {
		row(t, name, func(t *testing.T) {
			log, before := recording(), slog.Default()
			slog.SetDefault(slog.New(log))
			defer slog.SetDefault(before)
			l, err := build(Rates(PerHour(1)), append(opts, AwaitPool(10*time.Second)))
			must(t, err)
			src := following(t, l)
			src.fails("SERVFAIL")
			src.says(5)
			setLimit(t, l, Rates(PerHour(2)))
			time.Sleep(10 * time.Second)
			must(t, src.cancelled())
			says(t, l.Follow(t.Context(), ends{}), "connection lost")
			want := saying("0s F 1", "0s back 1 0s")
			want = append(want, "10s WARN pool not known: nothing is admitted last=5 source=awaited",
				"20s WARN source of pool hints ended error=connection lost")
			got := strings.Join(log.take(), "\n")
			if name == "api" {
				is(t, "lines with the name", strings.Count(got, " limiter=api"), len(want))
				got = strings.ReplaceAll(got, " limiter=api", "")
			} else if name == "discarded" {
				want = nil
			}
			is(t, "lines", got, strings.Join(want, "\n"))
		})
	}
}

// A limiter that admits nothing because it awaits its pool says so once, also where nobody follows a source, and says
// when that ends.
func TestAwaitedPoolIsLogged(t *testing.T) {
	const awaited, known = "WARN pool not known: nothing is admitted ", "WARN pool known: calls are admitted again "
	none := together()
	set := func(t *testing.T, l *Limiter) { must(t, l.SetPool(Pool{Replicas: 3}, 0)) }
	calls := func(_ *testing.T, l *Limiter) { l.Allow("k"); l.Allow("k") }
	follow := func(t *testing.T, l *Limiter) { following(t, l) }
	replicas := func(n int) func(*testing.T, *Limiter) {
		return func(t *testing.T, l *Limiter) { following(t, l).says(n) }
	}
	for _, c := range []struct {
		name string
		opt  Option
		do   func(*testing.T, *Limiter)
		want []string // until two minutes later; then the pool is set
	}{
		{"nobody follows", none, calls, []string{"2s " + awaited + "source=awaited", "2m0s " + known}},
		{"without a call", none, func(*testing.T, *Limiter) {}, []string{"2m0s INFO pool changed "}},
		{"a source is silent", none, follow, []string{"2s " + awaited + "source=awaited", "2m0s " + known}},
		{"it fails", none, func(t *testing.T, l *Limiter) { following(t, l).fails("no such host") },
			[]string{"0s WARN pool hint failed error=no such host failures=1", "2s " + awaited + "source=awaited",
				"2m0s " + known}},
		{"it is silent after a report", none, replicas(2), []string{"0s INFO pool changed replicas=2 source=followed",
			"1m0s " + awaited + "last=2 source=awaited", "2m0s " + known}},
		{"it is silent, and a pool is configured", Replicas(3), follow, []string{"2s " + awaited + "source=awaited",
			"1m0s " + known + "replicas=3 source=configured"}},
		{"a report comes soon", Replicas(3), replicas(3), []string{"0s INFO pool changed replicas=3 source=followed"}},
		{"it is set at once", none, set,
			[]string{"0s INFO pool changed replicas=3 source=set"}},
	} {
		row(t, c.name, func(t *testing.T) {
			log := recording()
			l := mustNew(t, Limit{InFlight: 3}, AwaitPool(time.Minute), c.opt, Logger(slog.New(log)))
			c.do(t, l)
			time.Sleep(2 * time.Minute)
			set(t, l)
			for i, w := range c.want {
				if strings.HasSuffix(w, known) || strings.HasSuffix(w, "changed ") {
					c.want[i] += "replicas=3 source=set"
				}
			}
			log.wrote(t, c.want...)
		})
	}
}

// saysEverything makes a limiter write each of its lines.
func saysEverything(t *testing.T, l *Limiter) {
	setLimit(t, l, Rates(PerHour(2)))
	l.TryAcquire("k", Plan("gold"), Weight(1))
	must(t, l.Override("k", &Limit{InFlight: 1}, 0))
	must(t, l.SetPool(Pool{Replicas: 4}, time.Second))
	time.Sleep(2 * time.Second)
	l.SetDryRun(true)
	for range 9 {
		l.Allow("busy")
	}
	time.Sleep(time.Second)
	l.SetDryRun(false)
	src := following(t, l)
	src.says(5)
	src.says(-5)
	src.fails("SERVFAIL")
	src.says(5)
	must(t, src.cancelled())
	wrong(t, l.Follow(t.Context(), FixedOrdinal(0, steady(Pool{Replicas: 3}))) == nil, "no error")
}

// saying writes lines out: "60s F 59" is a failure, R a refusal, and "61s back 60 59s" the end of sixty.
func saying(short ...string) (lines []string) {
	const refusal = "quotient: Pool.Replicas: 0 is not between 1 and 1000000"
	for _, s := range short {
		w := strings.Fields(s)
		switch w[1] {
		case "F":
			s = w[0] + " WARN pool hint failed error=SERVFAIL failures=" + w[2]
		case "f":
			s = w[0] + " WARN pool hint failed error=no such host failures=" + w[2]
		case "R":
			s = w[0] + " WARN pool hint refused error=" + refusal + " failures=" + w[2]
		case "back":
			s = w[0] + " INFO pool hints are back failures=" + w[2] + " lasted=" + w[3]
		}
		lines = append(lines, s)
	}
	return lines
}

// A source that fails again and again is one line at once, one a minute, and one when it is good again.
func TestHintFailuresAreDamped(t *testing.T) {
	many := strings.Repeat
	for name, c := range map[string]struct {
		reports string // one a second
		want    []string
	}{
		"good all the time": {many("G", 300), nil},
		"once":              {"GFGG", saying("1s F 1", "2s back 1 1s")},
		"for long": {many("F", 150) + "G",
			saying("0s F 1", "1m0s F 60", "2m0s F 60", "2m30s back 150 2m30s")},
		"of both kinds": {"FRRF" + many("FR", 60) + "G",
			saying("0s F 1", "1s R 1", "1m0s F 30", "1m1s R 30", "2m0s F 30", "2m1s R 30",
				"2m4s back 124 2m4s")},
		"again, much later": {"F" + many("G", 99) + "FG",
			saying("0s F 1", "1s back 1 1s", "1m40s F 1", "1m41s back 1 1s")},
		"a relapse": {"FGF" + many("G", 70), saying("0s F 1", "1s back 1 1s", "2s F 1", "1m2s back 2 3s")},
		"now and then": {many("GF", 90),
			saying("1s F 1", "2s back 1 1s", "3s F 1", "1m3s F 30", "2m3s F 30")},
		"with another text": {"FfFfFf" + many("f", 60) + "G",
			saying("0s F 1", "1s f 1", "2s F 1", "3s f 1", "4s F 1", "1m4s f 60", "1m6s back 66 1m6s")},
		"with other digits": {"F78G", saying("0s F 1", "3s back 3 3s")},
		"now and then, then never": {many("FG", 31) + many("G", 60),
			saying("0s F 1", "1s back 1 1s", "2s F 1", "2m0s back 31 1m1s")},
	} {
		row(t, name, func(t *testing.T) {
			log := recording()
			l := mustNew(t, Limit{}, Replicas(5), Logger(slog.New(log)))
			src := following(t, l)
			src.each(c.reports)
			log.wrote(t, c.want...)
			must(t, src.cancelled())
		})
	}
}

// A limit of fewer slots than replicas is warned of, whatever brings it.
func TestLogsThatNoSlotIsLeft(t *testing.T) {
	few, rate := Limit{InFlight: 20}, Rates(PerSecond(1))
	plan := Plans(map[string]Limit{"paid": few})
	pool := func(n int) func(*Limiter) error {
		return func(l *Limiter) error { return l.SetPool(Pool{Replicas: n}, 0) }
	}
	limit := func(l *Limiter) error { return l.SetLimit(few) }
	setPlan := func(l *Limiter) error { return l.SetPlan("p", &few) }
	await, many := AwaitPool(time.Hour), Replicas(21)
	for name, tt := range map[string]struct {
		limit Limit
		opt   Option
		do    func(*Limiter) error
		want  string
	}{
		"the pool grows": {few, Replicas(1), pool(21), "refused\" in_flight=20"},
		"it is the same": {few, Replicas(10), pool(10), ""},
		"as many":        {Limit{InFlight: 21}, Replicas(1), pool(21), ""},
		"at least one":   {few, AtLeastOne(), pool(21), ""},
		"no slots":       {rate, Replicas(1), pool(21), ""},
		"of a plan":      {rate, plan, pool(21), "plan=paid in_flight=20"},
		"the pool comes": {few, await, pool(21), "in_flight=20"},
		"from the start": {few, many, nil, "in_flight=20"},
		"a limit":        {Limit{}, many, limit, "in_flight=20"},
		"a plan":         {Limit{}, many, setPlan, "plan=p in_flight=20"},
		"awaited":        {few, await, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var log strings.Builder
			l := mustNew(t, tt.limit, tt.opt, Logger(slog.New(slog.NewTextHandler(&log, nil))))
			if tt.do != nil {
				must(t, tt.do(l))
			}
			is(t, "warnings", strings.Count(log.String(), "no slot here"), min(1, len(tt.want)))
			says(t, errors.New(log.String()), tt.want)
			is(t, "end of a wait", strings.Contains(log.String(), "replicas=21 source=set"), name == "the pool comes")
		})
	}
}
