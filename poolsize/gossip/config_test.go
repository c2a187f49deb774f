package gossip

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Each field that makes no sense is refused, and the error names it and its value.
func TestConfigNamesFieldAndValue(t *testing.T) {
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good"), filepath.Join(dir, "bad")
	write(t, good, key(1, 16))
	write(t, bad, "secret")
	loopback := func(c Config) Config { c.Bind = "127.0.0.1:0"; return c }
	for says, c := range map[string]Config{
		`Config.Bind: "here" is not host:port`:           {Bind: "here"},
		`Config.Bind: "web:80" is no address`:            {Bind: "web:80"},
		`Config.Bind: "127.0.0.1:65536" is no address`:   {Bind: "127.0.0.1:65536"},
		`Config.Bind: "[fe80::1%eth0]:80" is no address`: {Bind: "[fe80::1%eth0]:80"},
		`Config.Advertise: "web" is no address`:          loopback(Config{Advertise: "web"}),
		`Config.Advertise: "0.0.0.0:1" is no address`:    loopback(Config{Advertise: "0.0.0.0:1"}),
		`Config.Advertise: ":1" is no address`:           loopback(Config{Advertise: ":1"}),
		`Config.Fleet: "fffffffff`: loopback(
			Config{Fleet: strings.Repeat("f", 101)}),
		`Config.Name: "nnnnnnnnn`: loopback(
			Config{Name: strings.Repeat("n", 201)}),
		`Config.Join[1]: "a:b:c" is no address`: loopback(
			Config{Join: []string{"a", "a:b:c"}}),
		`Config.Join: 1001 addresses are more than 1000`:        loopback(Config{Join: make([]string, 1001)}),
		`Config.JoinDNS: ":80" is no name`:                      loopback(Config{JoinDNS: ":80"}),
		`Config.Interval: 1ms is not between 10ms and 10s`:      loopback(Config{Interval: time.Millisecond}),
		`Config.Probe: 2m0s is not between 50ms and 1m0s`:       loopback(Config{Probe: 2 * time.Minute}),
		`Config.Forget: -1s is not between 100ms and 24h0m0s`:   loopback(Config{Forget: -time.Second}),
		`Config.Rejoin: 2h0m0s is not between 10ms and 1h0m0s`:  loopback(Config{Rejoin: 2 * time.Hour}),
		`Config.Expire: 1ms is not between 1s and 720h0m0s`:     loopback(Config{Expire: time.Millisecond}),
		`Config.PacketSize: 100 is not between 700 and 65000`:   loopback(Config{PacketSize: 100}),
		`Config.MaxKeys: -1 is not between 1 and 65536`:         loopback(Config{MaxKeys: -1}),
		`Config.Weight: 1001 is not between 1 and 1000`:         loopback(Config{Weight: 1001}),
		`key file ` + bad + `: line 1: it is not base64`:        loopback(Config{KeyFile: bad}),
		`key file ` + dir + `: it is no regular file`:           loopback(Config{KeyFile: dir}),
		`key file /nowhere: open: no such file or directory`:    loopback(Config{KeyFile: "/nowhere"}),
		`Config.KeyFile: "" does not go with Bind ":7946"`:      {},
		`Config.KeyFile: "" does not go with Bind "0.0.0.0:0"`:  {Bind: "0.0.0.0:0"},
		`Config.KeyFile: "" does not go with Bind "10.0.0.1:0"`: {Bind: "10.0.0.1:0"},
		`Config.KeyFile: "" does not go with Advertise "10.0`:   loopback(Config{Advertise: "10.0.0.1"}),
	} {
		if s, err := New(c); err == nil || !strings.Contains(err.Error(), "gossip: "+says) || s != nil {
			t.Errorf("%+v: %v, want %q", c, err, says)
		}
	}
	for _, c := range []Config{
		{KeyFile: good}, {Bind: "localhost:0"}, {Bind: "[::1]:80"}, {Bind: "127.9.8.7:0", Advertise: "[::1]"},
		{Bind: "10.0.0.1:0", Advertise: "10.0.0.1:99", KeyFile: good}, {Bind: "[::ffff:127.0.0.1]:0"},
	} {
		if _, err := New(c); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// Failure mode 18: without a key a replica does not start on an address that others can reach.
func TestNoKeyNoGossip(t *testing.T) {
	for _, c := range []Config{{}, {Bind: ":0"}, {Bind: "0.0.0.0:0"}, {Bind: "[::]:0"}, {Bind: "192.0.2.1:0"},
		{Bind: "127.0.0.1:0", Advertise: "192.0.2.1:7946"}} {
		if s, err := New(c); s != nil || err == nil || !strings.Contains(err.Error(), "Config.KeyFile") {
			t.Errorf("%+v: %v, %v", c, s, err)
		}
	}
}

// A name that is not set is one of the host's, and no two replicas with a free port have the same one.
func TestDefaultName(t *testing.T) {
	host, err := os.Hostname()
	must(t, err)
	a, b := source(t, Config{Bind: "127.0.0.1:0"}), source(t, Config{Bind: "127.0.0.1:0"})
	if x, y := a.Stats().Name, b.Stats().Name; x == y || !strings.HasPrefix(x, host+":") {
		t.Errorf("they are called %q and %q", x, y)
	}
	if x := source(t, Config{Bind: "127.0.0.1:99"}).Stats().Name; x != host+":99" {
		t.Errorf("it is called %q", x)
	}
}

// A port that is taken is an error, again and again, until it is free.
func TestPortIsTaken(t *testing.T) {
	a := start(t, config("a"))
	c := config("b")
	c.Bind = a.address(t)
	b := start(t, c)
	b.until(t, "errors", func() bool { _, errs := b.since(0); return len(errs) > 1 })
	if err := b.lastError(); !strings.Contains(err.Error(), "listen on "+c.Bind) {
		t.Error(err)
	}
	a.leave(t)
	b.wants(t, 1, 1)
}

// The logs of memberlist go to the logger, at level debug, or nowhere.
func TestLogger(t *testing.T) {
	var out bytes.Buffer
	c := config("a")
	c.Logger = slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	a := start(t, c)
	b := start(t, config("b", a.address(t)))
	b.wants(t, 2, 2)
	b.leave(t)
	a.leave(t)
	if text := out.String(); !strings.Contains(text, "level=DEBUG") ||
		!strings.Contains(text, "memberlist") ||
		strings.Contains(text, "level=INFO") {
		t.Errorf("logged %q", text)
	}
}
