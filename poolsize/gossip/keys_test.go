package gossip

import (
	"bytes"
	"encoding/base64"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/quotient-go/quotient/internal/tested"
)

// key returns a key in base64.
func key(fill byte, size int) string {
	return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{fill}, size))
}

// rereads waits until a replica has read its key file twice since now.
func (w *replica) rereads(t *testing.T) {
	t.Helper()
	before := w.readings.Load()
	w.Until("it reads the keys again", func() bool { return w.readings.Load() > before+2 })
}

// Keys are exchanged while the fleet runs, one step after the other, and no replica is
// lost.
func TestKeyRotation(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files := []string{filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "c")}
	var all []*replica
	old, fresh := key(1, 16), key(2, 32)
	for i, f := range files {
		write(t, f, "# the fleet's key\n"+old+"\n")
		c := config(string(rune('a' + i)))
		c.KeyFile = f
		c.Probe = time.Second // a busy machine holds a probe up for longer than tests usually allow
		if i > 0 {
			c.Join = []string{all[0].address()}
		}
		all = append(all, start(t, c))
	}
	var counts []int
	for i, w := range all {
		w.Wants(3, i+1)
		counts = append(counts, w.Count())
	}
	total := int64(0)
	for _, step := range []string{old + "\n" + fresh, fresh + "\n" + old, fresh} {
		for i, w := range all { // one replica after the other
			write(t, files[i], step)
			w.rereads(t)
			total++
			w.Counters().Add("k", 1)
			totals(all, "k", total)
		}
	}
	for i, w := range all {
		if n := w.Least(counts[i]); n < 3 {
			t.Errorf("replica %d saw a fleet of %d", i, n)
		}
	}
	write(t, files[0], "garbage")
	all[0].says(files[0])
	if err := all[0].LastErr(); strings.Contains(err.Error(), "garbage") {
		t.Errorf("it gives the file away: %v", err)
	}
	all[1].Counters().Add("k", 1)
	totals(all, "k", total+1)
}

// A replica with another key, or without any, is no member, and knows why.
func TestWrongKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	right, wrong := filepath.Join(dir, "right"), filepath.Join(dir, "wrong")
	write(t, right, key(1, 16))
	write(t, wrong, key(2, 16))
	c := config("a")
	c.KeyFile = right
	a := start(t, c)
	a.Wants(1, 1)
	for _, file := range []string{wrong, ""} {
		c := config("b", a.address())
		c.KeyFile = file
		b := start(t, c)
		b.says(a.address())
		b.silent(t)
		b.Leave()
	}
	a.Wants(1, 1)
	if least, most := a.Range(0); least != 1 || most != 1 {
		t.Errorf("it has counted strangers: %d to %d", least, most)
	}
}

// A key that is being written may look like a shorter one. It must be there twice.
func TestHalfAKey(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys")
	whole := key(1, 32)
	write(t, file, whole)
	c := config("a")
	c.KeyFile = file
	s := source(t, c)
	ring, err := memberlist.NewKeyring(s.keys, s.keys[0])
	must(t, err)
	other := key(2, 32)
	for _, step := range []struct {
		content string
		first   string
	}{
		{whole, whole}, {other[:32], whole}, {other, whole}, {other, other}, {whole[:32], other},
		{other, other}, {other + "\n" + whole, other}, {other + "\n" + whole, other},
	} {
		write(t, file, step.content)
		must(t, s.rereadKeys(t.Context(), ring))
		if got := base64.StdEncoding.EncodeToString(ring.GetPrimaryKey()); got != step.first {
			t.Errorf("after %q: %q encrypts", step.content, got)
		}
	}
	tested.Want(t, "keys", len(ring.GetKeys()), 2)
}

// keyFiles are contents of key files, and how many keys, or which error, they are read as.
var keyFiles = []struct {
	content string
	keys    int
	says    string
}{
	{key(1, 16), 1, ""},
	{"# old\n" + key(1, 16) + "\r\n\n  " + key(2, 24) + "\t# new\n" + key(3, 32), 3, ""},
	{"", 0, "no key"},
	{"# " + key(1, 16), 0, "no key"},
	{key(1, 16) + "\n" + key(1, 16), 0, "line 2: a key that stands there already"},
	{"secret!", 0, "line 1: it is not base64"},
	{key(1, 15), 0, "line 1: a key of 15 bytes"},
	{key(1, 16) + key(2, 24), 0, "line 1: it is not base64"},
	{many(mostKeys + 1), 0, "line 17: there are more than 16 keys"},
}

