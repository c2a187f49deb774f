package front

import (
	"errors"
	"net"
	"net/netip"
	"slices"

	"github.com/pires/go-proxyproto"
)

var errFamily = errors.New("front: the PROXY protocol names an address that is not one of TCP")

// peers has trusted peers say by the PROXY protocol whose connection it is: they must. The first bytes of
// other peers are not read as that, and are a malformed request.
func (s *Server) peers(l net.Listener) net.Listener {
	if !s.proxy.ProxyProtocol {
		return l
	}
	return &proxyproto.Listener{
		Listener:          l,
		ReadHeaderTimeout: s.proxy.Timeouts.ReadHeader,
		ConnPolicy: func(o proxyproto.ConnPolicyOptions) (proxyproto.Policy, error) {
			if s.trusts(o.Upstream) {
				return proxyproto.REQUIRE, nil
			}
			return proxyproto.SKIP, nil
		},
		ValidateHeader: func(h *proxyproto.Header) error {
			family := h.TransportProtocol
			if h.Command.IsLocal() || family.IsUnspec() || family.IsStream() && (family.IsIPv4() || family.IsIPv6()) {
				return nil
			}
			return errFamily
		},
	}
}

func (s *Server) trusts(a net.Addr) bool {
	if a.Network() == "unix" {
		return s.now.Load().unix
	}
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return false
	}
	addr := tcp.AddrPort().Addr().Unmap().WithZone("")
	return slices.ContainsFunc(s.now.Load().trusted, func(p netip.Prefix) bool { return p.Contains(addr) })
}
