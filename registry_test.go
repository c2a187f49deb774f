package quotient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// limiterIn makes a limiter of the registry.
func limiterIn(t *testing.T, r *Registry, name string, opts ...Option) *Limiter {
	t.Helper()
	l, err := r.Limiter(name, Rates(perSecond(100, 100)), opts...)
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
	wrong(t, len(all) > 0, "more lines: %q", all)
}

func TestRegistry(t *testing.T) {
	var r Registry
	limit := Rates(perSecond(100, 100))
	a := limiterIn(t, &r, "api")
	is(t, "the same rule", limiterIn(t, &r, "api", MaxKeys(7)), a)
	setLimit(t, a, Rates(perSecond(20, 20)))
	is(t, "the same rule after SetLimit", limiterIn(t, &r, "api"), a)
	var paced Registry
	one, _ := paced.Limiter("one", Rates(Every(time.Second)), few)
	same, _ := paced.Limiter("one", Rates(Rate{Name: "interval", Events: 1, Per: time.Second, Burst: 1, Kind: Paced}))
	is(t, "a paced rate whose burst is written", same, one)
	_, err := r.Limiter("api", Rates(perSecond(11, 10)))
	says(t, err, `"api"`, "another limit", "100 per 1s", "11 per 1s")
	_, err = r.Limiter("new", Limit{InFlight: -1})
	says(t, err, "InFlight")
	must(t, r.Add("web.1_x-y", mustNew(t, limit)))
	says(t, r.Add("api", a), `"api"`, "taken")
	says(t, r.Add("nil", nil), `"nil"`, "nil")
	is(t, "names", fmt.Sprint(slices.Sorted(maps.Keys(maps.Collect(r.All())))), "[api web.1_x-y]")
	got, ok := r.Get("api")
	is(t, "api", got, a)
	is(t, "api is there", ok, true)
	r.Remove("api")
	r.Remove("api")
	got, ok = r.Get("api")
	is(t, "what was removed", got, nil)
	is(t, "what was removed is there", ok, false)
	for range r.All() {
		break
	}
}

func TestRegistryNames(t *testing.T) {
	var r Registry
	for _, name := range []string{"", "API", "a b", "ü", strings.Repeat("a", 65), "a/b", "a\n", "a\"b"} {
		l, err := r.Limiter(name, Limit{})
		says(t, err, "name", "a-z")
		is(t, "a limiter beside an error", l, nil)
	}
	for i := range maxLimiters {
		limiterIn(t, &r, fmt.Sprint(i), few)
	}
	_, err := r.Limiter("more", Limit{}, few)
	says(t, err, `"more"`, "1000")
}

// Ready names a limiter that waits for its pool, and is nil when none does.
func TestRegistryReady(t *testing.T) {
	var r Registry
	await := AwaitPool(time.Hour)
	must(t, r.Ready())
	limiterIn(t, &r, "knows")
	must(t, r.Ready())
	for name, c := range map[string]struct {
		limit Limit
		plans map[string]Limit
	}{
		"waits":               {Rates(PerSecond(1)), nil},
		"plans-alone":         {Limit{}, map[string]Limit{"free": Rates(PerSecond(1))}},
		"denies-the-others":   {Limit{Deny: true}, map[string]Limit{"free": Rates(PerSecond(1))}},
		"lets-some-keys-pass": {Limit{Deny: true}, nil},
	} {
		l, err := r.Limiter(name, c.limit, Plans(c.plans), await)
		must(t, err)
		says(t, r.Ready(), `"`+name+`"`)
		must(t, l.SetPool(Pool{Replicas: 2}, 0))
		must(t, r.Ready())
	}
	for name, l := range map[string]*Limiter{
		"without-a-rule": mustNew(t, Limit{}, await),
		"a-dry-run":      mustNew(t, Rates(PerSecond(1)), await),
		"without-slots":  mustNew(t, Limit{InFlight: 2}, Replicas(3)),
	} {
		l.SetDryRun(name == "a-dry-run")
		must(t, r.Add(name, l))
		must(t, r.Ready())
	}
}

