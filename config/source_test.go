package config_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/internal/carried"
)

// pool is a source of a test: it reports a size, and counts its Watches.
type pool struct {
	size          int
	fails         error // that Watch returns at once
	wrong         error // of its settings
	begun, ended  atomic.Int32
	closedUnasked atomic.Int32 // Watches whose context had ended before
}

func (p *pool) Validate() error { return p.wrong }

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
			return (*pool)(nil), errors.New("there is no pool " + arg) // as a function that passes on what New returns
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

// change puts the text of another file in force.
func (a *adjusted) change(t *testing.T, text string) error {
	t.Helper()
	defer synctest.Wait()
	return a.put(parse(t, text))
}

func (a *adjusted) wantReplicas(t *testing.T, n int) {
	t.Helper()
	synctest.Wait()
	l, _ := a.reg.Get("api")
	want(t, "replicas", l.Stats().Pool.Replicas, n)
}

// watch watches until stop is called, which waits for the end.
func (a *adjusted) watch(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Watch(ctx) }()
	synctest.Wait()
	return func() {
		t.Helper()
		cancel()
		must(t, <-done)
	}
}

// TestSourceIsFollowed: the source of the file is followed while Watch runs, another takes its place, and
// without one the size of the file counts. The ordinal of the file goes with what the source counts.
func TestSourceIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pools{"a": {size: 10}, "b": {size: 20}}
		alone := strings.Replace(source("a"), "replicas = 4\n", "", 1)
		adjust(t, parse(t, alone), p.option()).wantReplicas(t, 1) // until the first report
		a := adjust(t, parse(t, source("a")), p.option())
		a.wantReplicas(t, 4)
		stop := a.watch(t)
		a.wantReplicas(t, 10)
		must(t, a.change(t, source("b")))
		a.wantReplicas(t, 20)
		want(t, "watches of a that have ended", p["a"].ended.Load(), int32(1))
		must(t, a.change(t, source("b")))
		want(t, "watches of b, which has not changed", p["b"].begun.Load(), int32(1))
		must(t, a.change(t, source("")))
		a.wantReplicas(t, 4)
		must(t, a.change(t, strings.Replace(source(""), "replicas = 4", "replicas = 5", 1)))
		a.wantReplicas(t, 5)
		must(t, a.change(t, strings.Replace(source(""), "replicas = 4", "replicas = 6\nordinal = 6", 1)))
		a.wantReplicas(t, 6)
		must(t, a.change(t, strings.Replace(source("a"), "replicas", "ordinal = 3\nreplicas", 1)))
		a.wantReplicas(t, 10)
		l, _ := a.reg.Get("api")
		if p := l.Stats().Pool; p.Ordinal != 3 || !p.Fixed {
			t.Errorf("%+v", p)
		}
		stop()
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
		a := adjust(t, parse(t, source("a")), p.option(), config.Logger(log.logger()))
		stop := a.watch(t)
		time.Sleep(config.SourcePause*2 + time.Second)
		synctest.Wait()
		want(t, "watches in two pauses", p["a"].begun.Load(), int32(3))
		stop()
		want(t, "lines", strings.Count(log.take(), "has ended"), 3)
		p["a"].fails, p["a"].size = nil, 7
		stop = a.watch(t)
		a.wantReplicas(t, 7)
		stop()
	})
}

// TestSourceThatIsNotNeeded: a source of a file that is refused, or that another replaces before Watch runs,
// is closed.
func TestSourceThatIsNotNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pools{"a": {size: 10}, "b": {size: 20}, "c": {size: 30}}
		answer := error(nil)
		a := adjust(t, parse(t, source("a")), p.option(),
			config.With(part{prepare: func() error { return answer }}))
		closed := func(name string) {
			t.Helper()
			want(t, "how often "+name+" was closed", p[name].closedUnasked.Load(), int32(1))
		}
		answer = errors.New("no")
		fails(t, a.change(t, source("b")), "no")
		closed("b")
		answer = nil
		must(t, a.change(t, source("c")))
		closed("a")
		fails(t, a.change(t, strings.Replace(source("x"), "replicas", "ordinal = 2\nreplicas", 1)),
			"q.toml:2:10: pool.source: there is no pool x")
		must(t, a.change(t, source("")))
		closed("c")
		a.wantReplicas(t, 4)
	})
}

