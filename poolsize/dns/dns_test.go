package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/tested"
	"github.com/quotient-go/quotient/poolsize/dns/dnstest"
	"github.com/quotient-go/quotient/poolsize/internal/setting"
	"github.com/quotient-go/quotient/poolsize/pooltest"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) {
	// Package net keeps channels of its first look-up for all others. That must not be one in a bubble of
	// synctest.
	nowhere := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("nowhere") }
	(&net.Resolver{PreferGo: true, Dial: nowhere}).LookupNetIP(context.Background(), "ip", name)
	goleak.VerifyTestMain(m)
}

const name = "web.test."

func server(t *testing.T) *dnstest.Server {
	t.Helper()
	s, err := dnstest.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// run is n addresses from one on.
func run(first string, n int) []netip.Addr {
	a := make([]netip.Addr, n)
	for i := range a {
		a[i] = netip.MustParseAddr(first)
		if i > 0 {
			a[i] = a[i-1].Next()
		}
	}
	return a
}

func addrs(s string) []netip.Addr {
	var a []netip.Addr
	for f := range strings.FieldsSeq(s) {
		a = append(a, netip.MustParseAddr(f))
	}
	return a
}

// targets are SRV records, written host:port.
func targets(s string) []*net.SRV {
	var srv []*net.SRV
	for f := range strings.FieldsSeq(s) {
		host, port, _ := strings.Cut(f, ":")
		r := &net.SRV{Target: host}
		fmt.Sscan(port, &r.Port)
		srv = append(srv, r)
	}
	return srv
}

// source asks the server quickly, and leaves time for a busy machine to answer.
func source(s *dnstest.Server) *Source {
	return &Source{Name: name, Refresh: leastRefresh, Timeout: tested.Patience, Resolver: s.Resolver(),
		Own: []netip.Addr{}}
}

// report is one report of a source.
type report struct {
	pool quotient.Pool
	err  error
}

// watching calls Watch until the test ends, and returns what is reported.
func watching(t *testing.T, s *Source) <-chan report {
	t.Helper()
	return through(t, func(ctx context.Context, report func(quotient.Pool, error)) error {
		return s.Watch(ctx, report)
	})
}

func through(t *testing.T, watch func(context.Context, func(quotient.Pool, error)) error) <-chan report {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	reports, ended := make(chan report), make(chan error, 1)
	go func() {
		ended <- watch(ctx, func(p quotient.Pool, err error) {
			select {
			case reports <- report{p, err}:
			case <-ctx.Done():
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := receive(t, ended); !errors.Is(err, context.Canceled) {
			t.Errorf("Watch returned %v", err)
		}
	})
	return reports
}

func receive[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(tested.Patience):
		t.Fatalf("nothing within %v", tested.Patience)
		panic("unreachable")
	}
}

// fails waits for an error and fails unless it names the name and says the words.
func fails(t *testing.T, reports <-chan report, words string) {
	t.Helper()
	r := receive(t, reports)
	if r.err == nil || !strings.Contains(r.err.Error(), name) || !strings.Contains(r.err.Error(), words) ||
		r.pool != (quotient.Pool{}) {
		t.Errorf("reported %+v, %v; want an error that says %s and %q", r.pool, r.err, name, words)
	}
}

// says waits for a pool.
func says(t *testing.T, reports <-chan report, want quotient.Pool) {
	t.Helper()
	r := receive(t, reports)
	for tries := 0; tries < 10 && timedOut(r.err); tries++ { // the resolver gives up after 10 s, whatever Timeout is
		r = receive(t, reports)
	}
	if r.err != nil || r.pool != want {
		t.Errorf("reported %+v, %v; want %+v", r.pool, r.err, want)
	}
}

func timedOut(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}

func TestAddresses(t *testing.T) {
	rows := []struct{ listed, own, want string }{
		{"10.0.0.1", "", "1 0"},
		{"10.0.0.3 10.0.0.1 10.0.0.2", "", "3 0"},
		{"10.0.0.3 10.0.0.1 10.0.0.2", "10.0.0.2", "3 2"},
		{"10.0.0.3 10.0.0.1 10.0.0.2", "10.0.0.9 10.0.0.3", "3 3"},
		{"10.0.0.3 10.0.0.1 10.0.0.2", "10.0.0.9", "4 0"},        // not listed yet
		{"10.0.0.3", "10.0.0.9 fd00::9", "2 0"},                  //
		{"10.0.0.20 10.0.0.3", "10.0.0.20", "2 2"},               // in the order of numbers, not of letters
		{"10.0.0.1 10.0.0.1 10.0.0.2", "10.0.0.2", "2 2"},        // twice the same
		{"10.0.0.1 ::ffff:10.0.0.1", "", "1 0"},                  // IPv4 in IPv6 form
		{"10.0.0.1 ::ffff:10.0.0.2", "::ffff:10.0.0.2", "2 2"},   //
		{"::ffff:10.0.0.1 10.0.0.2", "10.0.0.1", "2 1"},          //
		{"2001:db8::2 2001:db8::1", "2001:db8::2", "2 2"},        //
		{"10.0.0.1 10.0.0.2 fd00::1 fd00::2", "10.0.0.2", "2 2"}, // both families
		{"10.0.0.1 10.0.0.2 fd00::1 fd00::2", "fd00::2", "2 0"},  // IPv4 counts
		{"10.0.0.1 fd00::1 fd00::2", "fd00::2 10.0.0.1", "2 2"},  // IPv6 has more
		{"10.0.0.1 10.0.0.2 fd00::1", "fd00::1 10.0.0.1", "2 1"}, //
		{"10.0.0.1 10.0.0.2 fd00::1", "fd00::1 10.0.0.9", "2 0"}, // listed by the family that does not count
		{"10.0.0.1 10.0.0.2 fd00::1", "fd00::9 10.0.0.9", "3 0"}, // by none
	}
	s := server(t)
	for _, r := range rows {
		t.Run(r.listed+" "+r.own, func(t *testing.T) {
			s.Set(name, addrs(r.listed)...)
			src := source(s)
			src.Own = append(src.Own, addrs(r.own)...)
			var want quotient.Pool
			fmt.Sscan(r.want, &want.Replicas, &want.Ordinal)
			says(t, watching(t, src), want)
		})
	}
}

// One name may list several ports of each replica, or several replicas of one host: the records do not show
// which. The larger number counts, and is doubted unless the name asks for one service.
func TestTargets(t *testing.T) {
	const port, two = "_http._tcp." + name, "a.test:80 a.test:81 b.test:80 b.test:81"
	rows := []struct {
		name, listed string
		hosts        bool
		want         int
		doubt        error
	}{
		{name, "a.test:80", false, 1, nil},
		{name, "a.test:80 b.test:80 c.test:81", false, 3, nil},
		{name, two, false, 4, ErrPorts},
		{name, two, true, 2, nil},
		{port, two, false, 4, nil},
		{port, two, true, 2, nil},
		{name, "a.test:80 A.Test.:80 b.test:80", false, 2, nil}, // the same in other letters
		{name, "a.test:80 A.Test.:81", true, 1, nil},
		{name, "a.test:80 .:0", false, 1, nil},                                    // the root is no target
		{name, two + " c.test:80 c.test:81 d.test:1 d.test:2", true, 8, ErrEight}, // eight may be cut, four hosts or more
	}
	s := server(t)
	for _, r := range rows {
		t.Run(fmt.Sprint(r.name, " ", r.listed, " ", r.hosts), func(t *testing.T) {
			s.SetSRV(r.name, targets(r.listed)...)
			src := source(s)
			src.Name, src.SRV, src.Hosts = r.name, true, r.hosts
			reports := watching(t, src)
			for range 2 {
				says(t, reports, quotient.Pool{Replicas: r.want})
				if r.doubt != nil {
					fails(t, reports, r.doubt.Error())
				}
			}
		})
	}
	s.SetSRV(name, targets(".:0")...)
	src := source(s)
	src.SRV = true
	fails(t, watching(t, src), "the list is empty")
}

// Lists beyond a datagram come over TCP, whole.
func TestLongLists(t *testing.T) {
	s := server(t)
	for _, n := range []int{50, 500, 4000} {
		s.Set(name, run("10.0.0.1", n)...)
		src := source(s)
		src.Own = addrs("10.0.0.50")
		says(t, watching(t, src), quotient.Pool{Replicas: n, Ordinal: 50})
	}
	s.Fail(dnstest.Oversized) // cut by the client, without a mark
	for _, n := range []int{70, 90, 4000} {
		s.Set(name, run("10.0.0.1", n)...)
		says(t, watching(t, source(s)), quotient.Pool{Replicas: n})
	}
	s.Fail(dnstest.Healthy)
	var pods []*net.SRV
	for i := range 300 {
		pods = append(pods, &net.SRV{Target: fmt.Sprintf("pod-%d.web.test.", i), Port: 80})
	}
	s.SetSRV(name, pods...)
	src := source(s)
	src.SRV = true
	says(t, watching(t, src), quotient.Pool{Replicas: 300})
}

// A replica that is not listed yet counts itself, which makes eight of seven, and nine of eight; whether a
// list was cut follows from what is listed. A replica that does not know its address adds nothing, nor does
// one that counts SRV records.
func TestNewReplicaCountsItself(t *testing.T) {
	s := server(t)
	src := source(s)
	src.Own = addrs("10.1.0.1")
	reports := watching(t, src)
	s.Set(name, run("10.0.0.1", 7)...)
	until(t, reports, quotient.Pool{Replicas: 8})
	says(t, reports, quotient.Pool{Replicas: 8}) // and no ErrEight
	s.Set(name, run("10.0.0.1", 8)...)
	until(t, reports, quotient.Pool{Replicas: 9})
	if r := receive(t, reports); !errors.Is(r.err, ErrEight) {
		t.Errorf("of eight: reported %+v, %v", r.pool, r.err)
	}
	s.Set(name, append(run("10.0.0.1", 8), src.Own...)...)
	until(t, reports, quotient.Pool{Replicas: 9, Ordinal: 9})
	for _, r := range []struct {
		own []netip.Addr
		srv bool
	}{{[]netip.Addr{}, false}, {addrs("10.1.0.1"), true}} {
		s.Set(name, run("10.0.0.1", 5)...)
		s.SetSRV(name, targets("a:1 b:1 c:1 d:1 e:1")...)
		src := source(s)
		src.Own, src.SRV = r.own, r.srv
		says(t, watching(t, src), quotient.Pool{Replicas: 5})
	}
}

// The addresses of this machine are found among those that are listed.
func TestOwnAddressesAreThoseOfTheInterfaces(t *testing.T) {
	own, err := setting.OwnAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range own {
		if a.IsLoopback() || a.IsLinkLocalUnicast() || !a.IsValid() {
			t.Errorf("%v is not this machine's alone", a)
		}
	}
	s := server(t)
	src := source(s)
	src.Own = nil
	s.Set(name, addrs("127.0.0.1 10.255.255.253")...)
	says(t, watching(t, src), quotient.Pool{Replicas: 2 + min(len(own), 1)})
	if len(own) == 0 {
		t.Skip("this machine has loopback addresses alone")
	}
	s.Set(name, own[0])
	says(t, watching(t, src), quotient.Pool{Replicas: 1, Ordinal: 1})
}

// wrong are sources with one wrong field each.
func wrong() map[string]quotient.Source {
	noName := func(name string) *Source { return &Source{Name: name} }
	return map[string]quotient.Source{
		`dns: Source.Name: "" names no host`:          noName(""),
		`dns: Source.Name: "." names no host`:         noName("."),
		`dns: Source.Name: "10.0.0.1" is an address`:  noName("10.0.0.1"),
		`dns: Source.Name: "10.0.1" names no host`:    noName("10.0.1"),
		`dns: Source.Name: "fd00::1" is an address`:   noName("fd00::1"),
		`dns: Source.Name: "web test." names no host`: noName("web test."),
		`dns: Source.Name: "web..test" names no host`: noName("web..test"),
		`dns: Source.Name: "-web.test" names no host`: noName("-web.test"),
		`aaaa" names no host`:                         noName(strings.Repeat("a", 64)),
		`a.a." names no host`:                         noName(strings.Repeat("a.", 127) + "a"),
		"dns: Source.Hosts: true without SRV":         &Source{Name: name, Hosts: true},
		"dns: Source.Refresh: -1ns":                   &Source{Name: name, Refresh: -1},
		"dns: Source.Refresh: 1ms":                    &Source{Name: name, Refresh: time.Millisecond},
		"is not between 10ms and 24h0m0s":             &Source{Name: name, Refresh: 1 << 62},
		"dns: Source.Timeout: -1s":                    &Source{Name: name, Timeout: -time.Second},
		"dns: Source.Timeout: 25h":                    &Source{Name: name, Timeout: 25 * time.Hour},
		"dns: Source.Own[0]: invalid IP":              &Source{Name: name, Own: make([]netip.Addr, 1)},
	}
}

// The world has a replica that is listed, one that never is, and one that counts SRV records.
func TestConformance(t *testing.T) {
	rows := []struct {
		name     string
		own      string
		srv      bool
		unlisted int
	}{
		{"srv false", "", false, 0},
		{"srv true", "", true, 0},
		{"listed", "10.0.0.2", false, 0},
		{"not listed", "10.1.0.1", false, 1},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			s := server(t)
			src := source(s)
			src.SRV, src.Own = r.srv, append(src.Own, addrs(r.own)...)
			pooltest.Run(t, pooltest.World{
				Source: func(testing.TB) quotient.Source { return src },
				Set: func(_ testing.TB, n int) {
					s.Set(name, run("10.0.0.1", n-r.unlisted)...)
					s.SetSRV(name, targets("a:1 b:1 c:1 d:1 e:1 f:1 g:1")[:n]...)
				},
				Break:   func(testing.TB) { s.Fail(dnstest.ServFail) },
				Garbage: func(testing.TB) { s.Fail(dnstest.Garbage) },
				Heal:    func(testing.TB) { s.Fail(dnstest.Healthy) },
				Wrong:   wrong(),
			})
		})
	}
}

