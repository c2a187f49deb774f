package front

import (
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/quotient-go/quotient/config"
)

func v2(t *testing.T, command proxyproto.ProtocolVersionAndCommand) string {
	t.Helper()
	text, err := (&proxyproto.Header{
		Version: 2, Command: command, TransportProtocol: proxyproto.TCPv6,
		SourceAddr:      net.TCPAddrFromAddrPort(netip.MustParseAddrPort("[2001:db8::1]:4711")),
		DestinationAddr: net.TCPAddrFromAddrPort(netip.MustParseAddrPort("[2001:db8::2]:80")),
	}).Format()
	must(t, err)
	return string(text)
}

const v1 = "PROXY TCP4 192.0.2.7 192.0.2.8 1234 80\r\n"

// behind is a server that takes the PROXY protocol of a network, and answers with the address of its peer.
func behind(t *testing.T, trusted netip.Prefix, set func(*config.Proxy)) *running {
	t.Helper()
	p := section()
	p.ProxyProtocol, p.Trusted = true, []netip.Prefix{trusted}
	set(p)
	return serve(t, p, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.RemoteAddr) }))
}

// peer is the status, and the body of an answer, to a request with something before it; empty: none.
func (s *running) peer(t *testing.T, before string) string {
	t.Helper()
	text := s.said(t, before+crlf(get+"Connection: close~~"))
	if all := statuses(text); len(all) > 0 {
		_, body, _ := strings.Cut(text, "\r\n\r\n")
		return all[0] + " " + body
	}
	return ""
}

// TestProxyProtocol checks that trusted peers must send it, and that it is not read of others.
func TestProxyProtocol(t *testing.T) {
	strangers, here := netip.MustParsePrefix("192.0.2.0/24"), "200 127.0.0.1:"
	for _, c := range []struct {
		name    string
		trusted netip.Prefix
		sent    string
		want    string // status and the start of the address
	}{
		{"v1", loopback, v1, "200 192.0.2.7:1234"},
		{"v2", loopback, v2(t, proxyproto.PROXY), "200 [2001:db8::1]:4711"},
		{"v2 of the peer's own", loopback, v2(t, proxyproto.LOCAL), here},
		{"v1 that does not know", loopback, "PROXY UNKNOWN\r\n", here},
		{"none", loopback, "", ""},
		{"malformed", loopback, "PROXY TCP4 192.0.2.7\r\n", ""},
		{"bare LF", loopback, "PROXY TCP4 192.0.2.7 192.0.2.8 1234 80\n", ""},
		{"two", loopback, v1 + v1, "400"},
		{"v1 of a stranger", strangers, v1, "400"},
		{"v2 of a stranger", strangers, v2(t, proxyproto.PROXY), "400"},
		{"a stranger", strangers, "", here},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := behind(t, c.trusted, func(*config.Proxy) {}).peer(t, c.sent)
			if c.want == "" && strings.HasPrefix(got, "200") || !strings.HasPrefix(got, c.want) {
				t.Errorf("the answer is %q, want %q", got, c.want)
			}
		})
	}
}

// TestProxyProtocolBeforeTLS checks that the header stands before the handshake.
func TestProxyProtocolBeforeTLS(t *testing.T) {
	s := behind(t, loopback, func(p *config.Proxy) { p.TLS = writePair(t, t.TempDir(), "server") })
	raw := dial(t, s.addr)
	send(t, raw, v1)
	c := tls.Client(raw, trusting())
	send(t, c, crlf(get+"Connection: close~~"))
	if text, _ := io.ReadAll(c); !strings.HasSuffix(string(text), "192.0.2.7:1234") {
		t.Errorf("the answer is %q", text)
	}
}

// TestProxyProtocolIsAwaited checks that a trusted peer that sends nothing loses its connection, and delays
// no one.
func TestProxyProtocolIsAwaited(t *testing.T) {
	s := behind(t, loopback, func(p *config.Proxy) { p.Timeouts.ReadHeader = 300 * time.Millisecond })
	silent := dial(t, s.addr)
	if got := s.peer(t, v1); !strings.HasPrefix(got, "200") {
		t.Errorf("beside it the answer is %q", got)
	}
	if text, err := io.ReadAll(silent); err != nil || strings.Contains(string(text), "200") {
		t.Errorf("the silent one got %q, %v", text, err)
	}
}

