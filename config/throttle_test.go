package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/lease"
)

// TestThrottle checks that the file of the other server is read as that reads it.
func TestThrottle(t *testing.T) {
	f, err := config.ReadAny("testdata/throttle.toml")
	must(t, err)
	want(t, "the leases", f.Leases.Config(), lease.Config{
		Semaphores: map[string]lease.Semaphore{
			"A": {Max: 42}, "B": {Max: 4, Level: 1}, "C": {Max: 3, Level: 2}, "/&": {Max: 1},
		},
		KeepIdle: 90 * time.Minute, Grace: 30 * time.Second, MaxPeers: 500,
	})
	if e := f.Leases.Election; e == nil || e.TTL != 5*time.Second ||
		e.PasswordFile != filepath.Join("testdata", "password") {
		t.Errorf("the election is %+v", e)
	}
	warnings := strings.Split(f.Warnings.Error(), "\n")
	for i, text := range []string{
		"throttle.toml:2:1: colour: unknown field", "throttle.toml:10:16: semaphores.C.shade: unknown field",
		"throttle.toml:14:10: logging.gelf: the log goes to stderr",
		"throttle.toml:16:10: logging.stderr: the log goes to stderr",
	} {
		if len(warnings) != 4 || !strings.Contains(warnings[i], text) {
			t.Fatalf("warnings %q, want %q", warnings, text)
		}
	}
}

func TestThrottleThatMakesNoSense(t *testing.T) {
	for text, want := range map[string]string{
		"[semaphores]\nA = 0":                "q.toml:2:5: semaphores.A: 0 is not between 1 and 1099511627776",
		"[semaphores]\nA = { max = -1 }":     "q.toml:2:13: semaphores.A.max: -1 is not",
		"[semaphores]\nA = \"1\"":            "q.toml:2:5: semaphores.A: got text, want a whole number",
		"[semaphores.A]\nlevel = 1":          "q.toml:1:13: semaphores.A.max: it is missing",
		"litter_collection_interval = \"5\"": "litter_collection_interval: \"5\" is no duration",
		"litter_collection_interval = 5":     "litter_collection_interval: got a whole number, want a duration",
		"max_peers = 0":                      "max_peers: 0 is not between",
		"grace = \"-1s\"":                    "grace: -1s is not between",

		"[election]\nendpoints = [\"a:1\"]\npassword_file = \"p\"": "election.user: it is missing",
		"[semaphores": "q.toml:1:11",
		// of a file of ours
		"[semaphore]\nA = 1":                           "semaphore: unknown field",
		"[leases]\n[semaphores]\nA = 1":                "q.toml:2:2: semaphores: unknown field",
		"[limiters.api]\nin-flight = 1\nmax_peers = 1": "limiters.api.max_peers: unknown field",
	} {
		_, err := config.ParseAny("q.toml", []byte(text))
		fails(t, err, want)
	}
}

func TestParseAnyTakesBoth(t *testing.T) {
	for text, semaphores := range map[string]int{
		"":                                   0,
		"# nothing":                          0,
		"[semaphores]":                       0,
		"[leases.semaphores]\nA = 1":         1,
		"[semaphores]\nA = 1\nB = 2":         2,
		"\ufeff[semaphores]\r\nA = 1\r\n":    1, // as editors on Windows begin a file
		"[semaphores.A]\nmax = 1\nlevel = 1": 1,
		"[limiters.api]\nin-flight = 1":      -1,
	} {
		f, err := config.ParseAny("q.toml", []byte(text))
		must(t, err)
		if got := f.Leases; (got == nil) != (semaphores < 0) ||
			got != nil && len(got.Semaphores) != semaphores {
			t.Errorf("%q: %+v, want %d semaphores", text, got, semaphores)
		}
	}
}

// TestBoundsOfLeases checks that what this package accepts, package lease does too, and no less. The pages' tests
// have the ranges of numbers.
func TestBoundsOfLeases(t *testing.T) {
	const most = "max-peers = 1_048_576\nkeep-idle = \"365days\"\n" +
		"semaphores.A = { max = 1_099_511_627_776, level = 2_147_483_648 }"
	for text, ok := range map[string]bool{
		most: true,
		"semaphores." + strings.Repeat("n", 1024) + " = 1": true,
		"semaphores." + strings.Repeat("n", 1025) + " = 1": false,
	} {
		f, err := config.Parse("q.toml", []byte("[leases]\n"+text))
		if (err == nil) != ok {
			t.Errorf("%.40s: %v", text, err)
		}
		if err == nil {
			must(t, f.Leases.Config().Validate())
		}
	}
	for _, c := range []lease.Config{
		{MaxPeers: 1<<20 + 1}, {Semaphores: map[string]lease.Semaphore{"A": {Max: 1, Level: 1<<31 + 1}}},
	} {
		if c.Validate() == nil {
			t.Errorf("package lease allows %+v", c)
		}
	}
	if parse(t, "[leases]\nkeep-idle = \"0s\"").Leases.Config().KeepIdle == 0 {
		t.Error("0s is the default")
	}
}

// TestThrottleThatComesToBe checks that a file which is absent is empty, that it counts once it is there,
// and that one which goes away or breaks later changes nothing.
func TestThrottleThatComesToBe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "throttle.toml")
	f, err := config.ReadThrottle(path)
	must(t, err)
	if len(f.Leases.Semaphores) != 0 || len(f.Warnings) != 1 ||
		!strings.Contains(f.Warnings[0].Error(), "there is no such file") {
		t.Fatalf("got %+v, warnings %v", f.Leases, f.Warnings)
	}
	w := follow(t, f, func(f *config.File) int { return int(f.Leases.Semaphores["A"].Max) }, nil)
	write(t, path, "[semaphores]\nA = 1\n")
	w.want(1)
	write(t, path, "[semaphores]\nA = 0\n")
	fails(t, w.Reload(), "semaphores.A: 0 is not")
	must(t, os.Remove(path))
	if err := w.Reload(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	want(t, "A", w.File().Leases.Semaphores["A"].Max, int64(1))
	write(t, path, "[semaphores]\nA = 2\n")
	w.want(2)
}
