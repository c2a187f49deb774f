package httplimit

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/textproto"
	"slices"
	"strings"

	"github.com/quotient-go/quotient/internal/field"
)

// IPv4Bits and IPv6Bits of a zero ClientAddrConfig. A /64 is one subnet (RFC 4291, 2.5.4), and one host may
// use all of it.
const (
	ipv4Bits = 32
	ipv6Bits = 64
)

// forwardedFor is the field in which each proxy adds the address that it got the request from.
const forwardedFor = "X-Forwarded-For"

// noAddr is the key of requests whose peer has no IP address, as on a Unix socket, unless it is trusted and names one.
const noAddr = "(no address)"

// ClientAddr returns a KeyFunc that limits by the client's IP address.
//
// The address is that of the peer, http.Request.RemoteAddr. X-Forwarded-For is read only if the peer lies in
// one of the trusted networks. Then all its lines are read as one list from the right, and the first address
// that is not in a trusted network is the client. Addresses that a client wrote into the header itself stand
// further to the left and are never reached. If an entry is not an address, or the list ends, the last
// trusted address before it is the key. Without trusted networks the header is ignored.
//
// An IPv4 address is its own key, also when written as ::ffff:1.2.3.4. IPv6 addresses share a key with their
// /64, written as "2001:db8::/64". Zones and ports are dropped. Peers without an IP address share one key.
// The key of an IPv6 address costs one allocation, that of a peer's IPv4 address none. ClientAddrConfig has
// other prefixes and headers, and trusts a proxy that connects to a Unix socket.
//
// A prefix that is not valid, such as the zero netip.Prefix, contains nothing.
func ClientAddr(trusted ...netip.Prefix) KeyFunc {
	return clientAddr{trusted: unmapAll(trusted), header: forwardedFor, bits4: ipv4Bits, bits6: ipv6Bits}.key
}

// ClientAddrConfig is a ClientAddr with settings. The zero value is ClientAddr without trusted networks.
type ClientAddrConfig struct {
	// Trusted are the networks of trusted proxies.
	Trusted []netip.Prefix
	// TrustUnix trusts the peers of Unix sockets as those of the networks: proxies on the same machine, whose
	// access the socket's file decides. If such a peer names no client, all of its requests share the key of peers
	// without an IP address. A connection is known by http.LocalAddrContextKey, which http.Server sets.
	TrustUnix bool
	// Header is the only field that is read from a trusted peer's request. Empty means X-Forwarded-For.
	//
	// Any other field, such as X-Real-IP or CF-Connecting-IP, has one address, with which the nearest
	// trusted proxy has replaced any other. That address is the client, in a trusted network or not. If the
	// field is missing, comes twice or is not an address, the key is the peer's address.
	//
	// Name a field that the proxy always sets. A field that it merely passes on is written by the client.
	Header string
	// IPv4Bits and IPv6Bits are how many bits of an address distinguish clients: 1 to 32, and 1 to 128. 0
	// means 32, and 64. With fewer than 32 the key of an IPv4 address is its network, "203.0.113.0/24".
	IPv4Bits, IPv6Bits int
}

// KeyFunc returns the key function, or an error that names the first wrong field: bits out of range, a
// network that is not valid, or a Header. A Header is wrong if no request has a field of this name, if no peer
// is trusted, or if it is Forwarded, which is not a list of addresses.
func (c ClientAddrConfig) KeyFunc() (KeyFunc, error) {
	const name = "httplimit: ClientAddrConfig."
	if c.IPv4Bits < 0 || c.IPv4Bits > 32 {
		return nil, fmt.Errorf(name+"IPv4Bits: %d is not between 0 and 32", c.IPv4Bits)
	}
	if c.IPv6Bits < 0 || c.IPv6Bits > 128 {
		return nil, fmt.Errorf(name+"IPv6Bits: %d is not between 0 and 128", c.IPv6Bits)
	}
	for i, p := range c.Trusted {
		if !p.IsValid() {
			return nil, fmt.Errorf(name+"Trusted[%d]: %v is not a valid network", i, p)
		}
	}
	header := textproto.CanonicalMIMEHeaderKey(cmp.Or(c.Header, forwardedFor))
	switch {
	case !field.IsName(header), field.Apart(header):
		return nil, fmt.Errorf(name+"Header: %q is not the name of a header field", c.Header)
	case header == "Forwarded":
		return nil, errors.New(name + "Header: Forwarded is not a list of addresses, and is not supported")
	case c.Header != "" && len(c.Trusted) == 0 && !c.TrustUnix:
		return nil, fmt.Errorf(name+"Header: %q is read only from Trusted networks, and there are none", c.Header)
	}
	return clientAddr{
		trusted: unmapAll(c.Trusted), unix: c.TrustUnix, header: header,
		bits4: cmp.Or(c.IPv4Bits, ipv4Bits), bits6: cmp.Or(c.IPv6Bits, ipv6Bits),
	}.key, nil
}

