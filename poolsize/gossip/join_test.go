package gossip

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quotient-go/quotient/poolsize/dns/dnstest"
)

// Two that began apart meet as soon as the file of one of them lists the other.
func TestJoinFile(t *testing.T) {
	t.Parallel()
	a := start(t, config("a"))
	a.Wants(1, 1)
	file := filepath.Join(t.TempDir(), "join")
	write(t, file, "# no replica yet\n")
	c := config("b")
	c.JoinFile = file
	b := start(t, c)
	b.Wants(1, 1)
	write(t, file, fmt.Sprintf("%s # the first\n%s # no one is there\n", a.address(), deaf(t)))
	a.Wants(2, 1)
	b.Wants(2, 2)
	write(t, file, "not an address at all\n")
	b.says(file + ": line 1")
	b.Wants(2, 2)
}

// A name is looked up again and again, so that replicas that it lists later are found.
func TestJoinDNS(t *testing.T) {
	t.Parallel()
	server, err := dnstest.New()
	must(t, err)
	t.Cleanup(func() { server.Close() }) //nolint:errcheck // nothing is lost
	loopback := netip.MustParseAddr("127.0.0.1")
	a := start(t, config("a"))
	a.Wants(1, 1)
	port := netip.MustParseAddrPort(a.address()).Port()
	c := config("b")
	c.JoinDNS, c.Resolver = fmt.Sprintf("web.:%d", port), server.Resolver()
	b := start(t, c)
	b.says("look up web.")
	b.silent(t)
	server.Set("web.", loopback)
	a.Wants(2, 1)
	b.Wants(2, 2)
	server.Fail(dnstest.ServFail)
	b.Fails()
	b.Wants(2, 2)
}

// A replica whose addresses do not answer does not take itself for alone.
func TestAloneIsNotProven(t *testing.T) {
	t.Parallel()
	where := deaf(t)
	a := start(t, config("a", where))
	a.Fails()
	a.Fails()
	a.silent(t)
	if sum, age := a.Counters().Sum("k"); age != never {
		t.Errorf("the sum is %d, %v old", sum, age)
	}
	c := config("b")
	c.Bind = where
	b := start(t, c)
	a.Wants(2, 1)
	b.Wants(2, 2)
}

// A replica that is the only one of its list is alone. One that meets itself, at an address that it does not
// advertise, has not met another one.
func TestMeetsItself(t *testing.T) {
	t.Parallel()
	c := config("only", deaf(t))
	c.Bind = c.Join[0]
	start(t, c).Wants(1, 1)
	c = config("a")
	c.Bind, c.Advertise = deaf(t), "127.0.0.2" // nothing listens there
	c.Join = []string{c.Bind}
	a := start(t, c)
	a.Wants(1, 1)
	if _, errs := a.Since(0); len(errs) > 0 {
		t.Error(errs)
	}
	c.Name, c.Bind = "b", deaf(t)
	c.Join = []string{c.Bind, deaf(t)}
	b := start(t, c)
	b.Fails()
	b.Fails()
	b.silent(t)
}

// An address that does not stand for a member is tried again after a while.
func TestAliasesEnd(t *testing.T) {
	own, other, now := address64(1), address64(2), time.Now()
	l := aliases{own: {true, now.Add(time.Minute)}, other: {false, now.Add(time.Second)}}
	if !l.isOwn(own) || l.isOwn(other) || l.has(own) || !l.has(other) || l.has(address64(3)) ||
		l.isOwn(address64(3)) {
		t.Error("it mixes them up")
	}
	l.prune(now.Add(time.Second))
	if l.has(other) || !l.isOwn(own) || len(l) != 1 {
		t.Errorf("after a second it holds %v", l)
	}
}

// joinFiles are contents of join files, and what they are read as.
var joinFiles = []struct {
	content string
	want    string
	says    string
}{
	{"", "[]", ""},
	{"10.0.0.1:7946\n10.0.0.2 # two\n# three\n[::1]:80\n::1\nweb-0.web",
		"[{10.0.0.1 7946} {10.0.0.2 0} {::1 80} {::1 0} {web-0.web 0}]", ""},
	{"[::1]\n", "[{::1 0}]", ""},
	{"a\nb c\n", "", "line 2: host"},
	{":80", "", "line 1: a host of 0 bytes"},
	{"a:0", "", "port 0"},
	{"a:65536", "", "port"},
	{"a:http", "", "port"},
	{"a:b:c", "", "host"},
	{"http://a:80", "", "line 1"},
	{strings.Repeat("a\n", mostJoin+1), "", "line 1001: there are more than 1000 addresses"},
}

func TestParseJoin(t *testing.T) {
	for _, row := range joinFiles {
		peers, err := parseJoin(row.content)
		if err == nil && fmt.Sprint(peers) != row.want || (err == nil) != (row.says == "") ||
			err != nil && !strings.Contains(err.Error(), row.says) {
			t.Errorf("%.50q: %v, %v", row.content, peers, err)
		}
	}
}

// FuzzJoinFile checks that no content panics, and that each address that is accepted reads back.
func FuzzJoinFile(f *testing.F) {
	for _, row := range joinFiles {
		f.Add(row.content)
	}
	for _, content := range []string{
		"[fe80::1%eth0]:80", "[[::1]]:80", "[::1", "a\r\nb:1\r\n", strings.Repeat("a", 300), "a\x00b", "x/10.0.0.1:80",
	} {
		f.Add(content)
	}
	f.Fuzz(func(t *testing.T, content string) {
		peers, err := parseJoin(content)
		if err != nil {
			if peers != nil || len(err.Error()) > 300 {
				t.Fatalf("refused with %d addresses: %v", len(peers), err)
			}
			return
		}
		for _, p := range peers {
			text := p.host
			if p.port > 0 {
				text = net.JoinHostPort(p.host, fmt.Sprint(p.port))
			}
			if again, err := parsePeer(text); err != nil || again != p {
				t.Fatalf("%q reads back as %v, %v", text, again, err)
			}
		}
	})
}
