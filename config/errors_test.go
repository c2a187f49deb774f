package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/quotient-go/quotient/config"
)

// TestErrors holds the error of each mistake in testdata/errors.txt, and its place. There a text stands above
// five dashes, and all its errors below; five signs of equality end each. A text without errors is valid.
func TestErrors(t *testing.T) {
	all, err := os.ReadFile("testdata/errors.txt")
	must(t, err)
	rows := strings.Split(strings.TrimSuffix(string(all), "=====\n"), "=====\n")
	if len(rows) < 100 {
		t.Fatalf("%d rows are fewer than 100", len(rows))
	}
	for _, row := range rows {
		text, errs, ok := strings.Cut(row, "-----\n")
		if !ok {
			t.Fatalf("no dashes: %s", row)
		}
		want(t, text, wrong(t, text), errs)
	}
}

// wrong is all that is wrong with a text, one a line.
func wrong(t *testing.T, text string) string {
	t.Helper()
	f, err := config.Parse("q.toml", []byte(text))
	if err == nil {
		return ""
	}
	var all config.Errors
	if !errors.As(err, &all) || f != nil {
		t.Fatalf("%v, %v: want no file, and Errors", f, err)
	}
	return all.Error() + "\n"
}

func TestReadOfNoFile(t *testing.T) {
	dir := t.TempDir()
	large := write(t, filepath.Join(dir, "large.toml"), strings.Repeat("# a comment\n", 1<<17))
	for path, text := range map[string]string{
		filepath.Join(dir, "absent.toml"): ": no such file",
		dir:                               "it is no regular file",
		large:                             "config: " + large + ": it is larger than 1048576 bytes",
	} {
		_, err := config.Read(path)
		fails(t, err, text)
	}
}

// TestErrorsAreText: names and values of a file do not speak to the terminal, and are no lines of their own.
func TestErrorsAreText(t *testing.T) {
	for text, want := range map[string]string{
		`"\u001b[2J" = 1` + "\n" + `"\u001b[2J" = 2`: `q.toml:2:1: "\x1b[2J": key \x1b[2J is already defined`,
		`a = 1` + "\n" + `a."x\ny\u009b" = 2`:        `\ny\u009b`,
		`[limiters."a\u202e\nb"]` + "\nx = 1":        `limiters."a\u202e\nb".x: unknown field`,
		"a = \x1b[2J":                                `q.toml:1:5: `,
	} {
		got := wrong(t, text)
		if strings.ContainsFunc(got, func(r rune) bool { return r != '\n' && !strconv.IsPrint(r) }) {
			t.Errorf("%q: %q", text, got)
		}
		if !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	if got := (config.Error{File: "a\x1bb", Line: 1, Text: "c\nd", Hint: "e\r"}).Error(); got != `a\x1bb:1:0: c\nd (e\r)` {
		t.Errorf("got %q", got)
	}
}

// TestBounds: a file with more of anything than there may be is refused, and soon.
func TestBounds(t *testing.T) {
	rate := `{ events = 1, per = "1s" },`
	var limiters, plans, overrides, rules, fields, distinct strings.Builder
	for i := range 9900 {
		fmt.Fprintf(&distinct, "k%d = 1\n", i)
	}
	for i := range 1001 {
		fmt.Fprintf(&limiters, "[limiters.l%d]\nin-flight = 1\n", i)
		fmt.Fprintf(&plans, "[limiters.a.plans.p%d]\nin-flight = 1\n", i)
		fmt.Fprintf(&overrides, "[limiters.a.overrides.k%d]\ndeny = true\n", i)
		fmt.Fprintf(&fields, "refusal.fields.k%d = \"\"\n", i)
		fmt.Fprintf(&rules, "[[proxy.rules]]\npattern = \"/p%d\"\nexempt = true\n", i)
	}
	for _, c := range []struct{ text, want string }{
		{strings.Repeat("a = 1\n", 30_000), "q.toml:1:1: more than 20,000 keys and values"},
		{"a = " + strings.Repeat("[", 20_000), "nested more than the maximum of 10000 levels deep"},
		{strings.Repeat("a.", 400<<10) + "a = 1", "q.toml:1:1: more than 20,000 keys and values"},
		{"[" + strings.Repeat("a.", 5000) + "a]", "names too long, or too many parts of keys"},
		{"a = " + strings.Repeat("[", 9999) + strings.Repeat("]", 9999), "names too long, or too many parts of keys"},
		{"a = " + strings.Repeat("{a=", 9999) + "1" + strings.Repeat("}", 9999), "names too long, or too many parts"},
		{"[" + strings.Repeat("a", 500<<10) + "]\n" + distinct.String(), "names too long, or too many parts of keys"},
		{distinct.String(), "q.toml:1:1: k0: unknown field"},
		{"a = " + strings.Repeat("1", 1<<20-4), "decimal number is too large"},
		{"[limiters.a]\nrates = [" + strings.Repeat(rate, 17) + "]", "limiters.a.rates: 17 are more than 16"},
		{"[proxy]\nupstreams = [" + strings.Repeat(`"http://a",`, 101) + "]",
			"proxy.upstreams: 101 are more than 100"},
		{limiters.String(), "q.toml:1:2: limiters: 1001 are more than 1000"},
		{plans.String(), "limiters.a.plans: 1001 are more than 64"},
		{overrides.String(),
			"limiters.a.overrides: 1001 are more than 1000: at most 1,000, and half of max-keys"},
		{rules.String(), "proxy.rules: 1001 are more than 1000"},
		{"[limiters.a]\noverrides." + strings.Repeat("k", 5000) + ".deny = true",
			"a key of 5000 bytes is longer than 4096"},
		{"[[proxy.rules]]\npattern = \"/\"\nrefusal.body = \"" + strings.Repeat("p", 1<<16+1) + "\"",
			"proxy.rules[0].refusal.body: 65537 bytes are more than 65536"},
		{"[[proxy.rules]]\npattern = \"/\"\nrefusal.type = \"a/b; c=" + strings.Repeat("d", 1025) + "\"",
			"no media type"},
		{"[[proxy.rules]]\npattern = \"/\"\nrefusal.fields.a = \"" + strings.Repeat("b", 1025) + "\"", "no value of"},
		{"[[proxy.rules]]\npattern = \"/\"\nrefusal.fields." + strings.Repeat("b", 257) + " = \"\"", "no name of"},
		{"[[proxy.rules]]\npattern = \"/\"\n" + fields.String(), "proxy.rules[0].refusal.fields: 1001 are more than 16"},
		{"[[proxy.rules]]\npattern = \"/" + strings.Repeat("p", 2000) + "\"",
			"pattern: 2001 bytes are more than 256"},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if got := wrong(t, c.text); !strings.Contains(got, c.want) {
			t.Errorf("%.60s: %.200s, want %s", c.text, got, c.want)
		}
		runtime.ReadMemStats(&after)
		if n := (after.TotalAlloc - before.TotalAlloc) >> 20; n > 200 { // in all: what it costs, in time too
			t.Errorf("%.60s: %d MiB to read %d KiB", c.text, n, len(c.text)>>10)
		}
	}
	// A file with more mistakes than a screen holds has the first twenty.
	text := "[limiters.a]\nrates = 1\n"
	for i := range 30 {
		text += fmt.Sprintf("unknown%02d = 1\n", i)
	}
	got := strings.Split(wrong(t, text), "\n")
	if len(got) != 21 || !strings.HasPrefix(got[19], "q.toml:21:1: limiters.a.unknown18: unknown field") {
		t.Errorf("%d lines: %s", len(got), strings.Join(got, "\n"))
	}
}
