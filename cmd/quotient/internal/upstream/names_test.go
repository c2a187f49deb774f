package upstream

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/internal/tested"
)

// book is a resolver that says what a test has written into it; nothing is an error.
type book struct {
	mu     sync.Mutex
	says   string         // addresses with blanks between them
	looked chan time.Time // gets the time of each lookup
}

func newBook(says string) *book { return &book{says: says, looked: make(chan time.Time, 1000)} }

func (b *book) write(says string) {
	b.mu.Lock()
	b.says = says
	b.mu.Unlock()
}

func (b *book) LookupNetIP(_ context.Context, network, host string) ([]netip.Addr, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.looked <- time.Now()
	if b.says == "" || network != "ip" || !strings.HasPrefix(host, "example.com") {
		return nil, errors.New("no such host")
	}
	return addresses(b.says), nil
}

func addresses(text string) (all []netip.Addr) {
	for a := range strings.FieldsSeq(text) {
		all = append(all, netip.MustParseAddr(a))
	}
	return all
}

// at are servers of one port at each of some addresses. They are closed at the end of the test.
func at(t testing.TB, start func(*httptest.Server), h func(addr string) http.HandlerFunc, addrs ...string) (
	port string, all []*httptest.Server,
) {
	t.Helper()
	port = "0"
	for _, addr := range addrs {
		s := httptest.NewUnstartedServer(h(addr))
		_ = s.Listener.Close()
		var err error
		if s.Listener, err = net.Listen("tcp", net.JoinHostPort(addr, port)); err != nil {
			t.Skipf("this system has one loopback address, or the port is taken: %v", err)
		}
		_, port, _ = net.SplitHostPort(s.Listener.Addr().String())
		start(s)
		t.Cleanup(s.Close)
		all = append(all, s)
	}
	return port, all
}

// starts are how a server of each scheme begins.
var starts = map[string]func(*httptest.Server){
	"http": (*httptest.Server).Start,
	"https": func(s *httptest.Server) {
		s.EnableHTTP2 = true
		s.StartTLS()
	},
	"h2c": func(s *httptest.Server) {
		s.Config.Protocols = new(http.Protocols)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
		s.Start()
	},
}

func sayingAddr(addr string) http.HandlerFunc { return saying(addr[len("127.0.0."):]) }

// All addresses of a name are used, by each scheme; the name stays the server's for TLS. What a lookup does not name
// any more goes, and without an answer all stay.
func TestAddresses(t *testing.T) {
	for scheme, start := range starts {
		t.Run(scheme, func(t *testing.T) {
			port, servers := at(t, start, sayingAddr, "127.0.0.1", "127.0.0.2", "127.0.0.3")
			var roots *x509.CertPool
			if scheme == "https" {
				roots = x509.NewCertPool()
				roots.AddCert(servers[0].Certificate())
			}
			url := scheme + "://example.com:" + port
			p := poolTo(t, roots, section(t, url))
			b := newBook("127.0.0.3 127.0.0.1 ::ffff:127.0.0.3 127.0.0.2")
			p.resolver = b
			turns := func(n int) (got string) {
				for range n {
					got += get(t, p, "/")
				}
				return got
			}
			must(t, p.look(t.Context(), "example.com", 0))
			want(t, "the answers", turns(6), "123123")
			want(t, "an upstream", p.State()[1].URL+" "+p.State()[1].Address, url+" 127.0.0.2:"+port)
			p.ups[0].healthy = false
			want(t, "the answers while one is out", turns(4), "2323")
			p.ups[0].healthy = true
			b.write("")
			if p.look(t.Context(), "example.com", 0) == nil {
				t.Fatal("a lookup did not fail")
			}
			want(t, "upstreams after a lookup that failed", len(p.State()), 3)
			want(t, "lookups, with one too soon", len(b.looked), 2)
			must(t, p.look(t.Context(), "example.com", time.Hour))
			want(t, "lookups, with one too soon", len(b.looked), 2)
			b.write("127.0.0.3 127.0.0.1")
			kept := p.ups[0]
			must(t, p.look(t.Context(), "example.com", 0))
			want(t, "the answers", turns(4), "1313")
			want(t, "what stays is kept", p.ups[0], kept)
			p.apply(section(t, url))
			want(t, "upstreams after a reload", len(p.State()), 2)
			p.apply(section(t, "http://a"))
			want(t, "names that are kept", len(p.names), 1)
		})
	}
}