// The options of a registry come before those of a call, and may go by the name.
func TestRegistryOptions(t *testing.T) {
	var seen []string
	r := Registry{Options: func(name string) []Option {
		seen = append(seen, name)
		return []Option{Replicas(4), MaxKeys(7), MaxWait(time.Second)}
	}}
	a, b := limiterIn(t, &r, "a"), limiterIn(t, &r, "b", MaxKeys(9))
	is(t, "keys of both, and the wait", fmt.Sprint(a.maxKeys, b.maxKeys, a.maxWait), "7 9 1s")
	counted(t, a, 4)
	counted(t, b, 4)
	is(t, "names", fmt.Sprint(seen), "[a b]")
	r.Options = func(string) []Option { return []Option{MaxKeys(0)} }
	_, err := r.Limiter("c", Limit{})
	says(t, err, "MaxKeys")
}

// shared are options that do not go by the name of a limiter.
func shared(opts ...Option) func(string) []Option { return func(string) []Option { return opts } }

// One source counts in all limiters: those that are there, and those that come later.
func TestRegistryFollow(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		log := recording()
		r := Registry{Options: shared(Logger(slog.New(log)), Replicas(9), HintMaxAge(time.Minute))}
		a := limiterIn(t, &r, "a")
		src := following(t, &r)
		b := limiterIn(t, &r, "b")
		counted(t, a, 9)
		src.says(4)
		c, d := limiterIn(t, &r, "c"), mustNew(t, Limit{})
		must(t, r.Add("d", d))
		for _, l := range []*Limiter{a, b, c, d} {
			counted(t, l, 4)
		}
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
		for l, want := range map[*Limiter]string{late: "0 0 1", a: "1 1 1"} {
			p := l.Stats().Pool
			is(t, "errors, rejected, reports", fmt.Sprint(p.Errors, p.Rejected, p.Reports), want)
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
		src = following(t, &r)
		counted(t, e, 9)
		src.says(7)
		counted(t, e, 7)
		must(t, src.cancelled())
	})
}

func TestRegistryFollows(t *testing.T) {
	// A limiter that waits for its pool has it from the start when the registry knows it.
	row(t, "follow ends the wait", func(t *testing.T) {
		r := Registry{Options: shared(AwaitPool(time.Minute), Replicas(9))}
		src := following(t, &r)
		a := limiterIn(t, &r, "a")
		refusedFor(t, a, ReasonPool, "k")
		src.says(4)
		b := limiterIn(t, &r, "b")
		time.Sleep(time.Second)
		wants(t, a, "k", 25)
		wants(t, b, "k", 25)
		must(t, src.cancelled())
	})
	// When a source breaks each limiter logs that, and another source may be followed.
	row(t, "follow breaks", func(t *testing.T) {
		log := recording()
		r := Registry{Options: shared(Logger(slog.New(log)))}
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
	// Limiters that come and go while a source reports end with its last report. The same rule asked for in many places at
	// once is one limiter.
	row(t, "follow at once", func(t *testing.T) {
		r := Registry{Options: shared(few, HoldDown(0))}
		src := following(t, &r)
		var wg sync.WaitGroup
		var seen [8]*Limiter
		for i := range 8 {
			wg.Go(func() {
				seen[i], _ = r.Limiter("one", Rates(perSecond(100, 100)))
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
		is(t, "one limiter", seen, [8]*Limiter(slices.Repeat([]*Limiter{limiterIn(t, &r, "one")}, 8)))
		src.says(42)
		for _, l := range r.All() {
			counted(t, l, 42)
		}
		must(t, src.cancelled())
	})
	// A handler of the log may ask the registry, whatever is logged.
	row(t, "logs without a lock", func(t *testing.T) {
		var r Registry
		r.Options = shared(Logger(slog.New(nosy{slog.DiscardHandler, &r})), HintMaxAge(time.Second))
		needless := Limit{Rates: []Rate{PerSecond(10), {Name: "b", Events: 99, Per: time.Second}}}
		l, err := r.Limiter("a", needless)
		must(t, err)
		src := following(t, &r)
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

// breaking is a source that ends with an error, or by a panic.
type breaking struct{ panics bool }

func (s breaking) Watch(_ context.Context, report func(Pool, error)) error {
	if report(Pool{Replicas: 3}, nil); s.panics {
		panic("source")
	}
	return errors.New("broken")
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
	_, err := h.r.Limiter("log", Limit{}, Logger(slog.New(slog.DiscardHandler)))
	return err
}
