package config_test

import (
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/config"
)

// FuzzParse checks that no text panics, that each error stands at a place of the text, and that what is
// accepted can be put in force.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"testdata/quotient.toml", "testdata/library.toml"} {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
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
	var reg quotient.Registry
	file.Pool.Source, file.Pool.Replicas = "", max(file.Pool.Replicas, 1) // no name is looked up
	file.Pool.Ordinal, file.Pool.Await, file.Pool.MaxAge = 0, false, 0
	smaller(file)
	c, err := config.New(file, &reg)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if d := c.State().Differs; d != nil {
		t.Fatalf("%v\n%s", d, text)
	}
	if file.Leases != nil {
		if err := file.Leases.Config().Validate(); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
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
		if e.Line < 1 || e.Line > len(lines) || e.Column < 1 ||
			e.Column > utf8.RuneCountInString(lines[e.Line-1])+1 ||
			e.File != "q.toml" || e.Text == "" {
			t.Fatalf("%q: %+v", text, e)
		}
	}
}

// FuzzReload checks that to go from one text to another ends where starting with the other would, or is
// refused and changes nothing.
func FuzzReload(f *testing.F) {
	f.Add(base, strings.NewReplacer("100", "40", "/x", "/y", "paid", "free", "other", "third").Replace(base))
	f.Add(base, base+"max-keys = 7\n")
	f.Add(base, base+"[limiters.api.plans.u]\nrates = [{ events = 1, per = \"1s\", unit = \"a\" }]\n")
	f.Fuzz(func(t *testing.T, from, to string) {
		a, b := small(from), small(to)
		if a == nil || b == nil {
			return
		}
		var reg, fresh quotient.Registry
		now := a
		c, err := config.New(a, &reg, config.Adjust(func(f *config.File) error {
			f.Limiters, f.Pool = now.Limiters, now.Pool
			return nil
		}))
		if err != nil {
			t.Fatal(err)
		}
		before := states(&reg, keysOf(a, b))
		now = b
		want := before
		if c.Reload() == nil {
			if _, err := config.New(b, &fresh); err != nil {
				t.Fatal(err)
			}
			want = states(&fresh, keysOf(a, b))
		}
		if got := states(&reg, keysOf(a, b)); !reflect.DeepEqual(got, want) {
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

// keysOf are the keys that either file has overrides of.
func keysOf(files ...*config.File) (keys []string) {
	for _, f := range files {
		for _, l := range f.Limiters {
			for key := range l.Overrides {
				keys = append(keys, key)
			}
		}
	}
	return keys
}