// TestTrusts checks that an address is looked up as what it is, however the listener spells it.
func TestTrusts(t *testing.T) {
	p := section()
	p.Trusted = []netip.Prefix{loopback, netip.MustParsePrefix("fe80::/64")}
	s, err := New(p, ok, slog.New(slog.DiscardHandler))
	must(t, err)
	for addr, want := range map[net.Addr]bool{
		&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1).To4()}:                true,
		&net.TCPAddr{IP: net.ParseIP("::ffff:127.0.0.1")}:             true,
		&net.TCPAddr{IP: net.ParseIP("fe80::1"), Zone: "eth0"}:        true,
		&net.TCPAddr{IP: net.ParseIP("::1")}:                          false,
		&net.TCPAddr{IP: net.ParseIP("::ffff:192.0.2.1"), Port: 1234}: false,
		&net.UnixAddr{Name: "127.0.0.1", Net: "unix"}:                 false,
		&net.TCPAddr{}: false,
	} {
		if got := s.trusts(addr); got != want {
			t.Errorf("trusts(%v) = %v", addr, got)
		}
	}
	p.TrustUnix = true
	s.put(p)
	if !s.trusts(&net.UnixAddr{Net: "unix"}) || s.trusts(&net.TCPAddr{}) {
		t.Error("trust-unix is not about Unix sockets")
	}
}

// TestPrepare holds what a reload changes, and that it refuses what it cannot change.
func TestPrepare(t *testing.T) {
	dir := t.TempDir()
	p := section()
	p.ProxyProtocol, p.Trusted, p.TLS = true, []netip.Prefix{loopback}, writePair(t, dir, "server")
	s := serve(t, p, ok)
	for want, change := range map[string]func(p *config.Proxy){
		"proxy.listen: ": func(p *config.Proxy) { p.Listen = "127.0.0.1:1" },
		"proxy.proxy-protocol: false requires a restart":         func(p *config.Proxy) { p.ProxyProtocol = false },
		"proxy.h2c: true requires a restart, false is in force":  func(p *config.Proxy) { p.H2C = true },
		"proxy.tls: false requires a restart":                    func(p *config.Proxy) { p.TLS = nil },
		"proxy.timeouts.read-header: 1s requires a restart, 10s": func(p *config.Proxy) { p.Timeouts.ReadHeader = 1e9 },
		"proxy.timeouts.idle: ":                                  func(p *config.Proxy) { p.Timeouts.Idle++ },
		"proxy.max.header-bytes: ":                               func(p *config.Proxy) { p.Max.HeaderBytes++ },
		"proxy.max.streams: ":                                    func(p *config.Proxy) { p.Max.Streams++ },
		"proxy.tls.key: " + dir + "/none: ":                      func(p *config.Proxy) { p.TLS.Key = dir + "/none" },
		"proxy.tls.client-ca: ":                                  func(p *config.Proxy) { p.TLS.ClientCA = p.TLS.Key },
	} {
		changed := *p
		changed.TLS = new(*p.TLS)
		change(&changed)
		if _, err := s.Prepare(&config.File{Proxy: &changed}); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("Prepare() = %v, want %s", err, want)
		}
	}
	if _, err := s.Prepare(&config.File{}); err == nil || !strings.HasPrefix(err.Error(), "proxy: ") {
		t.Errorf("Prepare() = %v", err)
	}
	if now := s.now.Load(); now.write != p.Timeouts.Write {
		t.Errorf("a reload that was refused has changed %+v", now)
	}
	changed := *p
	changed.Trusted = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	changed.Timeouts.Write, changed.Max.Connections = time.Hour, 7
	writePair(t, dir, "another")
	commit, err := s.Prepare(&config.File{Proxy: &changed})
	must(t, err)
	if s.now.Load().write == time.Hour || !s.trusts(dial(t, s.addr).LocalAddr()) {
		t.Error("Prepare changes something before commit")
	}
	commit()
	if s.now.Load().write != time.Hour || s.places.State().Most != 7 || s.trusts(dial(t, s.addr).LocalAddr()) {
		t.Error("commit does not change everything")
	}
	if name := s.certs.now.Load().config.Certificates[0].Leaf.Subject.CommonName; name != "another" {
		t.Errorf("the certificate is of %s", name)
	}
}