// Idle connections to an address that is gone are closed at once.
func TestAddressThatIsGone(t *testing.T) {
	closed := make(chan struct{}, 10)
	port, _ := at(t, func(s *httptest.Server) {
		if strings.HasPrefix(s.Listener.Addr().String(), "127.0.0.2:") {
			s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
				if state == http.StateClosed {
					closed <- struct{}{}
				}
			}
		}
		s.Start()
	}, sayingAddr, "127.0.0.1", "127.0.0.2")
	p := poolOf(t, nil, "http://example.com:"+port)
	b := newBook("127.0.0.1 127.0.0.2")
	p.resolver = b
	must(t, p.look(t.Context(), "example.com", 0))
	want(t, "the answers", get(t, p, "/")+get(t, p, "/"), "12")
	b.write("127.0.0.1")
	must(t, p.look(t.Context(), "example.com", 0))
	soon(t, closed)
}

// A request goes to another address of the same name where nothing listens at the first, and to one upstream alone.
func TestNextAddress(t *testing.T) {
	for _, scheme := range []string{"http", "h2c"} {
		got := make(chan string, 100)
		port, _ := at(t, starts[scheme], func(string) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				echo(w, r)
				got <- r.Method
			}
		}, "127.0.0.3")
		other := named(t, "other").URL
		p := poolOf(t, nil, scheme+"://example.com:"+port)
		p.resolver = newBook("127.0.0.1 127.0.0.2 127.0.0.3")
		must(t, p.look(t.Context(), "example.com", 0))
		for i := range 4 {
			for _, u := range p.ups {
				u.healthy = i < 3 // a single upstream is tried all the same
			}
			resp, err := p.RoundTrip(ask(t, http.MethodPost, "/", "body"))
			must(t, err)
			if text := read(t, resp); !strings.Contains(text, " body ") {
				t.Fatalf("the answer is %q", text)
			}
		}
		want(t, "requests that came", len(got), 4)
		want(t, "failures of the first", p.State()[0].Error != "", true)
		for _, s := range p.State() {
			want(t, "in flight", s.InFlight, 0)
		}
		p.apply(section(t, scheme+"://example.com:"+port, other))
		for _, u := range p.ups {
			u.healthy = u.target.at != "127.0.0.3:"+port
		}
		_, err := p.RoundTrip(ask(t, http.MethodGet, "/", ""))
		want(t, "the kind of "+errorText(err), Classify(err), Unavailable)
	}
}

// Attempts at all addresses of a name end within the time of one dial.
func TestTimeOfDials(t *testing.T) {
	for _, row := range []struct {
		addrs    int
		took     time.Duration // of each attempt; 0: its share
		attempts int
	}{
		{1, 0, 1}, {2, 0, 2}, {3, 0, 3}, {9, 0, 3}, {64, time.Millisecond, 64}, {3, 10 * time.Second, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := poolOf(t, nil, "http://example.com")
			var says strings.Builder
			for i := range row.addrs {
				fmt.Fprintf(&says, "192.0.2.%d ", i)
			}
			p.resolver = newBook(says.String() + says.String())
			must(t, p.look(t.Context(), "example.com", 0))
			attempts := 0
			for _, u := range p.ups {
				u.by.http1.Dial = func(context.Context) (net.Conn, error) {
					attempts++
					d := row.took
					if d == 0 {
						d = p.share(u.target, 5*time.Second) + time.Millisecond
					}
					time.Sleep(d)
					return nil, &dialError{errors.New("no answer"), d}
				}
			}
			start := time.Now()
			_, err := p.RoundTrip(httptest.NewRequest(http.MethodGet, "/", nil))
			want(t, "the kind of "+errorText(err), Classify(err), Unavailable)
			want(t, fmt.Sprintf("attempts at %d", row.addrs), attempts, row.attempts)
			if d := time.Since(start); d > 5*time.Second+time.Millisecond && row.took == 0 {
				t.Fatalf("%d attempts took %v", attempts, d)
			}
		})
	}
}

