package main

import (
	"bytes"
	"flag"
	"log/slog"
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
			if command != "" && !strings.Contains(out.String(), "\n    "+"quotient "+command) &&
				command != "completion" {
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
		{"check testdata/nosource.toml", exitFailed,
			"testdata/nosource.toml:2:10: pool.source: \"reddis\" is not one of"},
		{"proxy --config testdata/broken.toml", exitFailed, "testdata/broken.toml:3:1: limiters.api.rate"},
		{"proxy --config testdata/noproxy.toml", exitFailed, "[proxy] is missing"},
		{"completion tcsh", exitUsage, "bash"},
		{"check testdata/throttle.toml", exitFailed,
			"testdata/throttle.toml:2:5: semaphores.A: 0 is not between 1"},
		{"leases -c testdata/throttle.toml", exitFailed,
			"testdata/throttle.toml:2:5: semaphores.A: 0 is not between 1"},
		{"leases -c testdata/broken.toml", exitFailed, "testdata/broken.toml:3:1: limiters.api.rate"},
		{"leases -c testdata/noproxy.toml", exitFailed,
			"testdata/noproxy.toml: the section [leases] is missing"},
		{"leases -c testdata", exitFailed, "it is no regular file"},
		{"leases --port 65536", exitUsage, "--port is 65536, want 0 to 65535"},
		{"leases --address a/b", exitUsage, "--address: \"a/b\" is no host"},
		{"leases --grace 5", exitUsage, "--grace: duration \"5\""},
		{"leases --grace 400days", exitUsage, "--grace: 9600h0m0s is not between"},
		{"leases -s A", exitUsage, "--semaphore is \"A\", want a name and a whole number"},
		{"leases -s A=x", exitUsage, "--semaphore is \"A=x\""},
		{"leases -s A=0", exitUsage, "--semaphore A=0: 0 is not between 1"},
		{"leases -s A=1 -s A=2", exitUsage, "\"A\" is given twice"},
		{"leases --advertise http://a", exitUsage, "--advertise requires --election"},
		{"leases --election a:1 --address 0.0.0.0", exitUsage, "--advertise: it is missing"},
		// An empty variable gives an empty flag.
		{"leases --election= --port 0 --admin 0.0.0.0:0", exitUsage, "--election is empty"},
		{"leases --election=, --port 0 --admin 0.0.0.0:0", exitUsage, "--election: \"\" is no host:port"},
		{"leases --election a:1 --advertise= --admin 0.0.0.0:0", exitUsage, "--advertise is empty"},
		{"leases --election a", exitUsage, "--election: \"a\" is no host:port"},
		{"leases --election a:1 --advertise a", exitUsage, "--advertise: \"a\" is no URL"},
		{"leases --admin-token-file f", exitUsage, "--admin-token-file requires --admin"},
		{"leases --port 0 --admin 0.0.0.0:0", exitFailed, "loopback"},
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
	code := run(t.Context(), []string{"check", "testdata/print-config.toml"}, streams{&out, &errs})
	if code != exitOK {
		t.Fatalf("exit %d: %s", code, &errs)
	}
	if !strings.HasSuffix(out.String(), "print-config.toml: ok: 1 limiter, 1 rule\n") {
		t.Errorf("got %q", &out)
	}
}

func TestCheckPraisesLeases(t *testing.T) {
	var out, errs bytes.Buffer
	args := []string{"check", "../../config/testdata/throttle.toml"}
	if code := run(t.Context(), args, streams{&out, &errs}); code != exitOK {
		t.Fatalf("exit %d: %s", code, &errs)
	}
	if !strings.HasSuffix(out.String(), "throttle.toml: ok: 4 semaphores\n") ||
		strings.Count(errs.String(), "\n") != 4 {
		t.Errorf("got %q, %q", &out, &errs)
	}
}

func TestLevelsOfTheLog(t *testing.T) {
	for text, want := range map[string]slog.Level{
		"": slog.LevelWarn, "error": slog.LevelError, "WARN": slog.LevelWarn, "INFO": slog.LevelInfo,
		"TRACE": slog.LevelDebug,
	} {
		got, err := levelOf(func(string) (string, bool) { return text, true })
		if err != nil || got != want {
			t.Errorf("%s: %v, %v, want %v", text, got, err, want)
		}
	}
	if _, err := levelOf(func(string) (string, bool) { return "loud", true }); err == nil ||
		!strings.Contains(err.Error(), "loud") {
		t.Errorf("got %v", err)
	}
}

func TestVersion(t *testing.T) {
	for _, arg := range []string{"version", "--version"} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), []string{arg}, streams{&out, &errs}); code != exitOK {
			t.Fatalf("%s: exit %d: %s", arg, code, &errs)
		}
		if fields := strings.Fields(out.String()); len(fields) < 4 || fields[0] != "quotient" ||
			!strings.Contains(fields[len(fields)-1], "/") {
			t.Errorf("%s: got %q", arg, &out)
		}
	}
}
