package config_test

import (
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/config"
	"pgregory.net/rapid"
)

// TestPropertyRoundTrip: what is written is what is read.
func TestPropertyRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFile(t, flip(t))
		drawDemand(t, f)
		text := encode(t, f)
		got, err := config.Parse("q.toml", []byte(text))
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if got, want := bare(got), bare(f); !reflect.DeepEqual(got, want) {
			t.Fatalf("%s\ngives\n%+v\nwant\n%+v\n%+v\n%+v", text, got, want, got.Proxy, want.Proxy)
		}
	})
}

// bare is a file without the places of its values.
func bare(f *config.File) config.File {
	b := config.File{Pool: f.Pool, Limiters: f.Limiters, Decide: f.Decide, Leases: f.Leases}
	if f.Proxy != nil {
		p := *f.Proxy
		p.Rules = slices.Clone(p.Rules)
		for i := range p.Rules {
			p.Rules[i].Line = 0
		}
		b.Proxy = &p
	}
	return b
}

// adjusted is a file without a path, of which another's pool and limiters take the place.
type adjusted struct {
	*config.Config
	reg  *quotient.Registry
	next *config.File
}

func adjust(t fataler, f *config.File, opts ...config.Option) *adjusted {
	t.Helper()
	a := &adjusted{reg: &quotient.Registry{}}
	opts = append(opts, config.Adjust(func(f *config.File) error {
		if a.next != nil {
			f.Pool, f.Limiters = a.next.Pool, a.next.Limiters
		}
		return nil
	}))
	var err error
	a.Config, err = config.New(f, a.reg, opts...)
	must(t, err)
	return a
}

func (a *adjusted) put(f *config.File) error {
	a.next = f
	return a.Reload()
}

// state is what a limiter is set to.
type state struct {
	limit     string
	plans     map[string]string
	overrides map[string]string
	dryRun    bool
	pool      quotient.Pool
	hints     []float64 // the shares that the policy has for hints; 0 without a count
}

func counted(p config.Pool) bool { return p.Replicas > 0 || p.Source != "" }

// states are what the limiters of a registry are set to.
func states(reg *quotient.Registry, keys []string) map[string]state {
	all := make(map[string]state)
	for name, l := range reg.All() {
		now := l.Stats()
		s := state{now.Limit.String(), map[string]string{}, map[string]string{}, l.DryRun(), now.Pool.Pool, nil}
		for _, r := range l.Explain("k").Rules {
			if r.Name == "adaptive" {
				s.hints = append(s.hints, r.Share)
			}
		}
		for name, p := range now.Plans {
			s.plans[name] = p.Limit.String()
		}
		for _, key := range keys {
			if e := l.Explain(key); e.Overridden {
				s.overrides[key] = e.Limit.String()
			}
		}
		if now.Overrides != len(s.overrides) {
			s.overrides["more"] = "than were looked for"
		}
		all[name] = s
	}
	return all
}

// afresh is what the limiters of a file are set to at its start.
func afresh(t fataler, f *config.File, keys []string) map[string]state {
	t.Helper()
	var reg quotient.Registry
	_, err := config.New(f, &reg)
	must(t, err)
	return states(&reg, keys)
}

// allowed is b with what a limiter of a cannot change.
func allowed(a, b *config.File) *config.File {
	for name, l := range b.Limiters {
		if was, ok := a.Limiters[name]; ok {
			l.MaxKeys, l.Queue, l.QueuePerKey = was.MaxKeys, was.Queue, was.QueuePerKey
			l.Policy, l.BeyondShare, l.LongestPause = was.Policy, was.BeyondShare, was.LongestPause
			b.Limiters[name] = l
		}
	}
	return b
}

