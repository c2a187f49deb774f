package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/poolsize/dns"
	"github.com/quotient-go/quotient/poolsize/dns/dnstest"
	"github.com/quotient-go/quotient/poolsize/file"
	"github.com/quotient-go/quotient/poolsize/gossip"
	"github.com/quotient-go/quotient/poolsize/redis"
	"github.com/quotient-go/quotient/poolsize/redis/redistest"
)

// How the replicas count themselves: fast, to show it all in twelve seconds. A service would take the defaults.
const (
	holdDown     = 2 * time.Second        // a smaller pool counts after this; 30 s by default
	hintMaxAge   = 20 * time.Second       // without a word for so long, the configured size counts; never by default
	gossipRejoin = time.Second            // 10 s by default
	gossipProbe  = 150 * time.Millisecond // 1 s by default

	mostReplicas = 7                     // in one run: those at the start, and the one that joins
	fleetName    = "replicas.fleet.test" // in the DNS and in Redis: names under .test never exist (RFC 6761)
)

// A counting is a way for replicas to know how many they are: a value of -pool.
type counting struct {
	start  func(*fleet) (platform, error)
	how    string        // for the reader
	period time.Duration // between two looks; 0 when they do not look, but are told
	expiry time.Duration // until one who says nothing any more counts as gone
}

var countings = map[string]counting{
	"static": {startStatic, "is told", 0, 0},
	"file":   {startFile, "reads in a file", 200 * time.Millisecond, 0},
	"dns":    {startDNS, "looks up in the DNS", 250 * time.Millisecond, 0},
	"redis":  {startRedis, "counts in Redis", 250 * time.Millisecond, time.Second},
	"gossip": {startGossip, "hears from the others", 200 * time.Millisecond, 2 * time.Second}, // some ten probes
}

// allowed is how late a change may be noticed by the last replica, on a machine that never stands still. Two
// periods, since a look may have begun just before the change.
func (c counting) allowed(of string) time.Duration {
	if of == "kill" && c.period > 0 {
		return 2*c.period + holdDown + c.expiry
	}
	return 2 * c.period
}

// A platform is what runs the replicas, as far as they can see of it. It knows who is alive.
type platform struct {
	name  string                // for the reader
	at    string                // where the replicas look: a path, an address
	say   func(ids []int) error // makes known which replicas live; nil: the replicas find out
	close func() error
}

// startStatic is an operator who tells each replica how many there are, or what -believe says.
func startStatic(f *fleet) (platform, error) {
	say := func(ids []int) error {
		return each(f.alive(), func(p *process) error { return p.tell(f.told(len(ids))) })
	}
	return platform{"their configuration", "", say, func() error { return nil }}, nil
}

// startFile writes how many are alive into a file, in one step, so that no reader sees half of it.
func startFile(*fleet) (platform, error) {
	dir, err := os.MkdirTemp("", "fleet")
	path := filepath.Join(dir, "replicas")
	say := func(ids []int) error {
		next := path + ".next"
		return errors.Join(os.WriteFile(next, []byte(strconv.Itoa(len(ids))+"\n"), 0o600), os.Rename(next, path))
	}
	return platform{"a file that the platform writes", path, say, func() error { return os.RemoveAll(dir) }}, err
}

// startDNS holds an address record for each replica, as a headless Service of Kubernetes does.
func startDNS(*fleet) (platform, error) {
	server, err := dnstest.New()
	if err != nil {
		return platform{}, err
	}
	say := func(ids []int) error {
		var addrs []netip.Addr
		for _, id := range ids {
			addrs = append(addrs, address(id))
		}
		server.Set(fleetName, addrs...)
		return nil
	}
	return platform{"the DNS of the platform", server.Addr(), say, server.Close}, nil
}

func address(id int) netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 0, byte(id)}) }

// startRedis notifies no replica. One that ends in order signs off; one that is killed expires.
func startRedis(*fleet) (platform, error) {
	server, err := redistest.Start()
	if err != nil {
		return platform{}, err
	}
	name := "Redis (redis-server)"
	if !server.Real() {
		name = "Redis (miniredis, as there is no redis-server here)"
	}
	return platform{name, server.Addr(), nil, server.Close}, nil
}

// startGossip is no platform at all: the replicas find each other, by free ports for all that there may ever be.
func startGossip(*fleet) (platform, error) {
	var addresses []string
	for range mostReplicas {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return platform{}, err
		}
		defer l.Close() //nolint:errcheck // nothing is lost
		addresses = append(addresses, l.Addr().String())
	}
	return platform{"each other", strings.Join(addresses, ","), nil, func() error { return nil }}, nil
}

// source is how a replica counts the pool, all that a program has to know of its platform; nil if it gets the size.
func (a assignment) source() (quotient.Source, error) {
	period, expiry := countings[a.Pool].period, countings[a.Pool].expiry
	switch a.Pool {
	case "file":
		return &file.Source{Path: a.At, Every: period}, nil
	case "dns": // a pod has an address of its own and the resolver of its platform; here, both have to be given
		dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, a.At)
		}
		return &dns.Source{Name: fleetName + ".", Refresh: period, Own: []netip.Addr{address(a.ID)},
			Resolver: &net.Resolver{PreferGo: true, Dial: dial}}, nil
	case "redis":
		client := goredis.NewClient(&goredis.Options{Addr: a.At, ContextTimeoutEnabled: true})
		return &redis.Source{Client: client, Fleet: fleetName, Period: period, Expiry: expiry}, nil
	case "gossip": // a pod would join the addresses of its headless Service, this joins those that were started before
		addresses := strings.Split(a.At, ",")
		return gossip.New(gossip.Config{Fleet: fleetName, Name: fmt.Sprintf("replica-%d", a.ID), Probe: gossipProbe,
			Bind: addresses[a.ID-1], Join: addresses[:a.ID-1], Rejoin: gossipRejoin})
	}
	return nil, nil
}

// machine is what a look, a round trip and a wake-up may take beyond the periods when nothing stands still, and the
// tenth by which some periods are longer than they are on average.
const machine = 250 * time.Millisecond

// lateness judges how late each change was noticed. Four times the longest stall are forgiven: the replica that
// looks, the answering server, the replica that puts it in force and the observer may all have stood still. A
// change that was not noticed when the next one came, although there was time yet, stays open.
func (f *fleet) lateness() (checks []check) {
	slack := machine + 4*max(f.total().Stall, f.stood)
	for _, ph := range f.phases {
		if ph.of == "" {
			continue
		}
		late, all := ph.late()
		took, allowed := max(0, ph.From+late-ph.said), countings[f.plan.Pool].allowed(ph.of)
		ok := took <= allowed+slack
		found := fmt.Sprintf("noticed by all in %.2f s", took.Seconds())
		if !all {
			found = fmt.Sprintf("not noticed by all in %.2f s", took.Seconds())
			if ok {
				found += ", too short a time to judge"
			}
		}
		want := fmt.Sprintf("at most %.2f s, and %.2f s for this machine", allowed.Seconds(), slack.Seconds())
		checks = append(checks, promise(ph.of, found, want, ok))
	}
	return checks
}