// A list depends on what is in the answers, not on their order. It holds no address twice and none of the
// family that has fewer. Its members have the ordinals 1 to n.
func TestPropertyList(t *testing.T) {
	address := rapid.Custom(func(t *rapid.T) netip.Addr {
		last := byte(rapid.IntRange(0, 9).Draw(t, "last"))
		switch rapid.IntRange(0, 2).Draw(t, "form") {
		case 0:
			return netip.AddrFrom4([4]byte{10, 0, 0, last})
		case 1:
			return netip.AddrFrom16(netip.AddrFrom4([4]byte{10, 0, 0, last}).As16())
		}
		return netip.AddrFrom16([16]byte{0: 0xfd, 15: last})
	})
	rapid.Check(t, func(t *rapid.T) {
		found := rapid.SliceOfN(address, 1, 40).Draw(t, "found")
		families := map[bool]map[netip.Addr]bool{true: {}, false: {}}
		for _, a := range found {
			families[a.Unmap().Is4()][a.Unmap()] = true
		}
		shuffled := rapid.Permutation(found).Draw(t, "shuffled")
		got := list(found)
		if again := list(shuffled); !slices.Equal(again, got) {
			t.Fatalf("%v and %v", got, again)
		}
		if want := max(len(families[true]), len(families[false])); len(got) != want {
			t.Fatalf("%v has %d members, want %d", got, len(got), want)
		}
		for i, a := range got {
			if !families[got[0].Is4()][a] || place(got, []netip.Addr{a}) != i+1 {
				t.Fatalf("member %d of %v", i, got)
			}
		}
	})
}

