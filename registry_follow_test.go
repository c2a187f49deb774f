package quotient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// followed is a registry whose limiters follow one source, in a bubble.
func followed(t *testing.T, r *Registry) *spoken {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &spoken{ended: make(chan error, 1), cancel: cancel}
	go func() { s.ended <- r.Follow(ctx, s) }()
	synctest.Wait()
	return s
}

// limiterIn makes a limiter of the registry.
func limiterIn(t *testing.T, r *Registry, name string, opts ...Option) *Limiter {
	t.Helper()
	l, err := r.Limiter(name, rated(perSecond(100, 100)), opts...)
	must(t, err)
	return l
}

// logged fails unless the lines of a log begin with these, in any order.
func logged(t *testing.T, log *recorded, want ...string) {
	t.Helper()
	all := log.take()
	for _, w := range want {
		i := slices.IndexFunc(all, func(line string) bool { return strings.Contains(line, " "+w+" ") })
		if i < 0 {
			t.Errorf("no line %q", w)
			continue
		}
		all = slices.Delete(all, i, i+1)
	}
	if len(all) > 0 {
		t.Errorf("more lines: %q", all)
	}
}

// The options of a registry come before those of a call, and may go by the name.
func TestRegistryOptions(t *testing.T) {
	var seen []string
	r := Registry{Options: []Option{
		Replicas(4), MaxKeys(7),
		Named(func(name string) Option { seen = append(seen, name); return MaxWait(time.Second) }),
	}}
	a, b := limiterIn(t, &r, "a"), limiterIn(t, &r, "b", MaxKeys(9))
	if a.maxKeys != 7 || b.maxKeys != 9 || a.maxWait != time.Second {
		t.Errorf("%d and %d keys, %v", a.maxKeys, b.maxKeys, a.maxWait)
	}
	counted(t, a, 4)
	counted(t, b, 4)
	if fmt.Sprint(seen) != "[a b]" {
		t.Error(seen)
	}
	_, err := New(Limit{}, Named(func(string) Option { return MaxKeys(1) }))
	says(t, err, "Named", "name", "Registry.Limiter")
	r.Options = append(r.Options, MaxKeys(0))
	_, err = r.Limiter("c", Limit{})
	says(t, err, "MaxKeys")
}

// One source counts in all limiters: those that are there, and those that come later.
func TestRegistryFollow(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		log := recording()
		r := Registry{Options: []Option{Logger(slog.New(log)), Replicas(9), HintMaxAge(time.Minute)}}
		a := limiterIn(t, &r, "a")
		src := followed(t, &r)
		b := limiterIn(t, &r, "b")
		counted(t, a, 9)
		src.says(4)
		counted(t, a, 4)
		counted(t, b, 4)
		c := limiterIn(t, &r, "c")
		counted(t, c, 4)
		d := limiterOf(t, Limit{})
		must(t, r.Add("d", d))
		counted(t, d, 4)
		logged(t, log, "pool changed limiter=a", "pool changed limiter=b", "pool changed limiter=c")

		time.Sleep(50 * time.Second)
		src.fails("SERVFAIL")
		src.says(0)
		late := limiterIn(t, &r, "late") // what it starts with is 50 s old
		counted(t, late, 4)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		for _, l := range []*Limiter{a, b, c, late} {
			counted(t, l, 9)
		}
		counted(t, d, 4)
		if p := late.Stats().Pool; p.Errors+p.Rejected != 0 || p.Reports != 1 {
			t.Errorf("%+v", p)
		}
		if p := a.Stats().Pool; p.Errors != 1 || p.Rejected != 1 || p.Reports != 1 {
			t.Errorf("%+v", p)
		}

		r.Remove("b")
		must(t, r.Add("a2", a))
		r.Remove("a")
		src.says(5)
		counted(t, b, 9)
		counted(t, a, 5)
		says(t, r.Follow(t.Context(), src), "Follow", "followed")
		must(t, src.cancelled())
		src.says(6)
		counted(t, a, 5)
		e := limiterIn(t, &r, "e")
		counted(t, e, 9)
		says(t, r.Follow(t.Context(), nil), "source", "nil")
		src = followed(t, &r)
		counted(t, e, 9)
		src.says(7)
		counted(t, e, 7)
		must(t, src.cancelled())
	})
}