// TestSchemes: dns, file and env need no option, and env takes no argument.
func TestSchemes(t *testing.T) {
	for spec, text := range map[string]string{
		"dns:web.test.?uncapped": "", "dns:_http._tcp.web.test.?hosts&uncapped": "", "file:replicas": "", "env:": "",
		"dns:web.test.?uncaped": `q.toml:2:10: pool.source: "uncaped" behind ?: it is neither uncapped nor hosts`,
		"dns:web.test.?hosts":   "q.toml:2:10: pool.source: dns: Source.Hosts: true without SRV: addresses have no ports",
		"dns:10.0.0.1":          `q.toml:2:10: pool.source: dns: Source.Name: "10.0.0.1" is an address`,
		"test:wrong":            "q.toml:2:10: pool.source: Fleet: empty",
		"test:u:secret@h":       "q.toml:2:10: pool.source: there is no pool …@h",
		"dns://u:secret@h":      `q.toml:2:10: pool.source: dns: Source.Name: "//…@h" names no host`,
		"dns:h?u:secret@h":      `q.toml:2:10: pool.source: "u:…@h" behind ?: it is neither uncapped nor hosts`,
		"env:x":                 `q.toml:2:10: pool.source: "x" behind env: it takes no argument`,
		"tset:x":                `q.toml:2:10: pool.source: "tset" is not one of dns, env, file, test (did you mean test?)`,
	} {
		f := parse(t, strings.Replace(source("x"), "test:x", spec, 1))
		p := pools{"wrong": {wrong: errors.New("Fleet: empty")}}
		if _, err := config.New(f, &quotient.Registry{}, p.option()); text != "" {
			fails(t, err, text)
		} else {
			must(t, err)
		}
		want(t, spec+": closed", p["wrong"].closedUnasked.Load() == 1, spec == "test:wrong")
	}
}

// TestSecretsAreNotLogged: a source may be a URL with a password, and its change is logged.
func TestSecretsAreNotLogged(t *testing.T) {
	for source, text := range map[string]string{
		"redis://user:secret@h:1/0?fleet=a": "redis://…@h:1/0?fleet=a",
		"redis:user:secr@et@h:1":            "redis:…@h:1",
		"etcd://:secret@a:1,b:2":            "etcd://…@a:1,b:2",
		"redis://user:${A}@h:1/0?fleet=a":   "redis://user:${A}@h:1/0?fleet=a",
		"redis:${A}:${file:/b@c}@h:1":       "redis:${A}:${file:/b@c}@h:1",
		"redis://user:secret${A}@h:1":       "redis://…@h:1",
		"redis:user:secret:${A}@h:1":        "redis:…@h:1",
		"dns:proxies.internal.":             "dns:proxies.internal.",
		"":                                  "",
	} {
		want(t, source, (config.Pool{Source: source}).Redacted(), text)
	}
	var log logged
	redis := config.WithSources(config.Sources{"redis": func(string) (quotient.Source, error) {
		return &pool{size: 1}, nil
	}})
	with := func(host string) string {
		return strings.Replace(source("x"), "test:x", "redis://user:secret@"+host, 1)
	}
	s := start(t, with("a"), config.Logger(log.logger()), redis)
	must(t, s.change(t, with("b")))
	if text := log.take(); strings.Contains(text, "secret") || !strings.Contains(text, "redis://…@b") {
		t.Error(text)
	}
}

// urls are the URLs that sources of the scheme test were made of. All are one pool.
type urls struct {
	made []string
	pool pool
}

func (u *urls) option() config.Option {
	return config.WithSources(config.Sources{"test": func(arg string) (quotient.Source, error) {
		if u.made = append(u.made, arg); u.pool.wrong != nil {
			return nil, fmt.Errorf("%w: %s", u.pool.wrong, strings.TrimPrefix(arg, "//"))
		}
		return &u.pool, nil
	}})
}

