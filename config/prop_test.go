package config_test

import (
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/config"
	"pgregory.net/rapid"
)

// TestPropertyRoundTrip: what is written is what is read.
func TestPropertyRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFile(t, rapid.Bool().Draw(t, "proxy"))
		drawDemand(t, f)
		text := encode(f, rapid.Bool().Draw(t, "full"))
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
	b := config.File{Pool: f.Pool, Limiters: f.Limiters}
	if f.Proxy != nil {
		p := *f.Proxy
		p.Rules = slices.Clone(p.Rules)
		for i := range p.Rules {
			p.Rules[i].Line = 0
		}
		if len(p.Trusted) == 0 {
			p.Trusted = nil
		}
		if len(p.Admin.Hosts) == 0 {
			p.Admin.Hosts = nil
		}
		b.Proxy = &p
	}
	b.Leases = f.Leases
	return b
}

// state is what a limiter is set to.
type state struct {
	limit     string
	plans     map[string]string
	overrides map[string]string
	dryRun    bool
	pool      quotient.Pool
}

// states are what the limiters of a registry are set to.
func states(reg *quotient.Registry, keys []string) map[string]state {
	all := make(map[string]state)
	for name, l := range reg.All() {
		now := l.Stats()
		s := state{now.Limit.String(), map[string]string{}, map[string]string{}, now.DryRun, now.Pool.Pool}
		for _, p := range now.Plans {
			s.plans[p.Name] = p.Limit.String()
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

// allowed is b with what a limiter of a cannot change.
func allowed(a, b *config.File) *config.File {
	b.Pool.HoldDown, b.Pool.MaxAge, b.Pool.Await = a.Pool.HoldDown, a.Pool.MaxAge, a.Pool.Await
	for name, l := range b.Limiters {
		if was, ok := a.Limiters[name]; ok {
			l.MaxKeys, l.Queue, l.QueuePerKey = was.MaxKeys, was.Queue, was.QueuePerKey
			l.Policy, l.BeyondShare = was.Policy, was.BeyondShare
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
		a.Pool.Source, b.Pool.Source = "", ""
		a.Pool = config.Pool{Replicas: a.Pool.Replicas + 5, Ordinal: min(a.Pool.Ordinal, 3), Weight: 1}
		b.Pool = config.Pool{Replicas: b.Pool.Replicas + 5, Ordinal: min(b.Pool.Ordinal, 3), Weight: 1}
		b = allowed(a, b)
		changing := &config.File{}
		var reg, fresh quotient.Registry
		c, err := config.New(a, &reg, config.Adjust(func(f *config.File) error {
			if changing.Limiters != nil {
				f.Limiters, f.Pool = maps.Clone(changing.Limiters), changing.Pool
			}
			return nil
		}))
		if err != nil {
			t.Fatal(err)
		}
		if d := c.State().Differs; d != nil {
			t.Fatalf("differs at first: %v", d)
		}
		for name, l := range reg.All() {
			if next, ok := b.Limiters[name]; ok && !reflect.DeepEqual(next, a.Limiters[name]) {
				must(t, l.Override("by hand", &quotient.Limit{Deny: true}))
				must(t, l.SetPlan("by.hand", &quotient.Limit{InFlight: 3}))
			}
		}
		changing.Limiters, changing.Pool = b.Limiters, b.Pool
		must(t, c.Reload())
		if _, err := config.New(b, &fresh); err != nil {
			t.Fatal(err)
		}
		if got, want := states(&reg, keys), states(&fresh, keys); !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v\nwant\n%+v", got, want)
		}
		if d := c.State().Differs; d != nil {
			t.Fatalf("differs: %v", d)
		}
	})
}

type fataler interface {
	Helper()
	Fatal(...any)
}

func must(t fataler, err error) {
	if t.Helper(); err != nil {
		t.Fatal(err)
	}
}
