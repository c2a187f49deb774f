package httplimit

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quotient-go/quotient/internal/tested"
)

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

func TestClientAddr(t *testing.T) {
	trusted := prefixes("10.0.0.0/8", "fd00::/8", "fe80::/10", "::ffff:192.168.0.0/112")
	tests := []struct {
		peer      string
		forwarded []string
		want      string
	}{
		// The peer alone.
		{"1.2.3.4:5", nil, "1.2.3.4"},
		{"[::ffff:1.2.3.4]:5", nil, "1.2.3.4"},
		{"::ffff:1.2.3.4", nil, "1.2.3.4"},
		{"0:0:0:0:0:ffff:1.2.3.4", nil, "1.2.3.4"},
		{"1.2.3.4", nil, "1.2.3.4"},
		{"[2001:db8::1]:5", nil, "2001:db8::/64"},
		{"[2001:db8::ffff:1]:6", nil, "2001:db8::/64"},
		{"[fe80::1%eth0]:5", nil, "fe80::/64"},
		{"[fe80::1%eth1]:5", nil, "fe80::/64"},
		{"@", nil, noAddr}, {"", nil, noAddr}, {":80", nil, noAddr}, {"host:80", nil, noAddr},
		// A peer that is not trusted says what it likes.
		{"1.2.3.4:5", []string{"9.9.9.9"}, "1.2.3.4"},
		{"[2001:db8::1]:5", []string{"9.9.9.9"}, "2001:db8::/64"},
		{"@", []string{"9.9.9.9"}, noAddr},
		// A trusted one is followed from the right to the first that is not.
		{"10.0.0.1:5", nil, "10.0.0.1"},
		{"10.0.0.1:5", []string{"9.9.9.9"}, "9.9.9.9"},
		{"10.0.0.1:5", []string{"6.6.6.6, 9.9.9.9"}, "9.9.9.9"},
		{"10.0.0.1:5", []string{"6.6.6.6, 9.9.9.9, 10.0.0.2"}, "9.9.9.9"},
		{"10.0.0.1:5", []string{"6.6.6.6", "9.9.9.9", "10.0.0.2"}, "9.9.9.9"},
		{"10.0.0.1:5", []string{"10.0.0.3, 9.9.9.9", "10.0.0.2,10.0.0.4"}, "9.9.9.9"},
		{"[::ffff:10.0.0.1]:5", []string{"9.9.9.9"}, "9.9.9.9"},
		{"[fd00::1]:5", []string{"9.9.9.9"}, "9.9.9.9"},
		{"[fe80::1%eth0]:5", []string{"9.9.9.9, fe80::2%eth1"}, "9.9.9.9"},
		{"192.168.3.4:5", []string{"9.9.9.9"}, "9.9.9.9"}, // its network was given in the mapped form
		{"192.169.0.1:5", []string{"9.9.9.9"}, "192.169.0.1"},
		// Spellings.
		{"10.0.0.1:5", []string{"::ffff:9.9.9.9"}, "9.9.9.9"},
		{"10.0.0.1:5", []string{"9.9.9.9:1234"}, "9.9.9.9"},
		{"10.0.0.1:5", []string{"2001:db8::2"}, "2001:db8::/64"},
		{"10.0.0.1:5", []string{"[2001:db8::3]"}, "2001:db8::/64"},
		{"10.0.0.1:5", []string{"[2001:db8::4]:80"}, "2001:db8::/64"},
		{"10.0.0.1:5", []string{"2001:db8::5%x"}, "2001:db8::/64"},
		{"10.0.0.1:5", []string{"6.6.6.6,,\t9.9.9.9 , ,"}, "9.9.9.9"},
		// All trusted, or nothing to read: the last that was.
		{"10.0.0.1:5", []string{"10.0.0.2, 10.0.0.3"}, "10.0.0.2"},
		{"10.0.0.1:5", []string{""}, "10.0.0.1"},
		{"10.0.0.1:5", []string{"unknown"}, "10.0.0.1"},
		{"10.0.0.1:5", []string{"6.6.6.6, 09.9.9.9, 10.0.0.2"}, "10.0.0.2"},
		{"10.0.0.1:5", []string{"[9.9.9.9"}, "10.0.0.1"},
	}
	for _, tt := range tests {
		r := &http.Request{RemoteAddr: tt.peer, Header: http.Header{"X-Forwarded-For": tt.forwarded}}
		tested.Want(t, fmt.Sprintf("peer %q, forwarded %q: key", tt.peer, tt.forwarded), ClientAddr(trusted...)(r), tt.want)
	}
}