// Every failure is an error of its own, at every look-up. TestConformance shows that a limiter then keeps the last
// good pool.
func TestFailuresKeepTheLastGoodPool(t *testing.T) {
	for mode, words := range map[dnstest.Mode]string{
		dnstest.NXDomain: "no such host", dnstest.Empty: "no such host", dnstest.ServFail: "misbehaving",
		dnstest.ServFailAAAA: "misbehaving", dnstest.Truncated: "truncated", dnstest.Garbage: "misbehaving",
		dnstest.Silent: "i/o timeout",
	} {
		for _, srv := range []bool{false, true} {
			t.Run(fmt.Sprint(mode, " srv ", srv), func(t *testing.T) {
				s := server(t)
				s.Set(name, append(run("10.0.0.1", 5), run("fd00::1", 3)...)...)
				s.SetSRV(name, targets("a:1 b:1 c:1 d:1 e:1")...)
				src := source(s)
				if src.SRV = srv; mode == dnstest.Silent {
					src.Timeout = 400 * time.Millisecond
				}
				s.Fail(mode)
				reports := watching(t, src)
				for range 2 {
					if srv && mode == dnstest.ServFailAAAA {
						says(t, reports, quotient.Pool{Replicas: 5}) // it answers questions for SRV
					} else {
						fails(t, reports, words)
					}
				}
				s.Fail(dnstest.Healthy)
				until(t, reports, quotient.Pool{Replicas: 5})
			})
		}
	}
}

