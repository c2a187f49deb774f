package config_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/config"
)

// pool is a source of a test: it reports a size, and counts its Watches.
type pool struct {
	size          int
	fails         error // that Watch returns at once
	begun, ended  atomic.Int32
	closedUnasked atomic.Int32 // Watches whose context had ended before
}

func (p *pool) Watch(ctx context.Context, report func(quotient.Pool, error)) error {
	if ctx.Err() != nil {
		p.closedUnasked.Add(1)
		return ctx.Err()
	}
	p.begun.Add(1)
	defer p.ended.Add(1)
	if p.fails != nil {
		return p.fails
	}
	report(quotient.Pool{Replicas: p.size}, nil)
	<-ctx.Done()
	return ctx.Err()
}

// pools are the sources test:NAME, by name.
type pools map[string]*pool

func (p pools) option() config.Option {
	return config.WithSources(config.Sources{"test": func(arg string) (quotient.Source, error) {
		if p[arg] == nil {
			return nil, errors.New("there is no pool " + arg)
		}
		return p[arg], nil
	}})
}

// source is a file whose pool has a source; "" for none.
func source(name string) string {
	text := "replicas = 4\nhold-down = \"0s\"\n[limiters.api]\nin-flight = 100\n"
	if name == "" {
		return "[pool]\n" + text
	}
	return "[pool]\nsource = \"test:" + name + "\"\n" + text
}

// adjusted is a File without a path, whose section [pool] is that of another text when it is read again.
type adjusted struct {
	*config.Config
	reg  *quotient.Registry
	next *config.File
}

func adjust(t *testing.T, text string, opts ...config.Option) *adjusted {
	t.Helper()
	f, err := config.Parse("q.toml", []byte(text))
	must(t, err)
	a := &adjusted{reg: &quotient.Registry{}}
	opts = append(opts, config.Adjust(func(f *config.File) error {
		if a.next != nil {
			f.Pool = a.next.Pool
		}
		return nil
	}))
	a.Config, err = config.New(f, a.reg, opts...)
	must(t, err)
	return a
}

func (a *adjusted) change(t *testing.T, text string) error {
	t.Helper()
	f, err := config.Parse("q.toml", []byte(text))
	must(t, err)
	a.next = f
	err = a.Reload()
	synctest.Wait()
	return err
}

func (a *adjusted) wantReplicas(t *testing.T, n int) {
	t.Helper()
	synctest.Wait()
	l, _ := a.reg.Get("api")
	if got := l.Stats().Pool.Replicas; got != n {
		t.Errorf("%d replicas, want %d", got, n)
	}
}

// TestSourceIsFollowed: the source of the file is followed while Watch runs, another takes its place, and
// without one the size of the file counts.
func TestSourceIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pools{"a": {size: 10}, "b": {size: 20}}
		a := adjust(t, source("a"), p.option())
		a.wantReplicas(t, 4)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.Watch(ctx) }()
		a.wantReplicas(t, 10)
		must(t, a.change(t, source("b")))
		a.wantReplicas(t, 20)
		if p["a"].ended.Load() != 1 {
			t.Error("a is still watched")
		}
		must(t, a.change(t, source("b")))
		if n := p["b"].begun.Load(); n != 1 {
			t.Errorf("b was watched %d times, want once: it has not changed", n)
		}
		must(t, a.change(t, source("")))
		a.wantReplicas(t, 4)
		must(t, a.change(t, strings.Replace(source(""), "replicas = 4", "replicas = 5", 1)))
		a.wantReplicas(t, 5)
		must(t, a.change(t, strings.Replace(source(""), "replicas = 4", "replicas = 6\nordinal = 6", 1)))
		a.wantReplicas(t, 6)
		cancel()
		must(t, <-done)
		for name, p := range p {
			if p.begun.Load() != p.ended.Load() || p.closedUnasked.Load() != 0 {
				t.Errorf("%s: %d begun, %d ended", name, p.begun.Load(), p.ended.Load())
			}
		}
	})
}

// TestSourceIsWatchedAgain: a source that ends by itself is followed again after a pause; so it is by a
// second Watch.
func TestSourceIsWatchedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logged
		p := pools{"a": {fails: errors.New("gone")}}
		a := adjust(t, source("a"), p.option(), config.Logger(log.logger()))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.Watch(ctx) }()
		time.Sleep(config.SourcePause*2 + time.Second)
		synctest.Wait()
		if n := p["a"].begun.Load(); n != 3 {
			t.Errorf("watched %d times in two pauses, want 3", n)
		}
		cancel()
		must(t, <-done)
		if n := strings.Count(log.take(), "has ended"); n != 3 {
			t.Errorf("%d lines, want 3", n)
		}
		p["a"].fails, p["a"].size = nil, 7
		ctx, cancel = context.WithCancel(t.Context())
		go func() { done <- a.Watch(ctx) }()
		a.wantReplicas(t, 7)
		cancel()
		must(t, <-done)
	})
}