func TestClientAddrWithoutTrustIgnoresTheHeader(t *testing.T) {
	changed := prefixes("10.0.0.0/8")
	keeps := ClientAddr(changed...)
	changed[0] = netip.MustParsePrefix("0.0.0.0/0")
	for name, tt := range map[string]struct {
		key  KeyFunc
		peer string
	}{
		"no networks":                          {ClientAddr(), "10.0.0.1"},
		"a network that is not valid":          {ClientAddr(netip.Prefix{}), "10.0.0.1"},
		"the caller's slice was changed later": {keeps, "1.2.3.4"},
	} {
		r := &http.Request{RemoteAddr: tt.peer + ":5", Header: http.Header{"X-Forwarded-For": {"9.9.9.9"}}}
		tested.Want(t, name+": key", tt.key(r), tt.peer)
	}
	r := &http.Request{RemoteAddr: "203.0.113.7:5678"}
	tested.Want(t, "allocations for an IPv4 address", testing.AllocsPerRun(100, func() { keeps(r) }), 0)
}

// keyFunc is the key function of a config that must be valid.
func keyFunc(t testing.TB, c ClientAddrConfig) KeyFunc {
	t.Helper()
	key, err := c.KeyFunc()
	tested.Must(t, err)
	return key
}

func TestClientAddrBits(t *testing.T) {
	for _, tt := range []struct {
		peer   string
		config ClientAddrConfig
		want   string
	}{
		{"[2001:db8:1:2:3::4]:5", ClientAddrConfig{}, "2001:db8:1:2::/64"},
		{"[2001:db8:1:2:3::4]:5", ClientAddrConfig{IPv6Bits: 128}, "2001:db8:1:2:3::4/128"},
		{"[2001:db8:1:2:3::4]:5", ClientAddrConfig{IPv6Bits: 48, IPv4Bits: 8}, "2001:db8:1::/48"},
		{"[2001:db8:1:2:3::4]:5", ClientAddrConfig{IPv6Bits: 1}, "::/1"},
		{"203.0.113.7:5", ClientAddrConfig{}, "203.0.113.7"},
		{"203.0.113.7:5", ClientAddrConfig{IPv4Bits: 32, IPv6Bits: 1}, "203.0.113.7"},
		{"203.0.113.7:5", ClientAddrConfig{IPv4Bits: 24}, "203.0.113.0/24"},
		{"[::ffff:203.0.113.7]:5", ClientAddrConfig{IPv4Bits: 24}, "203.0.113.0/24"},
		{"203.0.113.7:5", ClientAddrConfig{IPv4Bits: 1}, "128.0.0.0/1"},
	} {
		if got := keyFunc(t, tt.config)(&http.Request{RemoteAddr: tt.peer}); got != tt.want {
			t.Errorf("%s, %+v: key %q, want %q", tt.peer, tt.config, got, tt.want)
		}
	}
}

func TestClientAddrConfigNamesFieldAndValue(t *testing.T) {
	trusted := prefixes("10.0.0.0/8")
	for want, config := range map[string]ClientAddrConfig{
		"IPv4Bits: -1 is":                    {IPv4Bits: -1},
		"IPv4Bits: 33 is":                    {IPv4Bits: 33},
		"IPv6Bits: -1 is":                    {IPv6Bits: -1},
		"IPv6Bits: 129 is":                   {IPv6Bits: 129},
		"Trusted[1]: invalid":                {Trusted: append(trusted, netip.Prefix{})},
		`Header: "X-Real-IP" is read only`:   {Header: "X-Real-IP"},
		`Header: "X Real IP" is not`:         {Header: "X Real IP", Trusted: trusted},
		`Header: "é" is not`:                 {Header: "é", Trusted: trusted},
		`Header: "Host" is not`:              {Header: "Host", Trusted: trusted},
		"Header: Forwarded is not a list of": {Header: "forwarded", Trusted: trusted},
	} {
		key, err := config.KeyFunc()
		if key != nil || err == nil || !strings.Contains(err.Error(), "httplimit: ClientAddrConfig."+want) {
			t.Errorf("%+v: %v, want an error that says %q", config, err, want)
		}
	}
}

