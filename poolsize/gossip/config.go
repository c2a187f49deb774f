package gossip

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/quotient-go/quotient/poolsize/internal/setting"
)

// Config holds the settings of a Source. All fields may be zero, but an address that others can reach needs
// a KeyFile.
type Config struct {
	// Fleet names the replicas that share the limits, in at most 100 bytes; "" means quotient. Replicas of
	// other fleets are refused, even with the same key. The name is not secret.
	Fleet string
	// Name is this replica's name, in at most 200 bytes. It must be unique in the fleet. The order of the names gives
	// the ordinals. "" means the host's name and the port of Bind, or a random word in place of port 0.
	Name string
	// Bind is the address to listen on, "host:port", for both UDP and TCP. The host is an IP address or
	// localhost; without a host it means all interfaces. "" means ":7946". With port 0 the kernel chooses a
	// free port. Connections to others come from that host too, from any port.
	Bind string
	// Advertise is the address that the others use, "host" or "host:port", if it differs from Bind. ""
	// means Bind. If Bind means all interfaces, it means the host's first global address, IPv4 before IPv6.
	Advertise string
	// Join lists replicas to contact first, "host:port" or "host" with the port of Bind: names or IP
	// addresses. One live replica among them is enough. The own address may be in the list.
	Join []string
	// JoinFile names a file of such addresses, one a line, up to 64 KiB. The rest of a line after a # is a comment.
	JoinFile string
	// JoinDNS is a name whose addresses are those of replicas, "name:port" or "name", as of a headless Service.
	JoinDNS string
	// Resolver looks names up; nil: net.DefaultResolver.
	Resolver *net.Resolver
	// Rejoin is the pause between two reads of Join, JoinFile, JoinDNS and KeyFile, give or take a tenth: 10 ms to an
	// hour; 0 means 10 s. The reads continue for as long as Watch runs, and each one contacts the addresses that are
	// not members. So new replicas are found, and two halves of a fleet that lost each other meet again.
	Rejoin time.Duration
	// KeyFile names a file of one to 16 keys in base64, one a line, each of 16, 24 or 32 bytes. The rest of
	// a line after a # is a comment. The first key encrypts, and all decrypt. Without a file nothing is
	// encrypted, which is allowed only for loopback addresses.
	KeyFile string
	// Interval is the time from one packet to the next for each neighbour: 10 ms to 10 s; 0 means 200 ms.
	Interval time.Duration
	// Probe is the time between two probes of this replica, each of one member: 50 ms to a minute; 0 means
	// 1 s. A replica that dies without leaving is noticed after some five to ten probes.
	Probe time.Duration
	// Forget is how long replicas that died without leaving count, if the living are no more than they are: 100 ms to
	// a day; 0 means 10 min. Otherwise a replica that has lost the network to the others would take the whole limit.
	Forget time.Duration
	// PacketSize bounds a datagram, in bytes without its UDP and IP headers: 700 to 65,000; 0 means 1400.
	PacketSize int
	// MaxKeys bounds the keys that have numbers, of all replicas together: 1 to 65,536; 0 means 4,096.
	MaxKeys int
	// Expire is how long a counter stays that no replica adds to: a second to 30 days; 0 means an hour.
	Expire time.Duration
	// Weight is the number of replicas that this one counts as: 1 to 1,000; 0 means 1.
	Weight int
	// Logger receives the log of memberlist, at level debug. Nil means no log.
	Logger *slog.Logger
}

// Bounds of the fields.
const (
	longestFleet = 100
	mostJoin     = 1000 // addresses in all
	mostWeight   = 1000
)

// settings is a Config that is complete and right, and what it says in other words.
type settings struct {
	Config
	bind      netip.AddrPort // its address is invalid for all interfaces
	advertise netip.AddrPort // its address is invalid for that of bind; its port may be 0
	keys      [][]byte       // of KeyFile, as New has read it
}

// complete returns the settings for a replica with a random number, or the first field that is wrong.
func (c Config) complete(id uint64) (*settings, error) {
	c.Fleet = cmp.Or(c.Fleet, "quotient")
	c.Bind = cmp.Or(c.Bind, ":7946")
	c.Rejoin = cmp.Or(c.Rejoin, 10*time.Second)
	c.Interval = cmp.Or(c.Interval, 200*time.Millisecond)
	c.Probe = cmp.Or(c.Probe, time.Second)
	c.Forget = cmp.Or(c.Forget, 10*time.Minute)
	c.PacketSize = cmp.Or(c.PacketSize, 1400)
	c.MaxKeys = cmp.Or(c.MaxKeys, 4096)
	c.Expire = cmp.Or(c.Expire, time.Hour)
	c.Weight = cmp.Or(c.Weight, 1)
	c.Resolver = cmp.Or(c.Resolver, net.DefaultResolver)
	s := &settings{Config: c}
	if err := cmp.Or(s.checkAddresses(), s.checkNames(id), s.checkNumbers(), s.checkJoin()); err != nil {
		return nil, err
	}
	return s, s.checkKeys()
}