// A limiter that waits for its pool has it from the start when the registry knows it.
func TestRegistryFollowEndsTheWait(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		r := Registry{Options: []Option{AwaitPool(), Replicas(9), HintMaxAge(time.Minute)}}
		src := followed(t, &r)
		a := limiterIn(t, &r, "a")
		refusedFor(t, a, ReasonPool, "k")
		src.says(4)
		b := limiterIn(t, &r, "b")
		time.Sleep(time.Second)
		wants(t, a, "k", 25)
		wants(t, b, "k", 25)
		must(t, src.cancelled())
	})
}

// breaking is a source that ends with an error, or by a panic.
type breaking struct{ panics bool }

func (s breaking) Watch(_ context.Context, report func(Pool, error)) error {
	if report(Pool{Replicas: 3}, nil); s.panics {
		panic("source")
	}
	return errors.New("broken")
}

// When a source breaks each limiter logs that, and another source may be followed.
func TestRegistryFollowBreaks(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		log := recording()
		r := Registry{Options: []Option{Logger(slog.New(log))}}
		a, b := limiterIn(t, &r, "a"), limiterIn(t, &r, "b")
		for _, panics := range []bool{true, false} {
			func() {
				defer func() { _ = recover() }()
				says(t, r.Follow(t.Context(), breaking{panics}), "broken")
			}()
			counted(t, a, 3)
			counted(t, b, 3)
		}
		logged(t, log, "pool changed limiter=a", "pool changed limiter=b",
			"source of pool hints ended limiter=a", "source of pool hints ended limiter=b")
	})
}

// nosy is the handler of a log that asks the registry, and makes limiters of its own.
type nosy struct {
	slog.Handler
	r *Registry
}

func (h nosy) Enabled(context.Context, slog.Level) bool { return true }
func (h nosy) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h nosy) Handle(context.Context, slog.Record) error {
	for name, l := range h.r.All() {
		h.r.Get(name)
		l.Stats()
	}
	_, err := h.r.Limiter("of the log", Limit{}, Logger(slog.New(slog.DiscardHandler)))
	if err == nil {
		return errors.New("a name with blanks")
	}
	_, err = h.r.Limiter("log", Limit{}, Logger(slog.New(slog.DiscardHandler)))
	return err
}

// A handler of the log may ask the registry, whatever is logged.
func TestRegistryLogsWithoutALock(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		var r Registry
		r.Options = []Option{Logger(slog.New(nosy{slog.DiscardHandler, &r})), HintMaxAge(time.Second)}
		needless := Limit{Rates: []Rate{PerSecond(10), {Name: "b", Events: 99, Per: time.Second}}}
		l, err := r.Limiter("a", needless)
		must(t, err)
		src := followed(t, &r)
		src.says(4)
		src.says(0)
		src.fails("SERVFAIL")
		limiterIn(t, &r, "b")
		time.Sleep(time.Minute)
		limiterIn(t, &r, "c")
		r.Remove("b")
		saysEverything(t, l)
		must(t, src.cancelled())
	})
}

// Limiters that come and go while a source reports end with its last report.
func TestRegistryFollowAtOnce(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		r := Registry{Options: []Option{few, HoldDown(0)}}
		src := followed(t, &r)
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for j := range 40 {
					name := fmt.Sprint(i, "-", j)
					if _, err := r.Limiter(name, Limit{}); err != nil {
						t.Error(err)
					}
					if j%3 == 0 {
						r.Remove(name)
					}
				}
			})
		}
		for n := range 400 {
			src.says(n%7 + 1)
		}
		wg.Wait()
		src.says(42)
		for name, l := range r.All() {
			if n := l.Stats().Pool.Replicas; n != 42 {
				t.Errorf("%s believes in %d", name, n)
			}
		}
		must(t, src.cancelled())
	})
}