// The targets of a URL are its addresses, each with the port; two of both families are one.
func TestTargetsOfAddresses(t *testing.T) {
	many := ""
	for i := range 70 {
		many += fmt.Sprintf("10.0.0.%d ", i)
	}
	for _, row := range []struct {
		url, addrs string
		at         []string
	}{
		{"http://a", "", []string{""}},
		{"http://a", "192.0.2.1", []string{"192.0.2.1:80"}},
		{"https://a", "192.0.2.1 192.0.2.2", []string{"192.0.2.1:443", "192.0.2.2:443"}},
		{"http://a:8080", "127.0.0.1 ::1", []string{"127.0.0.1:8080 [::1]:8080"}},
		{"http://a:8080", "127.0.0.1 192.0.2.2 ::1", []string{"127.0.0.1:8080", "192.0.2.2:8080", "[::1]:8080"}},
	} {
		var got []string
		for _, t := range targetOf(section(t, row.url).Upstreams[0]).each(addresses(row.addrs)) {
			got = append(got, t.at)
		}
		if !slices.Equal(got, row.at) {
			t.Errorf("%s with %q: got %q, want %q", row.url, row.addrs, got, row.at)
		}
	}
	p := poolOf(t, nil, "http://example.com")
	p.resolver = newBook(many)
	must(t, p.look(t.Context(), "example.com", 0))
	want(t, "upstreams of 70 addresses", len(p.State()), 64)
	for url, host := range map[string]string{
		"http://a:1": "a", "http://192.0.2.1:1": "", "http://[::1]": "", "http://[fe80::1%25eth0]": "", "unix:/a": "",
	} {
		want(t, "the name in "+url, targetOf(section(t, url).Upstreams[0]).name(), host)
	}
}

// Of two addresses that are one target, that which answered last is dialled first.
func TestDialsBoth(t *testing.T) {
	l := listen(t)
	dial := target{scheme: "http", at: nowhere(t) + " " + l.Addr().String()}.dial(tested.Patience)
	for range 2 {
		conn, err := dial(t.Context())
		must(t, err)
		want(t, "the address", conn.RemoteAddr().String(), l.Addr().String())
		must(t, conn.Close())
	}
}

// A name is looked up with each check until there is an answer, then each 30 s, and with each check that fails.
func TestTimesOfLookups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBook("")
		log, lines := events()
		p := poolOf(t, log)
		p.resolver = b
		p.apply(checked(t, config.Health{Every: 10 * time.Second, Timeout: 2 * time.Second}, "http://example.com"))
		ctx, cancel := context.WithCancel(t.Context())
		run := func(err error) {
			c := newChecker(p.ups[0], p.health, p.limits)
			c.dial = func(context.Context) (net.Conn, error) {
				own, other := net.Pipe()
				_ = other.Close()
				return own, err
			}
			go c.run(ctx)
		}
		last := time.Now()
		gap := func(least, most time.Duration) {
			t.Helper()
			now := <-b.looked
			if d := now.Sub(last); d < least || d > most {
				t.Fatalf("%v lie between two lookups", d)
			}
			last = now
		}
		run(nil)
		gap(0, 0)
		gap(9*time.Second, 11*time.Second)
		want(t, "the line", <-lines, "WARN upstream does not answer url=http://example.com tried=true")
		b.write("192.0.2.1 192.0.2.2")
		gap(9*time.Second, 11*time.Second)
		want(t, "the line", <-lines, "INFO addresses of an upstream name=example.com addresses=[192.0.2.1 192.0.2.2]")
		run(nil)
		gap(30*time.Second, 41*time.Second)
		b.write("")
		gap(30*time.Second, 41*time.Second)
		want(t, "the line", <-lines,
			"WARN the name of an upstream cannot be looked up: its addresses stay name=example.com")
		gap(30*time.Second, 41*time.Second)
		cancel()
		synctest.Wait()
		ctx, cancel = context.WithCancel(t.Context())
		defer cancel()
		run(errors.New("no answer"))
		gap(0, 11*time.Second)
		gap(9*time.Second, 11*time.Second)
		want(t, "lines but for the last", len(lines), 1)
		cancel()
		synctest.Wait()
	})
}

// Watch looks a name up, and checks its addresses in its place.
func TestWatchLooksUp(t *testing.T) {
	port, _ := at(t, starts["http"], sayingAddr, "127.0.0.1", "127.0.0.2")
	log, lines := events()
	b, p := newBook(""), poolOf(t, log)
	p.resolver = b
	watch(t, p)
	p.apply(checked(t, quick, "http://example.com:"+port))
	want(t, "the line", tested.Event(t, lines),
		"WARN upstream does not answer url=http://example.com:"+port+" tried=true")
	b.write("127.0.0.1 127.0.0.2 127.0.0.3")
	said := []string{tested.Event(t, lines), tested.Event(t, lines)}
	slices.Sort(said)
	want(t, "the first of two lines", said[0],
		"INFO addresses of an upstream name=example.com addresses=[127.0.0.1 127.0.0.2 127.0.0.3]")
	want(t, "the other", said[1],
		"WARN upstream does not answer =[url=http://example.com:"+port+" address=127.0.0.3:"+port+"] tried=true")
	answered := ""
	for range 4 {
		answered += get(t, p, "/")
	}
	want(t, "the answers", answered, "1212")
}
