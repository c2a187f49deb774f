package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files of testdata anew")

// golden compares with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

func TestHelp(t *testing.T) {
	t.Setenv("COLUMNS", "80")
	for _, command := range []string{"", "proxy", "leases", "check", "version", "completion"} {
		t.Run(command, func(t *testing.T) {
			var out, errs bytes.Buffer
			args := append(strings.Fields(command), "--help")
			if code := run(t.Context(), args, streams{&out, &errs}); code != exitOK || errs.Len() > 0 {
				t.Fatalf("exit %d: %s", code, &errs)
			}
			golden(t, "help"+strings.TrimSuffix("-"+command, "-")+".txt", out.Bytes())
			if command != "" && !strings.Contains(out.String(), "\n    "+"quotient "+command) && command != "completion" {
				t.Error("there is no example")
			}
		})
	}
}

func TestCommandLinesThatMakeNoSense(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"", exitUsage, "expected one of"},
		{"nosuch", exitUsage, "nosuch"},
		{"proxy", exitUsage, "an upstream is missing"},
		{"proxy --rpm many u:1", exitUsage, "--rpm"},
		{"proxy --ordinal 2 u:1", exitUsage, "--ordinal: "},
		{"check", exitUsage, "<file>"},
		{"check testdata/nosuch.toml", exitFailed, "nosuch.toml"},
		{"check testdata/broken.toml", exitFailed, "testdata/broken.toml:3:1: limiters.api.rate"},
		{"check testdata/nosource.toml", exitFailed, "testdata/nosource.toml:2:10: pool.source: \"reddis\" is not one of"},
		{"proxy --config testdata/broken.toml", exitFailed, "testdata/broken.toml:3:1: limiters.api.rate"},
		{"proxy --config testdata/noproxy.toml", exitFailed, "[proxy] is missing"},
		{"completion tcsh", exitUsage, "bash"},
	} {
		t.Run(c.args, func(t *testing.T) {
			var out, errs bytes.Buffer
			if code := run(t.Context(), strings.Fields(c.args), streams{&out, &errs}); code != c.code {
				t.Errorf("exit %d, want %d", code, c.code)
			}
			if !strings.Contains(errs.String(), c.want) {
				t.Errorf("got %q, want %q", &errs, c.want)
			}
			if out.Len() > 0 {
				t.Errorf("stdout has %q", &out)
			}
		})
	}
}

func TestCheckPraises(t *testing.T) {
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"check", "testdata/print-config.toml"}, streams{&out, &errs}); code != exitOK {
		t.Fatalf("exit %d: %s", code, &errs)
	}
	if !strings.HasSuffix(out.String(), "print-config.toml: well: 1 limiter, 1 rule\n") {
		t.Errorf("got %q", &out)
	}
}

func TestVersion(t *testing.T) {
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"version"}, streams{&out, &errs}); code != exitOK {
		t.Fatalf("exit %d: %s", code, &errs)
	}
	if fields := strings.Fields(out.String()); len(fields) < 4 || fields[0] != "quotient" || !strings.Contains(fields[len(fields)-1], "/") {
		t.Errorf("got %q", &out)
	}
}
