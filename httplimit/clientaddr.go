package httplimit

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// clientBits is how many bits of an IPv6 address name one client unless ClientAddrBits says otherwise. A /64
// is one subnet (RFC 4291, 2.5.4), and one host may use all of it.
const clientBits = 64

// noAddr is the key of requests whose peer has no IP address, as on a Unix
// socket.
const noAddr = "(no address)"

// ClientAddr returns a KeyFunc that limits by the client's IP address.
//
// The address is that of the peer, http.Request.RemoteAddr. X-Forwarded-For is read only if the peer lies in
// one of the trusted networks. Then all its lines are read as one list from the right, and the first address
// that is not in a trusted network is the client. What a client wrote into the header itself stands further
// to the left and is never reached. If an entry is not an address, or the list ends, the last trusted address
// before it is the key. Without trusted networks the header is ignored.
//
// An IPv4 address is its own key, also when written as ::ffff:1.2.3.4. IPv6
// addresses share a key with their /64, written as "2001:db8::/64"; see
// ClientAddrBits. Zones and ports are dropped. Peers without an IP address share
// one key. The key of an IPv6 address costs one allocation, that of a peer's IPv4
// address none.
//
// A prefix that is not valid, such as the zero netip.Prefix, contains nothing.
func ClientAddr(trusted ...netip.Prefix) KeyFunc {
	return clientAddr{trusted: unmapAll(trusted), bits: clientBits}.key
}

// ClientAddrBits is ClientAddr with IPv6 clients told apart by the first
// ipv6Bits bits of their address: 128 for each address, 56 or 48 for networks of
// a whole site. It fails if ipv6Bits is not in 1 to 128.
func ClientAddrBits(ipv6Bits int, trusted ...netip.Prefix) (KeyFunc, error) {
	if ipv6Bits < 1 || ipv6Bits > 128 {
		return nil, fmt.Errorf("httplimit: ClientAddrBits: ipv6Bits is %d, want 1 to 128", ipv6Bits)
	}
	return clientAddr{trusted: unmapAll(trusted), bits: ipv6Bits}.key, nil
}

// clientAddr finds the client of a request. Its networks are unmapped.
type clientAddr struct {
	trusted []netip.Prefix
	bits    int
}

func (c clientAddr) key(r *http.Request) string {
	peer, ok := parseAddr(r.RemoteAddr)
	if !ok {
		return noAddr
	}
	addr := peer
	if len(c.trusted) > 0 {
		addr = c.client(peer, r.Header["X-Forwarded-For"])
	}
	if addr.Is6() {
		prefix, _ := addr.Prefix(c.bits) // bits were checked
		return prefix.String()
	}
	if text, _, _ := strings.Cut(r.RemoteAddr, ":"); addr == peer && strings.Contains(text, ".") {
		return text // no allocation: an IPv4 address has one spelling only
	}
	return addr.String()
}

// client follows the header from the peer outwards, as long as hosts that are trusted wrote it.
func (c clientAddr) client(addr netip.Addr, forwarded []string) netip.Addr {
	for _, line := range slices.Backward(forwarded) {
		for more := true; more && c.trusts(addr); {
			var entry string
			line, entry, more = cutLast(line)
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

func (c clientAddr) trusts(addr netip.Addr) bool {
	return slices.ContainsFunc(c.trusted, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// cutLast splits a list at its last comma. The entry is trimmed; more reports
// whether there was a comma.
func cutLast(list string) (rest, entry string, more bool) {
	i := strings.LastIndexByte(list, ',')
	if i >= 0 {
		rest, more = list[:i], true
	}
	return rest, strings.Trim(list[i+1:], " \t"), more
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

// unmapAll copies prefixes and turns ::ffff:a.b.c.d/n into a.b.c.d/(n-96), since
// addresses are compared unmapped.
func unmapAll(prefixes []netip.Prefix) []netip.Prefix {
	out := slices.Clone(prefixes)
	for i, p := range out {
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			out[i] = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
	}
	return out
}