// TestSecrets: a reference stands for what a variable or a file holds. Without that it is an error at its place.
// Errors show no secret.
func TestSecrets(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"line": "p@ss/%\r\n", "two": " a\n\n", "none": "", "newline": "\n",
		"most": strings.Repeat("x", 4096), "long": strings.Repeat("x", 4097),
	} {
		write(t, filepath.Join(dir, name), text)
	}
	t.Setenv("LONG", strings.Repeat("x", 4097))
	t.Setenv("EMPTY", "")
	t.Setenv("SECRET", "p@ss/%: +é")
	at := dir + "/q.toml:2:10: pool.source: "
	for userinfo, text := range map[string]string{
		"u:${SECRET}":               "u:p%40ss%2F%25%3A%20%2B%C3%A9",
		"${SECRET}:a${file:line}b":  "p%40ss%2F%25%3A%20%2B%C3%A9:ap%40ss%2F%25b",
		"u:${file:" + dir + "/two}": "u:%20a%0A",
		"u:${file:most}":            "u:" + strings.Repeat("x", 4096),
		"u:p%":                      "u:p%",
		"u:${NOSUCH}":               at + "the variable NOSUCH is not set (set NOSUCH)",
		"u:${EMPTY}":                at + "EMPTY is empty (set EMPTY)",
		"u:${LONG}":                 at + "LONG is larger than 4096 bytes (set LONG)",
		"u:${file:nosuch}":          at + dir + "/nosuch: no such file or directory (put the secret into " + dir + "/no",
		"u:${file:none}":            at + dir + "/none is empty (put",
		"u:${file:newline}":         at + dir + "/newline is empty (put",
		"u:${file:long}":            at + dir + "/long: it is larger than 4096 bytes (put",
		"u:${file:.}":               at + dir + ": it is no regular file",
		"${file:none}${NOSUCH}":     " is empty (put the secret into " + dir + "/none)\n" + at + "the variable NOSUCH",
	} {
		f, err := config.Parse(filepath.Join(dir, "q.toml"), []byte(source("//"+userinfo+"@h")))
		must(t, err)
		var u urls
		if _, err := config.New(f, &quotient.Registry{}, u.option()); strings.Contains(text, "/q.toml:") {
			fails(t, err, text)
			want(t, userinfo, u.made, []string(nil))
		} else {
			must(t, err)
			want(t, userinfo, u.made, []string{"//" + text + "@h"})
		}
		_, err = config.New(f, &quotient.Registry{}, u.option(), config.WithoutSecrets())
		must(t, err)
	}
	u := urls{pool: pool{wrong: errors.New("no")}}
	_, err := config.New(parse(t, source("//u:${SECRET}@h")), &quotient.Registry{}, u.option())
	fails(t, err, "q.toml:2:10: pool.source: no: u:${SECRET}@h")
}

// TestSecretsThatChange: a reload looks secrets up, and opens the source anew where one has changed. Watch does so for
// a source that has ended.
func TestSecretsThatChange(t *testing.T) {
	t.Setenv("SECRET", "first")
	path := write(t, filepath.Join(t.TempDir(), "secret"), "1st")
	synctest.Test(t, func(t *testing.T) {
		u := urls{pool: pool{size: 1}}
		var log logged
		a := adjust(t, parse(t, source("//${SECRET}:${file:"+path+"}@h")), u.option(), config.Logger(log.logger()))
		stop := a.watch(t)
		wanted := []string{"//first:1st@h"}
		reload := func(begun int32, more ...string) {
			t.Helper()
			must(t, a.Reload())
			synctest.Wait()
			wanted = append(wanted, more...)
			want(t, "sources", u.made, wanted)
			want(t, "watches", []int32{u.pool.begun.Load(), u.pool.ended.Load()}, []int32{begun, begun - 1})
		}
		reload(1)
		must(t, os.Setenv("SECRET", "second"))
		reload(2, "//second:1st@h")
		write(t, path, "2nd")
		reload(3, "//second:2nd@h")
		reload(3)
		must(t, os.Remove(path))
		fails(t, a.Reload(), "no such file")
		write(t, path, "2nd")
		reload(3)
		if text := log.take(); strings.Count(text, "opened again") != 2 || !strings.Contains(text, ":${file:") ||
			strings.Contains(text, "second") || strings.Contains(text, "2nd") {
			t.Error(text)
		}
		stop()
		must(t, os.Setenv("SECRET", "third"))
		stop = a.watch(t)
		reload(4, "//third:2nd@h")
		stop()
	})
}

