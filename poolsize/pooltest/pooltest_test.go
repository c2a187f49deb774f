package pooltest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quotient-go/quotient"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// model is a world in memory and the source that looks at it. The zero value of each fault is off.
type model struct {
	mu      sync.Mutex
	n       int
	broken  bool
	garbage bool
	watches int
	one     sync.Mutex // held by the Watch that may work, for blocksSecond

	leaks, late, twice, guesses, ignoresContext, hangsBroken bool
	forgives, keepsQuiet, frozen, trusts, invalid            bool

	weight int
	// in place of the context's
	returns                                            error
	onlyOnce, blocksSecond, refusesSecond, refusesBoth bool
	// ends what a fault has left behind
	released chan struct{}
}

var errBroken, errBusy = errors.New("broken"), errors.New("busy")

func (m *model) look() (quotient.Pool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.broken && m.guesses:
		return quotient.Pool{Replicas: 1}, nil
	case m.broken && m.keepsQuiet:
		return quotient.Pool{Replicas: m.n}, nil
	case m.broken:
		return quotient.Pool{}, errBroken
	case m.garbage && m.trusts:
		return quotient.Pool{Replicas: 9}, nil
	case m.garbage:
		return quotient.Pool{Replicas: -1}, nil
	case m.invalid:
		return quotient.Pool{Replicas: m.n, Ordinal: m.n + 1}, nil
	}
	return quotient.Pool{Replicas: m.n, Weight: m.weight}, nil
}

// admit counts a Watch and reports whether it may go on.
func (m *model) admit() error {
	m.mu.Lock()
	m.watches++
	again := m.watches > 1
	m.mu.Unlock()
	switch {
	case m.onlyOnce && again, m.refusesBoth:
		return errBusy
	case m.refusesSecond && !m.one.TryLock():
		return errBusy
	case m.blocksSecond:
		m.one.Lock()
	}
	return nil
}

func (m *model) Watch(ctx context.Context, report func(quotient.Pool, error)) error {
	if err := m.admit(); err != nil {
		return err
	}
	if m.blocksSecond || m.refusesSecond {
		defer m.one.Unlock()
	}
	if m.leaks {
		go func() { <-m.released }()
	}
	if m.late {
		defer time.AfterFunc(5*time.Millisecond, func() { report(quotient.Pool{Replicas: 3}, nil) })
	}
	done := ctx.Done()
	if m.ignoresContext {
		done = m.released
	}
	if m.twice {
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() { m.watch(ctx.Done(), report) })
	}
	m.watch(done, report)
	if m.returns != nil {
		return m.returns
	}
	return ctx.Err()
}

func (m *model) watch(done <-chan struct{}, report func(quotient.Pool, error)) {
	p, err := m.look()
	good, failed := p, false
	for {
		report(p, err)
		if err != nil && m.hangsBroken {
			done = m.released
		}
		select {
		case <-done:
			return
		case <-time.After(time.Millisecond):
		}
		if m.frozen {
			continue
		}
		if p, err = m.look(); err == nil {
			good = p
		} else if m.forgives && failed {
			p, err = good, nil
		}
		failed = failed || err != nil
	}
}

// world is a world of the model.
func (m *model) world(t *testing.T) World {
	m.released = make(chan struct{})
	t.Cleanup(func() { close(m.released) })
	set := func(f func()) { m.mu.Lock(); defer m.mu.Unlock(); f() }
	return World{
		Source:  func(testing.TB) quotient.Source { return m },
		Set:     func(_ testing.TB, n int) { set(func() { m.n = n }) },
		Break:   func(testing.TB) { set(func() { m.broken = true }) },
		Garbage: func(testing.TB) { set(func() { m.garbage = true }) },
		Heal:    func(testing.TB) { set(func() { m.broken, m.garbage = false, false }) },
	}
}

func TestModelPasses(t *testing.T) { Run(t, (&model{}).world(t)) }
func TestWeightedModelPasses(t *testing.T) {
	w := (&model{weight: 2}).world(t)
	w.Weight = 2
	Run(t, w)
}

func TestRefusingModelPasses(t *testing.T) { Run(t, (&model{refusesSecond: true}).world(t)) }

// always is a source that says one pool, once.
type always quotient.Pool

func (a always) Watch(ctx context.Context, report func(quotient.Pool, error)) error {
	report(quotient.Pool(a), nil)
	<-ctx.Done()
	return ctx.Err()
}

func TestStaticPasses(t *testing.T) {
	Run(t, World{
		Source: func(testing.TB) quotient.Source { return always{Replicas: 4, Ordinal: 2} },
		Size:   4,
		Once:   true,
	})
}

func TestEnvPasses(t *testing.T) {
	var n int
	set := func(v string) { os.Setenv("QUOTIENT_REPLICAS", v) }
	t.Setenv("QUOTIENT_REPLICAS", "") // puts back what was there
	Run(t, World{
		Source:  func(testing.TB) quotient.Source { return quotient.Env() },
		Set:     func(_ testing.TB, size int) { n = size; set(strconv.Itoa(n)) },
		Break:   func(testing.TB) { set("") },
		Garbage: func(testing.TB) { set("0") },
		Heal:    func(testing.TB) { set(strconv.Itoa(n)) },
		Once:    true,
	})
}

// recorder is a test that keeps its failures to itself.
type recorder struct {
	testing.TB
	said []string
}