func TestParseKeys(t *testing.T) {
	for _, row := range keyFiles {
		keys, err := parseKeys(row.content)
		if len(keys) != row.keys || (err == nil) != (row.says == "") ||
			err != nil && !strings.Contains(err.Error(), row.says) {
			t.Errorf("%q: %d keys, %v", row.content, len(keys), err)
		}
	}
}

// many returns so many different keys.
func many(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(key(byte(i), 16) + "\n")
	}
	return b.String()
}

// FuzzKeys checks that no content panics, that what is accepted can be used, whatever a ring held before,
// in the order of the file, and that an error does not give a key away.
func FuzzKeys(f *testing.F) {
	for _, row := range keyFiles {
		f.Add(row.content)
	}
	for _, content := range []string{
		key(1, 24)[:20], strings.TrimRight(key(1, 16), "="), "AAAAAAAAAAAAAAAAAAAAAB==", "_____________________w==",
		"\x00",
	} {
		f.Add(content)
	}
	f.Fuzz(func(t *testing.T, content string) {
		keys, err := parseKeys(content)
		if err != nil {
			if keys != nil || len(err.Error()) > 100 {
				t.Fatalf("refused with %d keys: %v", len(keys), err)
			}
			return
		}
		reversed, other := slices.Clone(keys), bytes.Repeat([]byte{0xee}, 16)
		slices.Reverse(reversed)
		for _, before := range [][][]byte{keys, reversed, {other}, append(reversed, other)} {
			ring, err := memberlist.NewKeyring(before, before[0])
			must(t, err)
			must(t, install(ring, keys))
			if !slices.EqualFunc(ring.GetKeys(), keys, bytes.Equal) || len(keys) > mostKeys {
				t.Fatalf("of %d keys the ring holds %v, before %v", len(keys), ring.GetKeys(), before)
			}
		}
	})
}

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
		`Config.Join: 1001 addresses are more than 1000`:       loopback(Config{Join: make([]string, 1001)}),
		`Config.JoinDNS: ":80" is no name`:                     loopback(Config{JoinDNS: ":80"}),
		`Config.Interval: 1ms is not between 10ms and 10s`:     loopback(Config{Interval: time.Millisecond}),
		`Config.Probe: 2m0s is not between 50ms and 1m0s`:      loopback(Config{Probe: 2 * time.Minute}),
		`Config.Forget: -1s is not between 100ms and 24h0m0s`:  loopback(Config{Forget: -time.Second}),
		`Config.Rejoin: 2h0m0s is not between 10ms and 1h0m0s`: loopback(Config{Rejoin: 2 * time.Hour}),
		`Config.Expire: 1ms is not between 1s and 720h0m0s`:    loopback(Config{Expire: time.Millisecond}),
		`Config.PacketSize: 100 is not between 700 and 65000`:  loopback(Config{PacketSize: 100}),
		`Config.MaxKeys: -1 is not between 1 and 65536`:        loopback(Config{MaxKeys: -1}),
		`Config.Weight: 1001 is not between 1 and 1000`:        loopback(Config{Weight: 1001}),
		`key file ` + bad + `: line 1: it is not base64`:       loopback(Config{KeyFile: bad}),
		`key file ` + dir + `: it is no regular file`:          loopback(Config{KeyFile: dir}),
		`key file /nowhere: no such file or directory`:         loopback(Config{KeyFile: "/nowhere"}),
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

// Without a key a replica does not start on an address that others can reach.
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
	tested.Want(t, "its name", source(t, Config{Bind: "127.0.0.1:99"}).Stats().Name, host+":99")
}

// A port that is taken is an error, again and again, until it is free.
func TestPortIsTaken(t *testing.T) {
	t.Parallel()
	a := start(t, config("a"))
	c := config("b")
	c.Bind = a.address()
	b := start(t, c)
	b.Until("errors", func() bool { _, errs := b.Since(0); return len(errs) > 1 })
	if err := b.LastErr(); !strings.Contains(err.Error(), "listen on "+c.Bind) {
		t.Error(err)
	}
	a.Leave()
	b.Wants(1, 1)
}

// The logs of memberlist go to the logger, at level debug, or nowhere.
func TestLogger(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	c := config("a")
	c.Logger = slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	a := start(t, c)
	b := start(t, config("b", a.address()))
	b.Wants(2, 2)
	b.Leave()
	a.Leave()
	if text := out.String(); !strings.Contains(text, "level=DEBUG") ||
		!strings.Contains(text, "memberlist") ||
		strings.Contains(text, "level=INFO") {
		t.Errorf("logged %q", text)
	}
}