// gossips has a source gossip: that carries what replicas say.
func gossips() config.Option {
	return config.WithSources(config.Sources{"gossip": func(string) (quotient.Source, error) {
		return &carried.Source{Replicas: 4, Every: time.Second, Others: [6]int64{3, 700}}, nil
	}})
}

const lends = "[pool]\nsource = \"gossip:\"\nhold-down = \"0s\"\n[limiters.api]\nin-flight = 100\n"

// TestDemand: a limiter with demand has what the source carries, by default and as the file says.
func TestDemand(t *testing.T) {
	for text, maxAge := range map[string]time.Duration{
		"demand = {}":                   2 * time.Second,
		"demand = { max-age = \"5s\" }": 5 * time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			a := adjust(t, parse(t, lends+text+"\n[limiters.plain]\nin-flight = 1\n"), gossips())
			stop := a.watch(t)
			for name, age := range map[string]time.Duration{"api": maxAge, "plain": 0} {
				l, _ := a.reg.Get(name)
				if s := l.Stats(); carried.DemandOf(s).MaxAge != age || (s.Fleet.Admitted == 700) != (age > 0) {
					t.Errorf("%s: %+v, %+v", name, carried.DemandOf(s), s.Fleet)
				}
			}
			stop()
		})
	}
}

// TestDemandWantsACarrier: a source that does not carry what replicas say is refused beside demand, at the
// start, later, and in a limiter that comes later.
func TestDemandWantsACarrier(t *testing.T) {
	const text = ".demand: the pool.source does not carry what replicas say (such as gossip)"
	demand := lends + "demand = {}\n"
	env := strings.Replace(demand, "gossip:", "env:", 1)
	_, err := config.New(parse(t, env), new(quotient.Registry))
	fails(t, err, "limiters.api"+text)
	synctest.Test(t, func(t *testing.T) {
		a := adjust(t, parse(t, demand), gossips())
		fails(t, a.change(t, env), "limiters.api"+text)
		must(t, a.change(t, demand))
	})
	late := strings.Replace(base, "[pool]", "[pool]\nsource = \"env:\"", 1)
	fails(t, start(t, base, gossips()).change(t, late+"[limiters.late]\nin-flight = 1\ndemand = {}\n"),
		"limiters.late"+text)
}

// TestNoCountIsNoHint: a policy takes a count for a hint only where somebody has given one.
func TestNoCountIsNoHint(t *testing.T) {
	const api = "[limiters.api]\nrates = [{ events = 60, per = \"1s\" }]\npolicy = \"tracking\"\nceiling = \"limit\"\n"
	share := func(t *testing.T, s started, want float64) {
		t.Helper()
		for _, r := range s.limiter(t, "api").Explain("k").Rules {
			if r.Name == "adaptive" && r.Share != want {
				t.Errorf("the share is %v, want %v", r.Share, want)
			}
		}
	}
	counts := config.Adjust(func(f *config.File) error { f.Pool.Replicas = 3; return nil })
	for pool, hint := range map[string]float64{
		"": 0, "[pool]\n": 0, "[pool]\nordinal = 1\n": 0, "[pool]\nreplicas = 1\n": 60, "[pool]\nreplicas = 2\n": 30,
		"[pool]\nsource = \"env:\"\n": 0, "[pool]\nsource = \"env:\"\nreplicas = 1\n": 60,
	} {
		s := start(t, pool+api)
		share(t, s, hint)
		want(t, "differs", s.State().Differs, []string(nil))
		share(t, start(t, pool+api, counts), 20)
	}
	s := start(t, api)
	must(t, s.change(t, "[pool]\nreplicas = 1\n"+api))
	share(t, s, 60)
	for _, pool := range []string{"", "[pool]\nordinal = 1\n"} {
		fails(t, s.change(t, pool+api), `pool.replicas: it is missing beside ceiling = "limit"`)
		share(t, s, 60)
	}
	must(t, s.change(t, "[limiters.other]\nin-flight = 1\n"))
}