// A field with one address is believed of a trusted peer alone, and never together with X-Forwarded-For.
func TestClientAddrByXRealIP(t *testing.T) {
	trusted := prefixes("10.0.0.0/8", "::ffff:192.168.0.0/112")
	key := keyFunc(t, ClientAddrConfig{Trusted: trusted, Header: "x-real-ip"})
	for _, tt := range []struct {
		peer  string
		lines []string
		want  string
	}{
		{"10.0.0.1:5", []string{"9.9.9.9"}, "9.9.9.9"},
		{"10.0.0.1:5", []string{"::ffff:9.9.9.9"}, "9.9.9.9"},
		{"10.0.0.1:5", []string{"[2001:db8::2]:80"}, "2001:db8::/64"},
		{"192.168.3.4:5", []string{"9.9.9.9:80"}, "9.9.9.9"},
		{"10.0.0.1:5", []string{"10.0.0.7"}, "10.0.0.7"}, // an inner client, or another proxy
		{"1.2.3.4:5", []string{"9.9.9.9"}, "1.2.3.4"},    // a stranger
		{"10.0.0.1:5", nil, "10.0.0.1"},
		{"10.0.0.1:5", []string{""}, "10.0.0.1"},
		{"10.0.0.1:5", []string{"unknown"}, "10.0.0.1"},
		{"10.0.0.1:5", []string{"9.9.9.9, 8.8.8.8"}, "10.0.0.1"},
		{"10.0.0.1:5", []string{"9.9.9.9", "8.8.8.8"}, "10.0.0.1"}, // which one the proxy wrote is not known
		{"@", []string{"9.9.9.9"}, noAddr},
	} {
		r := &http.Request{RemoteAddr: tt.peer, Header: http.Header{
			"X-Real-Ip":       tt.lines,
			"X-Forwarded-For": {"6.6.6.6"},
		}}
		tested.Want(t, fmt.Sprintf("peer %q, X-Real-IP %q: key", tt.peer, tt.lines), key(r), tt.want)
	}
	r := &http.Request{RemoteAddr: "10.0.0.1:5",
		Header: http.Header{"X-Real-Ip": {"6.6.6.6"}, "X-Forwarded-For": {"9.9.9.9"}}}
	tested.Want(t, "the key of X-Forwarded-For, beside X-Real-IP",
		keyFunc(t, ClientAddrConfig{Trusted: trusted, Header: "X-Forwarded-For"})(r), "9.9.9.9")
}

// The clients behind a proxy at a Unix socket are told apart if it is trusted, whatever its name looks like.
func TestClientAddrBehindAUnixSocket(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir) // a name of a socket is short, and may look like an address
	trusted := prefixes("10.0.0.0/8")
	for _, tt := range []struct {
		config ClientAddrConfig
		name   string // that the peer gives its end
		lines  []string
		want   string
	}{
		{ClientAddrConfig{TrustUnix: true}, "", []string{"9.9.9.9"}, "9.9.9.9"},
		{ClientAddrConfig{TrustUnix: true}, "", []string{"6.6.6.6, 9.9.9.9"}, "9.9.9.9"},
		{ClientAddrConfig{TrustUnix: true}, "", []string{"2001:db8::1"}, "2001:db8::/64"},
		{ClientAddrConfig{TrustUnix: true, Trusted: trusted}, "", []string{"9.9.9.9, 10.0.0.1"}, "9.9.9.9"},
		{ClientAddrConfig{TrustUnix: true}, "10.0.0.1:5", []string{"9.9.9.9"}, "9.9.9.9"},
		{ClientAddrConfig{TrustUnix: true}, "8.8.8.8:5", nil, noAddr},
		{ClientAddrConfig{TrustUnix: true}, "", nil, noAddr},
		{ClientAddrConfig{TrustUnix: true}, "", []string{"unknown"}, noAddr},
		{ClientAddrConfig{TrustUnix: true, Header: "X-Real-IP"}, "", []string{"9.9.9.9"}, "6.6.6.6"},
		{ClientAddrConfig{Trusted: trusted}, "", []string{"9.9.9.9"}, noAddr},
		{ClientAddrConfig{}, "", []string{"9.9.9.9"}, noAddr},
	} {
		key := keyFunc(t, tt.config)
		got := make(chan string, 1)
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			got <- key(r)
		}))
		l, err := net.Listen("unix", filepath.Join(dir, "s"))
		tested.Must(t, err)
		_ = server.Listener.Close()
		server.Listener = l
		server.Start()
		own := net.Dialer{LocalAddr: &net.UnixAddr{Name: tt.name, Net: "unix"}}
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return own.DialContext(ctx, "unix", "s")
			}}}
		r := get(t, "/")
		r.RequestURI, r.URL.Scheme, r.URL.Host = "", "http", "h"
		r.Header["X-Forwarded-For"], r.Header["X-Real-Ip"] = tt.lines, []string{"6.6.6.6"}
		if _, err := client.Do(r); err != nil {
			t.Fatal(err)
		}
		tested.Want(t, fmt.Sprintf("%+v, peer %q, forwarded %q: key", tt.config, tt.name, tt.lines), <-got, tt.want)
		server.Close()
		_ = os.Remove(tt.name)
	}
}