// TestPropertyReload: to go from one file to another ends where starting with the other would, whatever an
// operator has done to the limiters that change.
func TestPropertyReload(t *testing.T) {
	keys := []string{"/", "/a b", `/"q"`, "/é/\\", "by hand"}
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawFile(t, false), drawFile(t, false)
		for _, f := range []*config.File{a, b} {
			f.Pool = config.Pool{Replicas: f.Pool.Replicas + 5, Ordinal: min(f.Pool.Ordinal, 3), Weight: 1}
		}
		b = allowed(a, b)
		c := adjust(t, a)
		if d := c.State().Differs; d != nil {
			t.Fatalf("differs at first: %v", d)
		}
		for name, l := range c.reg.All() {
			if next, ok := b.Limiters[name]; ok && !reflect.DeepEqual(next, a.Limiters[name]) {
				must(t, l.Override("by hand", &quotient.Limit{Deny: true}, 0))
				must(t, l.SetPlan("by.hand", &quotient.Limit{InFlight: 3}))
			}
		}
		must(t, c.put(b))
		if got, want := states(c.reg, keys), afresh(t, b, keys); !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v\nwant\n%+v", got, want)
		}
		if d := c.State().Differs; d != nil {
			t.Fatalf("differs: %v", d)
		}
	})
}

// FuzzReload checks that to go from one text to another ends where starting with the other would, or is
// refused and changes nothing.
func FuzzReload(f *testing.F) {
	const a = "[limiters.a]\n"
	for _, row := range [][2]string{
		{base, strings.NewReplacer("100", "40", "/x", "/y", "paid", "free", "other", "third").Replace(base)},
		{base, base + "max-keys = 7\n"},
		{base, base + "[limiters.api.plans.u]\nrates = [" + rate("a") + "]\n"},
		{a + "deny=true\nqueue=1\n", a + "deny=true\nqueue=2\noverrides.k.in-flight=1\n"},
		{a + "in-flight = 1\n", a + "rates = [{events=1,per=\"1s\"}]\n"},
		{a + "max-keys=4\noverrides.x.deny=true\noverrides.y.deny=true\n",
			a + "max-keys=4\noverrides.z.in-flight=1\noverrides.y.in-flight=2\n"},
		{a + "policy=\"tracking\"\nceiling=\"limit\"", "pool.replicas=1\n" + a + "policy=\"tracking\"\nceiling=\"limit\""},
		{"pool.replicas=3\n" + a + "in-flight = 6", a + "in-flight = 7"},
		{a + "plans.a.deny=true\nplans.b.in-flight=1\n", a + "plans.b.in-flight=2\nplans.c.deny=true\n"},
		{"[pool]\nreplicas=5\nordinal=2\n" + a + "deny=true\n",
			"[pool]\nreplicas=7\nweight=2\n" + a + "deny=true\n[limiters.b]\nin-flight=3\n"},
		{a + "rates=[" + rate("a") + rate("b") + rate("c") + "]\n",
			a + "rates=[" + rate("d") + "]\n[limiters.\"0\"]\ndeny=true\n"},
	} {
		f.Add(row[0], row[1])
	}
	f.Fuzz(func(t *testing.T, from, to string) {
		a, b := small(from), small(to)
		if a == nil || b == nil {
			return
		}
		keys := slices.Concat(keysOf(a), keysOf(b))
		c := adjust(t, a)
		want := states(c.reg, keys)
		if c.put(b) == nil {
			want = afresh(t, b, keys)
		}
		if got := states(c.reg, keys); !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v\nwant\n%+v", got, want)
		}
	})
}

// small is the file of a text, without source and proxy; nil if there is none.
func small(text string) *config.File {
	f, err := config.Parse("q.toml", []byte(text))
	if err != nil || f.Proxy != nil || f.Pool.Source != "" || len(f.Limiters) > 10 {
		return nil
	}
	smaller(f)
	return f
}

func keysOf(f *config.File) (keys []string) {
	for _, l := range f.Limiters {
		for key := range l.Overrides {
			keys = append(keys, key)
		}
	}
	return keys
}

