package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/config"
)

// parsed returns quotient proxy as a command line and an environment, "NAME=value", make it.
func parsed(t *testing.T, env, args string) (*proxyCmd, error) {
	t.Helper()
	for variable := range strings.FieldsSeq(env) {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
	}
	var c cli
	parser, err := newParser(&c, streams{io.Discard, io.Discard}, func(int) {})
	must(t, err)
	k, err := parser.Parse(append([]string{"proxy"}, strings.Fields(args)...))
	if err != nil {
		return nil, err
	}
	return &c.Proxy, c.Proxy.complete(givenTo(k), os.LookupEnv)
}

// TestFlagsMakeAFile: the text that flags are turned into, which they are read through.
func TestFlagsMakeAFile(t *testing.T) {
	for _, c := range []struct {
		env, args string
		has       []string // "key = value"; a key alone must be absent
	}{
		{"", "u:1", []string{
			"rates = [{name = 'minute', events = 100, per = '1m', aligned = true}]", "in-flight = 100",
			"mode = 'wait'", "max-wait", "max-keys = 65536", "policy = 'fixed'", "ceiling",
			"listen = '127.0.0.1:4040'", "listen = '127.0.0.1:4041'", "upstreams = ['http://u:1']",
			"pattern = '/'", "limiter = 'path'", "key = 'path'", "replicas", "source", "ordinal",
		}},
		{"", "u:1 https://v h2c://w:2", []string{"upstreams = ['http://u:1', 'https://v', 'h2c://w:2']"}},
		{"", "--rpm 7 u:1", []string{"rates = [{name = 'minute', events = 7, per = '1m', aligned = true}]"}},
		{"", "--rpm 0 u:1", []string{"rates"}},
		{"", "--inflight 7 u:1", []string{"in-flight = 7"}},
		{"", "--inflight 0 u:1", []string{"in-flight"}},
		{"", "--refuse u:1", []string{"mode = 'refuse'"}},
		{"", "--max-wait 90s u:1", []string{"max-wait = '1m30s'", "mode = 'wait'"}},
		{"", "--max-keys 9 u:1", []string{"max-keys = 9"}},
		{"", "--policy tracking u:1", []string{"policy = 'tracking'"}},
		{"", "--admin off u:1", []string{"listen = 'off'"}},
		{"", "--listen :80 u:1", []string{"listen = ':80'"}},
		{"", "--replicas 3 u:1", []string{"replicas = 3"}},
		{"", "--replicas 3 --ordinal 2 u:1", []string{"ordinal = 2"}},
		{"QUOTIENT_LISTEN=:81", "u:1", []string{"listen = ':81'"}},
		{"QUOTIENT_REPLICAS=5", "u:1", []string{"replicas = 5"}},
		{"QUOTIENT_REPLICAS=5", "--replicas 4 u:1", []string{"replicas = 4"}}, // flags go first
		{"QUOTIENT_ORDINAL=0", "--replicas 3 u:1", []string{"ordinal = 1"}},   // a pod's index
		{"", "--pool dns:p. u:1", []string{
			"source = 'dns:p.'", "await = true", "replicas", "max-age = '8760h'", // no way back
		}},
		{"", "--pool redis://h:1/0 --replicas 6 u:1", []string{
			"source = 'redis://h:1/0'", "await = true", "replicas = 6", "max-age = '1m'",
		}},
	} {
		t.Run(c.env+" "+c.args, func(t *testing.T) {
			cmd, err := parsed(t, c.env, c.args)
			must(t, err)
			text, err := cmd.text()
			must(t, err)
			if f, err := cmd.parse(); err != nil || f.Path != "" || f.Pool.Replicas == 0 && f.Pool.Source == "" {
				t.Errorf("%v, %+v", err, f)
			}
			for _, line := range c.has {
				absent := !strings.Contains(line, " = ")
				if absent {
					line += " = "
				}
				if strings.Contains(string(text), "\n"+line) == absent {
					t.Errorf("absent %v: %s\n%s", absent, line, text)
				}
			}
		})
	}
	cmd, err := parsed(t, "", `--pool file:/a'b"c\d u:1`) // what TOML would escape
	must(t, err)
	f, err := cmd.parse()
	must(t, err)
	equal(t, "the source", f.Pool.Source, `file:/a'b"c\d`)
}

// TestBesideAFile checks that a fleet can share one file: what is a replica's own stands beside it.
func TestBesideAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "quotient.toml")
	c, err := parsed(t, "", "u:1 --replicas 2")
	must(t, err)
	text, err := c.text()
	must(t, err)
	must(t, os.WriteFile(path, text, 0o600))
	for _, c := range []struct {
		env, args         string
		replicas, ordinal int
	}{
		{"", "", 2, 0},
		{"", "--ordinal 2", 2, 2},
		{"QUOTIENT_ORDINAL=1", "", 2, 2},
		{"", "--replicas 5 --ordinal 4 --log json", 5, 4},
		{"QUOTIENT_REPLICAS=7", "", 7, 0},
	} {
		t.Run(c.env+c.args, func(t *testing.T) {
			cmd, err := parsed(t, c.env, c.args+" --config "+path)
			must(t, err)
			f, err := cmd.file()
			must(t, err)
			conf, err := config.New(f, new(quotient.Registry), config.Adjust(cmd.adjust))
			must(t, err)
			if p := conf.File().Pool; p.Replicas != c.replicas || p.Ordinal != c.ordinal {
				t.Errorf("got %+v, want %d replicas and ordinal %d", p, c.replicas, c.ordinal)
			}
		})
	}
}

// TestPrintConfig checks that what is printed is the file that the flags are read through. All fields that
// flagOf names are in such a file: else an error would name the field.
func TestPrintConfig(t *testing.T) {
	out := ran(t, exitOK, "", "proxy", "--print-config", "--rpm", "60", "--refuse", "--replicas", "3", "--pool",
		"env:", "localhost:8080")
	golden(t, "print-config.toml", out)
	_, err := config.Parse("printed", []byte(out))
	must(t, err)
	c, err := parsed(t, "", "--pool env: --replicas 2 --ordinal 1 --max-wait 1s u:1")
	must(t, err)
	text, err := c.text()
	must(t, err)
	for field := range flagOf {
		name := field[strings.LastIndex(field, ".")+1:]
		if !strings.Contains(string(text), "\n"+name+" = ") {
			t.Errorf("%s is not in the file:\n%s", field, text)
		}
	}
}