// until reads reports until one is the pool.
func until(t *testing.T, reports <-chan report, want quotient.Pool) {
	t.Helper()
	deadline := time.After(tested.Patience)
	for last := (report{}); last.err != nil || last.pool != want; {
		select {
		case last = <-reports:
		case <-deadline:
			t.Fatalf("%+v was not reported within %v; the last report is %+v, %v", want, tested.Patience,
				last.pool, last.err)
		}
	}
}

func TestExactlyEight(t *testing.T) {
	s := server(t)
	src := source(s)
	src.Own = addrs("10.0.0.1")
	s.Set(name, run("10.0.0.1", 8)...)
	reports := watching(t, src)
	for range 3 { // at each look-up
		says(t, reports, quotient.Pool{Replicas: 8})
		r := receive(t, reports)
		if !errors.Is(r.err, ErrEight) || !strings.Contains(r.err.Error(), name) ||
			!strings.Contains(r.err.Error(), "Uncapped") {
			t.Errorf("reported %+v, %v", r.pool, r.err)
		}
	}
	s.Set(name, run("10.0.0.1", 12)...)
	until(t, reports, quotient.Pool{Replicas: 12, Ordinal: 1})
	s.Set(name, run("10.0.0.1", 8)...)
	until(t, reports, quotient.Pool{Replicas: 12}) // cut, or fewer: it cannot be known
	s.Set(name, run("10.0.0.1", 5)...)
	until(t, reports, quotient.Pool{Replicas: 5, Ordinal: 1})
	s.Set(name, run("10.0.0.1", 8)...)
	until(t, reports, quotient.Pool{Replicas: 8})
	uncapped := source(s)
	uncapped.Uncapped, uncapped.Own = true, addrs("10.0.0.8")
	reports = watching(t, uncapped)
	for range 3 {
		says(t, reports, quotient.Pool{Replicas: 8, Ordinal: 8})
	}
}