func (r *recorder) Helper()                   {}
func (r *recorder) Error(args ...any)         { r.said = append(r.said, fmt.Sprint(args...)) }
func (r *recorder) Errorf(f string, a ...any) { r.said = append(r.said, fmt.Sprintf(f, a...)) }
func (r *recorder) Fatalf(f string, a ...any) {
	r.Errorf(f, a...)
	panic(r)
}

// saysOf runs the named check in a world and returns how it failed.
func saysOf(t *testing.T, name string, w World) string {
	t.Helper()
	i := slices.IndexFunc(checks, func(c check) bool { return c.name == name })
	if i < 0 {
		t.Fatalf("no check %q", name)
	}
	r := &recorder{TB: t}
	func() {
		defer func() {
			if p := recover(); p != nil && p != any(r) {
				panic(p)
			}
		}()
		checks[i].run(r, w)
	}()
	return strings.Join(r.said, "; ")
}

// Each bad source is caught, by the check that is there for it and with the words that tell why.
func TestBadSourcesAreCaught(t *testing.T) {
	rows := []struct {
		bad   *model
		check string
		says  string
	}{
		{&model{frozen: true}, "follows the size", "a pool of 7 was not reported"},
		{&model{frozen: true}, "larger counts at once, smaller does not", "a pool of 7 was not reported"},
		{&model{frozen: true}, "smaller counts after the hold-down", "a pool of 2 was not reported"},
		{&model{invalid: true}, "reports the size", "Ordinal"},
		{&model{weight: 2}, "reports the size", "want a weight of 1"},
		{&model{guesses: true}, "failure keeps the last good pool", "Replicas:1"},
		{&model{keepsQuiet: true}, "failure keeps the last good pool", "a failure was not reported"},
		{&model{forgives: true}, "failure keeps the last good pool", "while it fails"},
		{&model{trusts: true}, "garbage keeps the last good pool", "Replicas:9"},
		{&model{twice: true}, "one report at a time", "another report"},
		{&model{ignoresContext: true}, "the context ends it", "did not return"},
		{&model{returns: errBusy}, "the context ends it", "want context canceled"},
		{&model{hangsBroken: true}, "the context ends it while it fails", "did not return"},
		{&model{leaks: true}, "leaves nothing behind", "left"},
		{&model{late: true}, "leaves nothing behind", "after Watch had returned"},
		{&model{onlyOnce: true}, "can be watched again", "ended with busy"},
		{&model{blocksSecond: true}, "two at a time work or fail", "nor ended"},
		{&model{refusesBoth: true}, "two at a time work or fail", "neither of two"},
	}
	for _, r := range rows {
		t.Run(r.says, func(t *testing.T) {
			w := r.bad.world(t)
			w.Within = 300 * time.Millisecond
			if got := saysOf(t, r.check, w); !strings.Contains(got, r.says) {
				t.Errorf("%s: says %q, want %q", r.check, got, r.says)
			}
		})
	}
}

// setting is a source with one setting, which may be wrong.
type setting struct {
	valid, ends error
	reports     bool
}

func (s *setting) Validate() error { return s.valid }

func (s *setting) Watch(_ context.Context, report func(quotient.Pool, error)) error {
	if s.reports {
		report(quotient.Pool{}, s.ends)
	}
	return s.ends
}

func TestWrongSettingsAreRefused(t *testing.T) {
	bad, other := errors.New("Source.Fleet: empty"), errors.New("Source.Client: nil")
	for want, src := range map[string]quotient.Source{
		"":                                      &setting{valid: bad, ends: bad},
		"no method Validate":                    &model{},
		"Validate returned <nil>":               &setting{ends: bad},
		"want an error that says Source.Fleet":  &setting{valid: other, ends: other},
		"Watch made 1 reports":                  &setting{valid: bad, ends: bad, reports: true},
		"returned Source.Client: nil, Validate": &setting{valid: bad, ends: other},
		"returned <nil>, Validate":              &setting{valid: bad},
	} {
		w := (&model{}).world(t)
		w.Wrong = map[string]quotient.Source{"Source.Fleet": src}
		if got := saysOf(t, "wrong settings are refused", w); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("says %q, want %q", got, want)
		}
	}
	w := (&model{}).world(t)
	w.Source = func(testing.TB) quotient.Source { return &setting{valid: bad} }
	if got := saysOf(t, "wrong settings are refused", w); !strings.Contains(got, "the right settings: Validate") {
		t.Errorf("of the right settings: says %q", got)
	}
}

func TestWorldsAreValidated(t *testing.T) {
	src := func(testing.TB) quotient.Source { return &model{} }
	nothing := func(testing.TB) {}
	rows := []struct {
		w    World
		says string
	}{
		{World{}, "World.Source: nil"},
		{World{Source: src}, "World.Size: 0"},
		{World{Source: src, Size: 1, Break: nothing}, "World.Heal: nil"},
		{World{Source: src, Size: 1, Garbage: nothing}, "World.Heal: nil"},
		{World{Source: src, Size: 1, Weight: 3}, "World.Weight: 3"},
		{World{Source: src, Size: 1, Within: -1}, "World.Within: -1ns"},
	}
	for _, r := range rows {
		if err := r.w.validate(); err == nil || !strings.Contains(err.Error(), r.says) {
			t.Errorf("%v, want one that says %q", err, r.says)
		}
	}
}
