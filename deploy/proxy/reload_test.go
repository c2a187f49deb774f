package proxy

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/config"
)

// TestRestartsOfThePage checks that the page marks what a reload refuses, and nothing else, of [pool] and of
// limiters.
func TestRestartsOfThePage(t *testing.T) {
	tried := 0
	for _, r := range rows(t) {
		if r.section != "pool" && r.section != "limiters.api" {
			continue
		}
		before, after, ok := change(r)
		if !ok {
			continue
		}
		tried++
		says := strings.HasSuffix(r.text, " restart")
		err := reload(t, before, after)
		if (err != nil) != says || says && !strings.Contains(err.Error(), "restart") {
			t.Errorf("%s: the page says restart: %v; a reload: %v", r.at(), says, err)
		}
	}
	if least := 13; tried < least {
		t.Errorf("%d fields were changed, want %d at least", tried, least)
	}
}

// change returns two files that differ in one field.
func change(r row) (before, after file, ok bool) {
	good, _ := ends(r)
	value := toml(r.value)
	i := slices.IndexFunc(good, func(s string) bool {
		return s != value && s != `"0s"` && s != "0" && s != `"8760h0m0s"` && s != "1073741824"
	})
	if i < 0 {
		return nil, nil, false
	}
	return with(r.at(), ""), with(r.at(), good[i]), true
}

// reload puts one file in force and then the other, and returns the error of that.
func reload(t *testing.T, before, after file) error {
	t.Helper()
	path := filepath.Join(t.TempDir(), "quotient.toml")
	for _, f := range []file{before, after} {
		if _, err := f.parse(); err != nil {
			t.Fatal(err)
		}
	}
	write := func(f file) {
		if err := os.WriteFile(path, []byte(f.text()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(before)
	f, err := config.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.New(f, new(quotient.Registry))
	if err != nil {
		t.Fatal(err)
	}
	write(after)
	return c.Reload()
}
