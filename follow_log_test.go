package quotient

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
)

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
	if got != wanted {
		t.Errorf("the log says\n%s\nwant\n%s", got, wanted)
	}
}

// Each line of a limiter that has a name says whose it is.
func TestNameIsLogged(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		var r Registry
		log := recording()
		logger := Logger(slog.New(log))
		limit := rated(PerHour(1))
		byItself, err := r.Limiter("api", limit, logger)
		must(t, err)
		web, err := r.Limiter("web", limit, logger)
		must(t, err)
		own := limiterOf(t, limit, Logger(slog.New(log).With("limiter", "own")))
		nameless := limiterOf(t, limit, logger)
		must(t, r.Add("added", nameless))
		limiters := map[string]*Limiter{"api": byItself, "web": web, "own": own, "": nameless}
		for want, l := range limiters {
			saysEverything(t, l)
			all := log.take()
			if len(all) < 10 {
				t.Errorf("%q: %d lines", want, len(all))
			}
			for _, line := range all {
				names, right := strings.Count(line, " limiter="), strings.Count(line, " limiter="+want+" ")
				if names != min(len(want), 1) || right != names {
					t.Errorf("%q is not named: %s", want, line)
				}
			}
		}
	})
}

// saysEverything makes a limiter write each of its lines.
func saysEverything(t *testing.T, l *Limiter) {
	setLimit(t, l, rated(PerHour(2)))
	must(t, l.Override("k", &Limit{InFlight: 1}))
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
	if l.Follow(t.Context(), FixedOrdinal(0, steady(Pool{Replicas: 3}))) == nil {
		t.Error("no error")
	}
}

// saying writes lines out: "60s F 59" is a failure, R a refusal, and "61s back 60 59s" the end of sixty.
func saying(short ...string) (lines []string) {
	const refusal = "quotient: Pool.Replicas: 0 is not between 1 and 1000000"
	for _, s := range short {
		w := strings.Fields(s)
		switch w[1] {
		case "F":
			s = w[0] + " WARN pool hint failed error=SERVFAIL failures=" + w[2]
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
		"now and then, then never": {many("FG", 31) + many("G", 60),
			saying("0s F 1", "1s back 1 1s", "2s F 1", "2m0s back 31 1m1s")},
	} {
		row(t, name, func(t *testing.T) {
			log := recording()
			l := limiterOf(t, Limit{}, Replicas(5), Logger(slog.New(log)))
			src := following(t, l)
			src.each(c.reports)
			log.wrote(t, c.want...)
			must(t, src.cancelled())
		})
	}
}

// A handler that logs a hint may ask for Stats.
func TestHintsAreLoggedWithoutALock(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		var l *Limiter
		l = limiterOf(t, Limit{}, Logger(slog.New(lookingHandler{slog.DiscardHandler, &l})))
		src := following(t, l)
		src.each("FRG")
		must(t, src.cancelled())
	})
}

// A log handler that looks at the limiter.
type lookingHandler struct {
	slog.Handler
	l **Limiter
}

func (h lookingHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h lookingHandler) Handle(context.Context, slog.Record) error {
	if (*h.l) != nil && !(*h.l).mu.TryLock() {
		panic("Limiter.mu is held while the user's handler runs: l.Stats() or l.Stats().Pool.Pool here " +
			"hangs for ever")
	}
	(*h.l).mu.Unlock()
	return nil
}

func TestLogHandlerMayLook(t *testing.T) {
	var l *Limiter
	l = limiterOf(t, rated(PerSecond(10)), Logger(slog.New(lookingHandler{slog.DiscardHandler, &l})))
	defer func() {
		if r := recover(); r != nil {
			t.Error(r)
		}
	}()
	_ = l.SetPool(Pool{Replicas: 2}, 0)
}

// A source that ends before its time is logged: its program may not look at Follow's error.
func TestFollowLogsASourceThatEnds(t *testing.T) {
	var log strings.Builder
	l := limiterOf(t, Limit{}, Logger(slog.New(slog.NewTextHandler(&log, nil))))
	if l.Follow(t.Context(), FixedOrdinal(0, steady(Pool{Replicas: 3}))) == nil ||
		!strings.Contains(log.String(), "FixedOrdinal") {
		t.Errorf("the log says %q", log.String())
	}
}

// TestLogsThatNoSlotIsLeft checks that a limit of fewer slots than replicas is warned of, whatever brings
// it.
func TestLogsThatNoSlotIsLeft(t *testing.T) {
	few, plan := Limit{InFlight: 20}, Plans(map[string]Limit{"paid": {InFlight: 20}})
	ten := func(l *Limiter) error { return l.SetPool(Pool{Replicas: 10}, 0) }
	many := func(l *Limiter) error { return l.SetPool(Pool{Replicas: 21}, 0) }
	for name, tt := range map[string]struct {
		limit Limit
		opts  []Option
		do    func(*Limiter) error
		want  string
	}{
		"the pool grows": {few, nil, many, "refused\" in_flight=20"},
		"it is the same": {few, []Option{Replicas(10)}, ten, ""},
		"as many":        {Limit{InFlight: 21}, nil, many, ""},
		"at least one":   {few, []Option{AtLeastOne()}, many, ""},
		"no slots":       {Rates(PerSecond(1)), nil, many, ""},
		"of a plan":      {Rates(PerSecond(1)), []Option{plan}, many, "plan=paid in_flight=20"},
		"the pool comes": {few, []Option{AwaitPool(), HintMaxAge(time.Hour)}, many, "in_flight=20"},
		"from the start": {few, []Option{Replicas(21)}, func(*Limiter) error { return nil }, "in_flight=20"},
		"a limit": {Limit{}, []Option{Replicas(21)}, func(l *Limiter) error { return l.SetLimit(few) },
			"in_flight=20"},
		"a plan": {Limit{}, []Option{Replicas(21)},
			func(l *Limiter) error { return l.SetPlan("p", &few) }, "plan=p in_flight=20"},
		"awaited": {few, []Option{AwaitPool(), HintMaxAge(time.Hour)},
			func(*Limiter) error { return nil }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var log strings.Builder
			l := limiterOf(t, tt.limit, append(tt.opts, Logger(slog.New(slog.NewTextHandler(&log, nil))))...)
			must(t, tt.do(l))
			n := strings.Count(log.String(), "no slot here")
			if want := min(1, len(tt.want)); n != want || !strings.Contains(log.String(), tt.want) {
				t.Errorf("warned %d times, want %d with %q: %s", n, want, tt.want, log.String())
			}
			if name == "the pool comes" && !strings.Contains(log.String(), `old="not known"`) {
				t.Errorf("the end of the wait is not logged: %s", log.String())
			}
		})
	}
}
