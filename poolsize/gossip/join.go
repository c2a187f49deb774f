package gossip

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quotient-go/quotient/internal/files"
	"github.com/quotient-go/quotient/internal/rest"
	"github.com/quotient-go/quotient/poolsize/internal/setting"
)

const (
	// lookUpTimeout bounds the look-up of one name.
	lookUpTimeout = 2 * time.Second
	// tries is the most addresses that are tried in one round.
	mostTries = 10
	// perMember is how much less often members are compared for each one that there is.
	perMember = 2 * time.Millisecond
	// aliasFor is after how many rounds an address is tried again that a member has not advertised.
	aliasFor = 6
	// enough is how many that answer end a round: each of them knows all the others of its part of the fleet.
	enough = 3
)

// addresses returns all that are written down, but the own one, each once. Errors come beside what was found.
func (s *settings) addresses(ctx context.Context, own netip.AddrPort) ([]netip.AddrPort, error) {
	peers, errs := s.peers(ctx)
	var found []netip.AddrPort
	for _, p := range peers {
		if ctx.Err() != nil || len(found) >= mostJoin {
			break
		}
		addrs, err := s.resolve(ctx, p)
		if err != nil {
			errs = append(errs, err)
		}
		for _, a := range addrs {
			found = append(found, netip.AddrPortFrom(a.Unmap(), cmp.Or(p.port, s.bind.Port(), own.Port())))
		}
	}
	slices.SortFunc(found, netip.AddrPort.Compare)
	found = slices.DeleteFunc(slices.Compact(found), func(a netip.AddrPort) bool { return a == own })
	return found[:min(len(found), mostJoin)], errors.Join(errs...)
}

func (s *settings) peers(ctx context.Context) (peers []peer, errs []error) {
	for _, text := range s.Join {
		p, _ := parsePeer(text) //nolint:errcheck // New has read it
		peers = append(peers, p)
	}
	if s.JoinDNS != "" {
		p, _ := parsePeer(s.JoinDNS) //nolint:errcheck // New has read it
		peers = append(peers, p)
	}
	if s.JoinFile == "" {
		return peers, nil
	}
	text, _, err := files.Read(ctx, s.JoinFile, longestFile)
	if err != nil {
		return peers, []error{fmt.Errorf("gossip: join file %w", err)}
	}
	more, err := parseJoin(string(text))
	if err != nil {
		errs = append(errs, fmt.Errorf("gossip: join file %s: %w", s.JoinFile, err))
	}
	return append(peers, more...), errs
}

func (s *settings) resolve(ctx context.Context, p peer) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(p.host); err == nil {
		return []netip.Addr{a}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	addrs, err := s.Resolver.LookupNetIP(ctx, "ip", p.host)
	if err != nil {
		return nil, fmt.Errorf("gossip: look up %s: %w", p.host, err)
	}
	return addrs, nil
}

// round is what came of one look at who else there is.
type round struct {
	listed   int   // addresses that are written down, without the own one
	answered int   // of those, by now
	members  int   // of them that were members before
	err      error // what failed
}

// join tries addresses that are no members yet.
func (s *session) join(ctx context.Context) (r round) {
	listed, err := s.src.c.addresses(ctx, s.transport.advertise)
	s.aliases.prune(time.Now())
	listed = slices.DeleteFunc(listed, s.aliases.isOwn)
	r.listed = len(listed)
	known := func(a netip.AddrPort) bool { return s.roster.has(a) || s.aliases.has(a) }
	strangers := slices.DeleteFunc(listed, known)
	r.members = r.listed - len(strangers)
	rand.Shuffle(len(strangers), func(i, j int) { strangers[i], strangers[j] = strangers[j], strangers[i] })
	errs := []error{err}
	for _, a := range strangers[:min(len(strangers), mostTries)] {
		if r.answered == enough || ctx.Err() != nil {
			break
		}
		if s.roster.has(a) {
			continue // one that has answered knew it
		}
		if err := s.meet(a, &r); err != nil {
			errs = append(errs, fmt.Errorf("gossip: join %v: %s", a, reason(err, a)))
		}
	}
	if r.answered+r.members > 0 {
		errs = errs[:1] // one that does not answer is no failure while others do
	}
	r.err = errors.Join(errs...)
	return r
}