// FuzzParse checks that no text panics, that each error stands at a place of the text, and that what is
// accepted can be put in force.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"testdata/quotient.toml", "testdata/library.toml"} {
		text, err := os.ReadFile(name)
		must(f, err)
		f.Add(string(text))
	}
	const a = "[limiters.a]\n"
	for _, text := range []string{
		"", "a = [[[[[[[[1]]]]]]]]", "[limiters.a", "0000000.\"é😀",
		"[limiters.\"é😀\"]\nin-flight = \"é\"\n",
		"limiters.a.in-flight = 1\nlimiters.\"b\\\"c\".deny = true\n",
		"limiters = { a = { in-flight = 1, plans = { p = { deny = true } } } }",
		"[[limiters.a.rates]]\nevents = 1\nper = \"1s\"\n[[limiters.a.rates]]\nevents = 1\nper = \"1m\"\n" +
			"[limiters.a.plans.p]\n[[limiters.a.plans.p.rates]]\nevents = 0\n",
		"[limiters.a]\r\nin-flight = 1\r\nx = 1\r\n",
		a + "max-wait = 1979-05-27T07:32:00Z\nin-flight = 07:32:00\n",
		a + "in-flight = 1\npolicy = \"\"\"\nfixed\"\"\"\n",
		a + "in-flight = 1\noverrides.\"a.b[0]\".deny = true\noverrides.'x\"'.in-flight = -1\n",
		a + `rates = [{events=inf,per="1s"},{events=-nan,per="9223372036854775807ns"},{events=1e400,per="1s"}]`,
		"[pool]\nreplicas = 9223372036854775807\n" + a + "max-keys = 1\nin-flight = 1073741824\n" +
			`rates = [{events=1e12,per="1s",burst=1099511627776}]`,
		a + "in-flight = 1\n[proxy]\nupstreams = [\"http://[::1]:80\", \"http://%zz\"]\n[[proxy.rules]]\n" +
			"pattern = \"GET h.test/{a}/{b...}\"\nlimiter = \"a\"\n[[proxy.rules]]\npattern = \"/{$}\"\n" +
			"limiter = \"a\"\n[[proxy.rules]]\npattern = \"/\"\nexempt = true\n",
		"[leases]\ngrace = \"1h 30m\"\n[leases.semaphores]\nA = 1\n[leases.election]\nendpoints = [\"a:1\"]\n",
		"litter_collection_interval = \"5min\"\n[semaphores]\nA = 1\nB = { max = 5, level = 2 }\n" +
			"[semaphores.\"/&\"]\nmax = 0\n[logging.gelf]\nport = 1\n",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, parse := range []func(string, []byte) (*config.File, error){config.Parse, config.ParseAny} {
			parsed(t, text, parse)
		}
	})
}

// parsed holds for one text and one way to read it.
func parsed(t *testing.T, text string, parse func(string, []byte) (*config.File, error)) {
	t.Helper()
	file, err := parse("q.toml", []byte(text))
	if err != nil {
		inside(t, text, err)
		return
	}
	file.Pool.Source, file.Pool.Replicas = "", max(file.Pool.Replicas, 1) // no name is looked up
	file.Pool.Ordinal, file.Pool.Await, file.Pool.MaxAge = 0, false, 0
	smaller(file)
	c, err := config.New(file, &quotient.Registry{})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if d := c.State().Differs; d != nil {
		t.Fatalf("%v\n%s", d, text)
	}
	if file.Leases != nil {
		must(t, file.Leases.Config().Validate())
	}
}

// smaller bounds the memory that a limiter may take at its start.
func smaller(f *config.File) {
	for name, l := range f.Limiters {
		l.MaxKeys = min(l.MaxKeys, 4096)
		if len(l.Overrides) <= l.MaxKeys/2 {
			f.Limiters[name] = l
		}
	}
}

// inside requires that all errors stand in the text.
func inside(t *testing.T, text string, err error) {
	t.Helper()
	var all config.Errors
	if !errors.As(err, &all) || len(all) == 0 || len(all) > 20 {
		t.Fatalf("%T of %d: %v", err, len(all), err)
	}
	lines := strings.Split(text, "\n")
	for _, e := range all {
		if e.Line < 1 || e.Line > len(lines) || e.Column < 1 || e.File != "q.toml" || e.Text == "" ||
			e.Column > utf8.RuneCountInString(lines[e.Line-1])+1 {
			t.Fatalf("%q: %+v", text, e)
		}
	}
}