// The context's end ends a look-up that is never answered, and nothing of it goes on. Package net alone would
// wait for the server for 5 s, which is longer than goleak does.
func TestContextEndsASilentLookUp(t *testing.T) {
	for _, srv := range []bool{false, true} {
		s := server(t)
		s.Fail(dnstest.Silent)
		asked := make(chan struct{}, 100)
		dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer // the server's own would close the connection itself
			defer func() { asked <- struct{}{} }()
			return d.DialContext(ctx, network, s.Addr())
		}
		src := &Source{Name: name, SRV: srv, Timeout: time.Hour, Resolver: &net.Resolver{Dial: dial}}
		before := goleak.IgnoreCurrent()
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() {
			ended <- src.Watch(ctx, func(p quotient.Pool, err error) { t.Errorf("reported %v, %v", p, err) })
		}()
		receive(t, asked)
		cancel()
		if err := receive(t, ended); err != context.Canceled {
			t.Errorf("Watch returned %v", err)
		}
		if err := goleak.Find(before); err != nil {
			t.Errorf("srv %v: %v", srv, err)
		}
	}
}

// dialing is a source in fake time whose network is a function.
func dialing(dial func(context.Context) error) *Source {
	return &Source{Name: name,
		Resolver: &net.Resolver{Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return nil, dial(ctx)
		}}}
}

// The first look-up comes at once, the others 4.5 to 5.5 s after each other, not all alike.
func TestPauseIsJittered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := dialing(func(context.Context) error { return errors.New("no network") })
		reports := watching(t, src)
		last := time.Now()
		seen := map[time.Duration]bool{}
		for i := range 50 {
			fails(t, reports, "no network")
			d := time.Since(last)
			last = last.Add(d)
			if i == 0 && d != 0 || i > 0 && (d < 4500*time.Millisecond || d > 5500*time.Millisecond) {
				t.Errorf("look-up %d after %v", i, d)
			}
			seen[d] = true
		}
		if len(seen) < 10 {
			t.Errorf("%d different pauses", len(seen))
		}
	})
}

// A look-up ends at Timeout at the latest, and the next one begins a pause later: there is one at a time. A
// server has a quarter of Timeout. A connection that is dialed for longer, whatever its context, does not
// delay the look-up.
func TestTimeoutBoundsALookUp(t *testing.T) {
	const part = defaultTimeout / 4
	rows := []struct {
		dialing     time.Duration // however long it may take
		least, most time.Duration // for a look-up
	}{
		// within the bounds of the context; resolv.conf sets how many servers are queried how often
		{0, part, defaultTimeout},
		{3 * defaultTimeout, defaultTimeout, defaultTimeout},
	}
	for _, r := range rows {
		synctest.Test(t, func(t *testing.T) {
			var open atomic.Int32
			src := dialing(func(ctx context.Context) error {
				if n := open.Add(1); n > 2 && r.dialing == 0 { // a question for each family
					t.Errorf("%d questions at a time", n)
				}
				defer open.Add(-1)
				start := time.Now()
				<-ctx.Done()
				if d := time.Since(start); d > part {
					t.Errorf("a server had %v", d)
				}
				time.Sleep(r.dialing)
				return ctx.Err()
			})
			src.Refresh = 100 * time.Millisecond
			t.Cleanup(func() { time.Sleep(time.Hour) }) // what is still dialing ends
			reports := watching(t, src)
			for i := range 20 {
				start := time.Now()
				fails(t, reports, "timeout")
				d := time.Since(start)
				if d < r.least || d > r.most+110*time.Millisecond || i == 0 && d > r.most {
					t.Errorf("%+v: look-up %d ends after %v", r, i, d)
				}
			}
		})
	}
}
