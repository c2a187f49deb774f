package main

import (
	"bytes"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/config"
)

// parsed returns quotient proxy as a command line and an environment make it.
func parsed(t *testing.T, env map[string]string, args ...string) (*proxyCmd, error) {
	t.Helper()
	for name, value := range env {
		t.Setenv(name, value)
	}
	var c cli
	var out, errs bytes.Buffer
	parser, err := newParser(&c, streams{&out, &errs}, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	k, err := parser.Parse(append([]string{"proxy"}, args...))
	if err != nil {
		return nil, err
	}
	return &c.Proxy, c.Proxy.complete(givenTo(k), os.LookupEnv)
}

// fileOf returns what a command line makes of the flags, through the text of a file.
func fileOf(t *testing.T, env map[string]string, args ...string) *config.File {
	t.Helper()
	c, err := parsed(t, env, args...)
	if err != nil {
		t.Fatal(err)
	}
	f, err := c.parse()
	if err != nil {
		text, _ := c.text()
		t.Fatalf("%v\n%s", err, text)
	}
	return f
}

func TestFlagsMakeAFile(t *testing.T) {
	perMinute := func(n float64) quotient.Rate {
		return quotient.Rate{Name: "minute", Events: n, Per: time.Minute, Aligned: true}
	}
	for name, c := range map[string]struct {
		args string
		env  map[string]string
		want func(f *config.File, l *config.Limiter) bool
	}{
		"the limits": {"u:1", nil, func(_ *config.File, l *config.Limiter) bool {
			return len(l.Limit.Rates) == 1 && l.Limit.Rates[0] == perMinute(100) && l.Limit.InFlight == 100
		}},
		"waits for ever": {"u:1", nil, func(_ *config.File, l *config.Limiter) bool {
			return !l.Refuse && l.MaxWait == 0
		}},
		"fixed, below the share": {"u:1", nil, func(_ *config.File, l *config.Limiter) bool {
			return l.Policy == "fixed" && !l.BeyondShare
		}},
		"one rule": {"u:1", nil, func(f *config.File, _ *config.Limiter) bool {
			r := f.Proxy.Rules
			return len(r) == 1 && r[0].Pattern == "/" && r[0].Key.Kind == config.KeyPath && !r[0].Exempt
		}},
		"addresses": {"u:1", nil, func(f *config.File, _ *config.Limiter) bool {
			return f.Proxy.Listen == "127.0.0.1:4040" && f.Proxy.Admin.Listen == "127.0.0.1:4041"
		}},
		"alone": {"u:1", nil, func(f *config.File, _ *config.Limiter) bool {
			return f.Pool.Replicas == 1 && f.Pool.Source == "" && f.Pool.Ordinal == 0
		}},
		"no file to follow": {"u:1", nil,
			func(f *config.File, _ *config.Limiter) bool { return f.Path == "" }},
		"upstreams": {"u:1 https://v h2c://w:2", nil, func(f *config.File, _ *config.Limiter) bool {
			ups := f.Proxy.Upstreams
			return len(ups) == 3 && ups[0].String() == "http://u:1" && ups[1].String() == "https://v" &&
				ups[2].Scheme == "h2c"
		}},
		"--rpm": {"--rpm 7 u:1", nil, func(_ *config.File, l *config.Limiter) bool {
			return l.Limit.Rates[0] == perMinute(7)
		}},
		"--rpm 0": {"--rpm 0 u:1", nil, func(_ *config.File, l *config.Limiter) bool {
			return len(l.Limit.Rates) == 0
		}},
		"--inflight": {"--inflight 7 u:1", nil,
			func(_ *config.File, l *config.Limiter) bool { return l.Limit.InFlight == 7 }},
		"--inflight 0": {"--inflight 0 u:1", nil,
			func(_ *config.File, l *config.Limiter) bool { return l.Limit.InFlight == 0 }},
		"--refuse": {"--refuse u:1", nil, func(_ *config.File, l *config.Limiter) bool { return l.Refuse }},
		"--max-wait": {"--max-wait 90s u:1", nil,
			func(_ *config.File, l *config.Limiter) bool { return l.MaxWait == 90*time.Second }},
		"--max-keys": {"--max-keys 9 u:1", nil,
			func(_ *config.File, l *config.Limiter) bool { return l.MaxKeys == 9 }},
		"--policy": {"--policy tracking u:1", nil,
			func(_ *config.File, l *config.Limiter) bool { return l.Policy == "tracking" }},
		"--admin off": {"--admin off u:1", nil,
			func(f *config.File, _ *config.Limiter) bool { return f.Proxy.Admin.Listen == "off" }},
		"--listen": {"--listen :80 u:1", nil,
			func(f *config.File, _ *config.Limiter) bool { return f.Proxy.Listen == ":80" }},
		"--replicas": {"--replicas 3 u:1", nil,
			func(f *config.File, _ *config.Limiter) bool { return f.Pool.Replicas == 3 }},
		"--ordinal": {"--replicas 3 --ordinal 2 u:1", nil,
			func(f *config.File, _ *config.Limiter) bool { return f.Pool.Ordinal == 2 }},
		"env: listen": {"u:1", map[string]string{"QUOTIENT_LISTEN": ":81"},
			func(f *config.File, _ *config.Limiter) bool { return f.Proxy.Listen == ":81" }},
		"env: replicas": {"u:1", map[string]string{"QUOTIENT_REPLICAS": "5"},
			func(f *config.File, _ *config.Limiter) bool { return f.Pool.Replicas == 5 }},
		"flags go first": {"--replicas 4 u:1", map[string]string{"QUOTIENT_REPLICAS": "5"},
			func(f *config.File, _ *config.Limiter) bool { return f.Pool.Replicas == 4 }},
		"env: a pod's index": {"--replicas 3 u:1", map[string]string{"QUOTIENT_ORDINAL": "0"},
			func(f *config.File, _ *config.Limiter) bool {
				return f.Pool.Ordinal == 1
			}},
		"--pool, no way back": {"--pool dns:p. u:1", nil, func(f *config.File, _ *config.Limiter) bool {
			return f.Pool.Source == "dns:p." && f.Pool.Await && f.Pool.Replicas == 0 &&
				f.Pool.MaxAge > 1000*time.Hour
		}},
		"--pool and --replicas": {"--pool redis://h:1/0 --replicas 6 u:1", nil,
			func(f *config.File, _ *config.Limiter) bool {
				return f.Pool.Await && f.Pool.Replicas == 6 && f.Pool.MaxAge == time.Minute
			}},
		"text that TOML would escape": {`--pool file:/a'b"c\d u:1`, nil,
			func(f *config.File, _ *config.Limiter) bool {
				return f.Pool.Source == `file:/a'b"c\d`
			}},
	} {
		t.Run(name, func(t *testing.T) {
			f := fileOf(t, c.env, strings.Fields(c.args)...)
			l := f.Limiters[limiterName]
			if !c.want(f, &l) {
				t.Errorf("got %+v\n%+v\n%+v", f.Pool, l, f.Proxy)
			}
		})
	}
}

func TestFlagsThatMakeNoSense(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"", "an upstream is missing"},
		{"--rpm 0 --inflight 0 u:1", "--rpm and --inflight are both 0"},
		{"--rpm -1 u:1", "--rpm: "},
		{"--inflight -1 u:1", "--inflight: "},
		{"--max-keys 0 u:1", "--max-keys: "},
		{"--max-wait 0 u:1", "--max-wait is 0s"},
		{"--max-wait=-1s u:1", "--max-wait is -1s"},
		{"--max-wait 1s --refuse u:1", "--refuse and --max-wait can't be used together"},
		{"--policy ramp u:1", `"fixed","tracking"`},
		{"--log xml u:1", `"text","json"`},
		{"--listen nonsense u:1", "--listen: "},
		{"--admin nonsense u:1", "--admin: "},
		{"--admin 0.0.0.0:1 u:1", "--admin: "}, // all the world, without a token
		{"--replicas 0 u:1", "--replicas is 0"},
		{"--replicas 2000000 u:1", "--replicas: "},
		{"--ordinal 0 u:1", "QUOTIENT_ORDINAL is for a pod's index"},
		{"--replicas 2 --ordinal 3 u:1", "--ordinal: "},
		{"--pool dns: u:1", "--pool: "},
		{"http://u/path", "UPSTREAM: "},
		{"ftp://u", "UPSTREAM: "},
		{"8080", "8080 is a port without a host: want localhost:8080"},
		{":8080", ":8080 is a port without a host: want localhost:8080"},
		{"u:1 u:1", "UPSTREAM: "},
		{"--demo u:1", "--demo has an upstream of its own"},
		{"--demo-for 1m u:1", "--demo-for requires --demo"},
		{"--demo --demo-for 0s", "--demo-for is 0s"},
		{"--config f u:1", "u:1 does not go with --config"},
		{"--config f --rpm 5", "--rpm does not go with --config"},
		{"--config f --listen :1", "--listen does not go with --config"},
		{"--config f --admin off", "--admin does not go with --config"},
		{"--config f --refuse", "--refuse does not go with --config"},
		{"--config f --demo", "--demo does not go with --config"},
		{"--config f --print-config", "--print-config does not go with --config"},
		{"--config f --pool env:", "--pool does not go with --config"},
		{"--nosuch u:1", "--nosuch"},
	} {
		t.Run(c.args, func(t *testing.T) {
			cmd, err := parsed(t, nil, strings.Fields(c.args)...)
			if err == nil {
				_, err = cmd.parse()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// TestASourceThatIsNotThere: what is wrong with --pool is found only when the service is made.
func TestASourceThatIsNotThere(t *testing.T) {
	cmd, err := parsed(t, nil, "--pool", "foo:bar", "u:1")
	if err != nil {
		t.Fatal(err)
	}
	_, err = cmd.open(t.Context(), slog.New(slog.DiscardHandler))
	if err == nil || !strings.HasPrefix(err.Error(), `--pool: "foo" is not one of`) {
		t.Errorf("got %v", err)
	}
}

func TestEnvironmentThatMakesNoSense(t *testing.T) {
	for name, c := range map[string]struct {
		env  map[string]string
		args string
		want string
	}{
		"an ordinal below 0": {map[string]string{"QUOTIENT_ORDINAL": "-1"}, "u:1",
			`QUOTIENT_ORDINAL is "-1"`},
		"an ordinal in words": {map[string]string{"QUOTIENT_ORDINAL": "one"}, "u:1",
			`QUOTIENT_ORDINAL is "one"`},
		"an ordinal, empty": {map[string]string{"QUOTIENT_ORDINAL": ""}, "u:1", `QUOTIENT_ORDINAL is ""`},
		"an ordinal beyond": {map[string]string{"QUOTIENT_ORDINAL": "3"}, "--replicas 3 u:1",
			`QUOTIENT_ORDINAL is "3", want less than`},
		"replicas in words": {map[string]string{"QUOTIENT_REPLICAS": "many"}, "u:1", "QUOTIENT_REPLICAS"},
		"no replicas":       {map[string]string{"QUOTIENT_REPLICAS": "0"}, "u:1", "QUOTIENT_REPLICAS is 0"},
		"an address and a file": {map[string]string{"QUOTIENT_LISTEN": ":1"}, "--config f",
			"QUOTIENT_LISTEN does not go with --config"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parsed(t, c.env, strings.Fields(c.args)...); err == nil ||
				!strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// TestBesideAFile checks that a fleet can share one file: what is a replica's own stands beside it.
func TestBesideAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "quotient.toml")
	c, err := parsed(t, nil, "u:1", "--replicas", "2")
	if err != nil {
		t.Fatal(err)
	}
	text, err := c.text()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		env               map[string]string
		args              []string
		replicas, ordinal int
	}{
		"nothing":       {nil, nil, 2, 0},
		"an ordinal":    {nil, []string{"--ordinal", "2"}, 2, 2},
		"a pod's index": {map[string]string{"QUOTIENT_ORDINAL": "1"}, nil, 2, 2},
		"replicas": {nil,
			[]string{"--replicas", "5", "--ordinal", "4", "--log", "json"}, 5, 4},
		"the environment's replicas": {map[string]string{"QUOTIENT_REPLICAS": "7"}, nil, 7, 0},
	} {
		t.Run(name, func(t *testing.T) {
			cmd, err := parsed(t, c.env, append(c.args, "--config", path)...)
			if err != nil {
				t.Fatal(err)
			}
			f, err := cmd.file()
			if err != nil {
				t.Fatal(err)
			}
			conf, err := config.New(f, new(quotient.Registry), config.Adjust(cmd.adjust))
			if err != nil {
				t.Fatal(err)
			}
			if p := conf.File().Pool; p.Replicas != c.replicas || p.Ordinal != c.ordinal {
				t.Errorf("got %+v, want %d replicas and ordinal %d", p, c.replicas, c.ordinal)
			}
		})
	}
}

// TestPrintConfig checks that what is printed is the file that the flags are read through.
func TestPrintConfig(t *testing.T) {
	var out, errs bytes.Buffer
	args := []string{"proxy", "--print-config", "--rpm", "60", "--refuse", "--replicas", "3", "--pool",
		"env:", "localhost:8080"}
	if code := run(t.Context(), args, streams{&out, &errs}); code != exitOK {
		t.Fatalf("exit %d: %s", code, &errs)
	}
	golden(t, "print-config.toml", out.Bytes())
	if _, err := config.Parse("printed", out.Bytes()); err != nil {
		t.Error(err)
	}
}

// TestEachFlagNamesItsField checks that flagOf names fields that there are: else an error would name the
// field.
func TestEachFlagNamesItsField(t *testing.T) {
	c, err := parsed(t, nil, "--pool", "env:", "--replicas", "2", "--ordinal", "1", "--max-wait", "1s", "u:1")
	if err != nil {
		t.Fatal(err)
	}
	text, err := c.text()
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range sortedKeys(maps.Clone(flagOf)) {
		name := field[strings.LastIndex(field, ".")+1:]
		if !strings.Contains(string(text), "\n"+name+" = ") {
			t.Errorf("%s is not in the file:\n%s", field, text)
		}
	}
}