// meet compares members with the replica at an address. It notes what kind of address that is.
func (s *session) meet(a netip.AddrPort, r *round) error {
	s.delegate.metItself.Store(false)
	if _, err := s.list.Join([]string{a.String()}); err != nil {
		return err
	}
	own := s.delegate.metItself.Load()
	if own {
		r.listed--
	} else {
		r.answered++
	}
	if own || !s.roster.has(a) {
		s.aliases[a] = alias{own, time.Now().Add(aliasFor * s.src.c.Rejoin)}
	}
	return nil
}

// aliases are addresses that replicas are listed under and do not advertise, such as one of the other family.
type aliases map[netip.AddrPort]alias

// alias is what is known of such an address.
type alias struct {
	own   bool      // it is this replica's
	until time.Time // then it may have become another one's
}

func (l aliases) isOwn(a netip.AddrPort) bool { return l[a].own }

func (l aliases) has(a netip.AddrPort) bool { x, ok := l[a]; return ok && !x.own }

// prune forgets what has been known for long enough.
func (l aliases) prune(now time.Time) {
	maps.DeleteFunc(l, func(_ netip.AddrPort, x alias) bool { return !now.Before(x.until) })
}

// keepUp has this replica compare its members with those of any other one while sums are not complete.
// Reports of members gets lost now and then, and two neighbours whose lists differ do not add up. memberlist
// itself compares twice a minute.
func (s *session) keepUp(ctx context.Context) {
	for behind := false; ; {
		members := s.src.Stats().Members
		pause := min(s.src.c.Rejoin, time.Second) + time.Duration(members)*perMember
		if !rest.For(ctx, setting.Jittered(pause)) {
			return
		}
		before := behind
		if behind = s.src.numbers.behind(s.src.c.Interval); !behind || !before {
			continue
		}
		if a, ok := s.roster.any(rand.IntN); ok {
			s.list.Join([]string{a.String()}) //nolint:errcheck // the next one may live
		}
	}
}

// reason is why an address could not be joined, in one line, without what memberlist puts before it.
func reason(err error, a netip.AddrPort) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	if _, why, ok := strings.Cut(text, "failed to join "+a.String()+": "); ok {
		return why
	}
	return text
}

// longestFile is the most bytes of a file of keys or addresses.
const longestFile = 64 << 10

// eachLine calls f with each line that says something, until f returns an error.
func eachLine(content string, f func(line string) error) error {
	n := 0
	for line := range strings.Lines(content) {
		n++
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if err := f(line); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	return nil
}

// peer is an address to join, as it is written.
type peer struct {
	host string // a name or an IP address
	port uint16 // 0: the port of Bind
}

// parsePeer reads "host:port" or "host". An IPv6 address with a port stands in brackets.
func parsePeer(text string) (peer, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host, port = text, "0"
		if inner, ok := strings.CutPrefix(text, "["); ok {
			host = strings.TrimSuffix(inner, "]")
		}
	} else if port == "0" {
		return peer{}, errors.New("port 0")
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return peer{}, fmt.Errorf("port %.40q", port)
	}
	if host == "" || len(host) > 253 {
		return peer{}, fmt.Errorf("a host of %d bytes", len(host))
	}
	if strings.ContainsAny(host, " \t[]/%") || strings.Contains(host, ":") && net.ParseIP(host) == nil {
		return peer{}, fmt.Errorf("host %.40q", host)
	}
	return peer{host, uint16(n)}, nil
}

func parseJoin(content string) (peers []peer, err error) {
	err = eachLine(content, func(line string) error {
		if len(peers) == mostJoin {
			return fmt.Errorf("there are more than %d addresses", mostJoin)
		}
		p, err := parsePeer(line)
		peers = append(peers, p)
		return err
	})
	if err != nil {
		return nil, err
	}
	return peers, nil
}