// clientAddr finds the client of a request. Its networks are unmapped.
type clientAddr struct {
	trusted      []netip.Prefix
	unix         bool   // the peer of a Unix socket is trusted; it stands for the address that is not valid
	header       string // as net/http keeps its name
	bits4, bits6 int
}

func (c clientAddr) key(r *http.Request) string {
	peer, ok := parseAddr(r.RemoteAddr)
	if c.unix && ofUnix(r) {
		peer, ok = netip.Addr{}, true // its name may look like an address
	}
	if !ok {
		return noAddr
	}
	addr := c.behind(peer, r)
	if !addr.IsValid() {
		return noAddr
	}
	if addr.Is6() {
		prefix, _ := addr.Prefix(c.bits6) // bits were checked
		return prefix.String()
	}
	if c.bits4 < ipv4Bits {
		prefix, _ := addr.Prefix(c.bits4)
		return prefix.String()
	}
	if text, _, _ := strings.Cut(r.RemoteAddr, ":"); addr == peer && strings.Contains(text, ".") {
		return text // no allocation: an IPv4 address has one spelling only
	}
	return addr.String()
}

// behind is the client behind a peer, or the peer.
func (c clientAddr) behind(peer netip.Addr, r *http.Request) netip.Addr {
	if len(c.trusted) == 0 && !c.unix {
		return peer
	}
	lines := r.Header[c.header]
	if c.header == forwardedFor {
		return c.client(peer, lines)
	}
	if len(lines) == 1 && c.trusts(peer) {
		if addr, ok := parseAddr(lines[0]); ok {
			return addr
		}
	}
	return peer
}

// client follows the header from the peer outwards, as long as hosts that are trusted wrote it.
func (c clientAddr) client(addr netip.Addr, forwarded []string) netip.Addr {
	for _, line := range slices.Backward(forwarded) {
		for more := true; more && c.trusts(addr); {
			last := strings.LastIndexByte(line, ',')
			entry := strings.Trim(line[last+1:], " \t")
			line, more = line[:max(0, last)], last >= 0
			if entry == "" {
				continue // RFC 9110, 5.6.1: empty elements of a list do not count
			}
			next, ok := parseAddr(entry)
			if !ok {
				return addr
			}
			addr = next
		}
	}
	return addr
}

// ofUnix reports whether a request has come over a Unix socket.
func ofUnix(r *http.Request) bool {
	at, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return at != nil && at.Network() == "unix"
}

func (c clientAddr) trusts(addr netip.Addr) bool {
	return !addr.IsValid() || slices.ContainsFunc(c.trusted, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// parseAddr reads an address with or without brackets and port, and drops its
// zone. An IPv4 address comes back unmapped.
func parseAddr(s string) (netip.Addr, bool) {
	if withPort, err := netip.ParseAddrPort(s); err == nil {
		return withPort.Addr().Unmap().WithZone(""), true
	}
	if strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") {
		s = s[1 : len(s)-1]
	}
	addr, err := netip.ParseAddr(s)
	return addr.Unmap().WithZone(""), err == nil
}

// unmapAll copies prefixes and turns ::ffff:a.b.c.d/n into a.b.c.d/(n-96), since addresses are compared unmapped.
func unmapAll(prefixes []netip.Prefix) []netip.Prefix {
	out := slices.Clone(prefixes)
	for i, p := range out {
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			out[i] = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
	}
	return out
}