func wrong(field string, value any, format string, a ...any) error {
	return fmt.Errorf("gossip: Config.%s: %v %s", field, value, fmt.Sprintf(format, a...))
}

func (s *settings) checkAddresses() (err error) {
	host, port, err := net.SplitHostPort(s.Bind)
	if err != nil {
		return wrong("Bind", strconv.Quote(s.Bind), "is not host:port: %v", err)
	}
	if s.bind, err = address(host, port); err != nil {
		return wrong("Bind", strconv.Quote(s.Bind), "is no address: %v", err)
	}
	if s.Advertise == "" {
		return nil
	}
	if s.advertise, err = advertised(s.Advertise); err != nil {
		return wrong("Advertise", strconv.Quote(s.Advertise), "is no address: %v", err)
	}
	return nil
}

// advertised reads an address with or without a port, which other hosts can dial.
func advertised(text string) (netip.AddrPort, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host, port = strings.Trim(text, "[]"), "0"
	}
	a, err := address(host, port)
	if err == nil && everywhere(a.Addr()) {
		err = errors.New("it names no host")
	}
	return a, err
}

// address reads an IP address, or localhost, and a port. An empty host gives an invalid address.
func address(host, port string) (netip.AddrPort, error) {
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("port %q", port)
	}
	var a netip.Addr
	switch host {
	case "":
	case "localhost":
		a = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	default:
		if a, err = netip.ParseAddr(host); err != nil {
			return netip.AddrPort{}, err
		}
		if a.Zone() != "" {
			return netip.AddrPort{}, fmt.Errorf("zone %q", a.Zone())
		}
	}
	return netip.AddrPortFrom(a.Unmap(), uint16(n)), nil
}

// everywhere reports whether an address means all interfaces.
func everywhere(a netip.Addr) bool { return !a.IsValid() || a.IsUnspecified() }

func (s *settings) checkNames(id uint64) error {
	if s.Name == "" {
		host, err := setting.ID("gossip: Config.Name", "")
		if err != nil {
			return err
		}
		s.Name = fmt.Sprintf("%s:%d", host, s.bind.Port())
		if s.bind.Port() == 0 {
			s.Name = fmt.Sprintf("%s:%016x", host, id)
		}
	}
	return cmp.Or(setting.Name("gossip: Config.Fleet", s.Fleet, longestFleet, "", ""),
		setting.Name("gossip: Config.Name", s.Name, setting.LongestName, "", ""))
}

// clip is a text in quotes, cut where it is long.
func clip(s string) string { return fmt.Sprintf("%.40q", s) }

func (s *settings) checkNumbers() error {
	const field = "gossip: Config."
	return cmp.Or(
		setting.Between(field+"Interval", s.Interval, 10*time.Millisecond, 10*time.Second),
		setting.Between(field+"Probe", s.Probe, 50*time.Millisecond, time.Minute),
		setting.Between(field+"Forget", s.Forget, 100*time.Millisecond, 24*time.Hour),
		setting.Between(field+"Rejoin", s.Rejoin, 10*time.Millisecond, time.Hour),
		setting.Between(field+"Expire", s.Expire, time.Second, 30*24*time.Hour),
		setting.Between(field+"PacketSize", s.PacketSize, 700, 65_000),
		setting.Between(field+"MaxKeys", s.MaxKeys, 1, 65_536),
		setting.Between(field+"Weight", s.Weight, 1, mostWeight),
	)
}

func (s *settings) checkJoin() error {
	if n := len(s.Join); n > mostJoin {
		return wrong("Join", n, "addresses are more than %d", mostJoin)
	}
	for i, text := range s.Join {
		if _, err := parsePeer(text); err != nil {
			return wrong(fmt.Sprintf("Join[%d]", i), clip(text), "is no address: %v", err)
		}
	}
	if s.JoinDNS != "" {
		if _, err := parsePeer(s.JoinDNS); err != nil {
			return wrong("JoinDNS", clip(s.JoinDNS), "is no name: %v", err)
		}
	}
	return nil
}

// checkKeys reads the key file. Without one only loopback addresses may be used.
func (s *settings) checkKeys() (err error) {
	if s.KeyFile != "" {
		s.keys, err = readKeys(context.Background(), s.KeyFile)
		return err
	}
	if !s.bind.Addr().IsLoopback() {
		return wrong("KeyFile", `""`, "does not go with Bind %q: beyond loopback all is encrypted", s.Bind)
	}
	if s.advertise.Addr().IsValid() && !s.advertise.Addr().IsLoopback() {
		return wrong("KeyFile", `""`, "does not go with Advertise %q: beyond loopback all is encrypted",
			s.Advertise)
	}
	return nil
}