// TestSourceThatIsNotNeeded: a source of a file that is refused, or that another replaces before Watch runs,
// is closed.
func TestSourceThatIsNotNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pools{"a": {size: 10}, "b": {size: 20}, "c": {size: 30}}
		refuse := false
		a := adjust(t, source("a"), p.option(), config.With(part{prepare: func(*config.File) error {
			if refuse {
				return errors.New("no")
			}
			return nil
		}}))
		refuse = true
		if err := a.change(t, source("b")); err == nil || p["b"].closedUnasked.Load() != 1 {
			t.Errorf("%v, b closed %d times", err, p["b"].closedUnasked.Load())
		}
		refuse = false
		must(t, a.change(t, source("c")))
		if n := p["a"].closedUnasked.Load(); n != 1 {
			t.Errorf("a was closed %d times, want once", n)
		}
		err := a.change(t, strings.Replace(source("x"), "replicas", "ordinal = 2\nreplicas", 1))
		if err == nil || err.Error() != "q.toml:2:10: pool.source: there is no pool x" {
			t.Error(err)
		}
		must(t, a.change(t, source("")))
		if n := p["c"].closedUnasked.Load(); n != 1 {
			t.Errorf("c was closed %d times, want once", n)
		}
		a.wantReplicas(t, 4)
	})
}

func TestUnknownScheme(t *testing.T) {
	f, err := config.Parse("q.toml", []byte(strings.Replace(source("x"), "test:", "tset:", 1)))
	must(t, err)
	_, err = config.New(f, &quotient.Registry{}, pools{}.option())
	if err == nil ||
		err.Error() !=
			`q.toml:2:10: pool.source: "tset" is not one of dns, env, file, test (did you mean test?)` {
		t.Error(err)
	}
}

// TestBuiltInSources: dns, file and env need no option, and env takes no argument.
func TestBuiltInSources(t *testing.T) {
	for spec, want := range map[string]string{
		"dns:web.test.?uncapped": "", "file:replicas": "", "env:": "",
		"env:x": `q.toml:2:10: pool.source: "x" behind env: it takes no argument`,
	} {
		f, err := config.Parse("q.toml", []byte(strings.Replace(source("x"), "test:x", spec, 1)))
		must(t, err)
		got := ""
		if _, err := config.New(f, &quotient.Registry{}); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %s, want %s", spec, got, want)
		}
	}
}

// TestFixedOrdinal: the ordinal of the file goes with what the source counts.
func TestFixedOrdinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := adjust(t, strings.Replace(source("a"), "replicas", "ordinal = 3\nreplicas", 1),
			pools{"a": {size: 10}}.option())
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.Watch(ctx) }()
		a.wantReplicas(t, 10)
		l, _ := a.reg.Get("api")
		if p := l.Stats().Pool; p.Ordinal != 3 || !p.Fixed {
			t.Errorf("%+v", p)
		}
		cancel()
		must(t, <-done)
	})
}

// TestSecretsAreNotLogged: a source may be a URL with a password, and its change is logged.
func TestSecretsAreNotLogged(t *testing.T) {
	for source, want := range map[string]string{
		"redis://user:secret@h:1/0?fleet=a": "redis://…@h:1/0?fleet=a",
		"redis:user:secr@et@h:1":            "redis:…@h:1",
		"etcd://:secret@a:1,b:2":            "etcd://…@a:1,b:2",
		"dns:proxies.internal.":             "dns:proxies.internal.",
		"":                                  "",
	} {
		if got := (config.Pool{Source: source}).Redacted(); got != want {
			t.Errorf("%s: got %s, want %s", source, got, want)
		}
	}
	var log logged
	p := &pool{size: 1}
	redis := config.WithSources(config.Sources{"redis": func(string) (quotient.Source, error) {
		return p, nil
	}})
	with := func(host string) string {
		return "[pool]\nsource = \"redis://user:secret@" + host +
			"\"\nreplicas = 4\n[limiters.api]\nin-flight = 100\n"
	}
	s := start(t, with("a"), config.Logger(log.logger()), redis)
	must(t, s.change(t, with("b")))
	if text := log.take(); strings.Contains(text, "secret") || !strings.Contains(text, "redis://…@b") {
		t.Error(text)
	}
}
