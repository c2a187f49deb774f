package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/quotient-go/quotient/poolsize/dns/dnstest"
	"github.com/quotient-go/quotient/poolsize/redis/redistest"
)

// How the replicas count themselves. All of it is short, so that the act shows everything in twelve seconds; a
// service would take the defaults.
const (
	holdDown    = 2 * time.Second        // a smaller pool counts after this; 30 s by default
	hintMaxAge  = 20 * time.Second       // without a word for so long, the configured size counts; never by default
	fileEvery   = 200 * time.Millisecond // 1 s by default
	dnsRefresh  = 250 * time.Millisecond // 5 s by default
	redisPeriod = 250 * time.Millisecond // 1 s by default
	redisExpiry = time.Second            // 10 s by default

	gossipInterval = 200 * time.Millisecond // the default
	gossipRejoin   = time.Second            // 10 s by default
	gossipProbe    = 150 * time.Millisecond // 1 s by default
	gossipExpiry   = 2 * time.Second        // some ten probes and what a death takes to get round
)

// mostReplicas is how many there may be in one run: those at the start, and the one that joins.
const mostReplicas = 7

// fleetName is what the replicas are called, in the DNS and in Redis. Names under .test never exist (RFC 6761).
const fleetName = "replicas.fleet.test"

// A counting is a way for replicas to know how many they are without being notified: a value of -pool.
type counting struct {
	start  func() (*platform, error)
	where  string        // for the reader
	period time.Duration // between two looks
	expiry time.Duration // until one who says nothing any more counts as gone
}

var countings = map[string]counting{
	"file":   {start: startFile, where: "in a file", period: fileEvery},
	"dns":    {start: startDNS, where: "in the DNS", period: dnsRefresh},
	"redis":  {start: startRedis, where: "in Redis, which no request waits for,", period: redisPeriod, expiry: redisExpiry},
	"gossip": {start: startGossip, where: "among themselves", period: gossipInterval, expiry: gossipExpiry},
}

// allowed is how late a change may be noticed by the last replica, on a machine that never stands still. Two
// periods, since a look may have begun just before the change. A pool that shrinks counts after the
// hold-down, and in Redis after the expiry of the lost replica.
func (c counting) allowed(shrinks bool) time.Duration {
	if shrinks {
		return holdDown + 2*c.period + c.expiry
	}
	return 2 * c.period
}

// terms says what allowed is made of.
func (c counting) terms(shrinks bool) string {
	if !shrinks {
		return "2 periods"
	}
	if c.expiry > 0 {
		return "hold-down + 2 periods + expiry"
	}
	return "hold-down + 2 periods"
}

// A platform is what runs the replicas, as far as they can see of it. It knows who is alive.
type platform struct {
	name  string                // for the reader
	at    string                // where the replicas look: a path, an address
	say   func(ids []int) error // makes known which replicas live; nil: the replicas find out
	close func() error
}

// startFile is a platform that writes how many are alive into a file.
func startFile() (*platform, error) {
	dir, err := os.MkdirTemp("", "fleet")
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "replicas")
	return &platform{
		name: "a file that the platform writes", at: path,
		say:   func(ids []int) error { return replace(path, strconv.Itoa(len(ids))+"\n") },
		close: func() error { return os.RemoveAll(dir) },
	}, nil
}

// replace gives a file another content in one step, so that no reader sees half of it.
func replace(path, content string) error {
	next := path + ".next"
	if err := os.WriteFile(next, []byte(content), 0o600); err != nil {
		return err
	}
	return os.Rename(next, path)
}

// startDNS is a platform that holds an address record for each replica, as a headless Service of Kubernetes does.
func startDNS() (*platform, error) {
	server, err := dnstest.New()
	if err != nil {
		return nil, err
	}
	say := func(ids []int) error {
		addrs := make([]netip.Addr, len(ids))
		for i, id := range ids {
			addrs[i] = address(id)
		}
		server.Set(fleetName, addrs...)
		return nil
	}
	return &platform{name: "the DNS of the platform", at: server.Addr(), say: say, close: server.Close}, nil
}

// address is the address that a replica has in the DNS.
func address(id int) netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 0, byte(id)}) }

// startRedis is a platform that notifies no replica. A replica that ends in order signs off; one that is
// killed expires.
func startRedis() (*platform, error) {
	server, err := redistest.Start()
	if err != nil {
		return nil, err
	}
	name := "Redis (redis-server)"
	if !server.Real() {
		name = "Redis (miniredis, as there is no redis-server here)"
	}
	return &platform{name: name, at: server.Addr(), close: server.Close}, nil
}

// startGossip is no platform at all: the replicas find each other. It finds ports that are free, for all that there may ever be.
func startGossip() (*platform, error) {
	var addresses []string
	for range mostReplicas {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() //nolint:errcheck // nothing is lost
		addresses = append(addresses, l.Addr().String())
	}
	return &platform{name: "each other", at: strings.Join(addresses, ","), close: func() error { return nil }}, nil
}

// startPlatform starts what the plan's replicas count themselves with; nil when they get the size.
func (p plan) startPlatform() (*platform, error) {
	how, ok := countings[p.Pool]
	if !ok {
		return nil, nil
	}
	platform, err := how.start()
	if err != nil {
		return nil, fmt.Errorf("-pool %s: %w", p.Pool, err)
	}
	return platform, nil
}

// validatePool refuses a run that cannot be judged: a change that is not noticed before the next one.
func (p plan) validatePool() error {
	how, counts := countings[p.Pool]
	if !counts {
		if p.Pool != "static" {
			return fmt.Errorf("-pool: %q is not static, file, dns, redis or gossip", p.Pool)
		}
		return nil
	}
	if p.Believe > 0 {
		return fmt.Errorf("-believe: %d, but under -pool %s the replicas count themselves", p.Believe, p.Pool)
	}
	if p.Act == "adaptive" {
		return errors.New("-pool: in the adaptive act the replicas do not count: they do not know how many they are")
	}
	end := p.Duration
	for _, change := range []struct {
		flag    string
		at      time.Duration
		shrinks bool
	}{{"-kill", p.Kill, true}, {"-join", p.Join, false}} {
		if change.at == 0 {
			continue
		}
		if least := how.allowed(change.shrinks) + time.Second; end-change.at < least {
			return fmt.Errorf("%s: %v is too close to what comes next, at %v: it may take %v until it is noticed",
				change.flag, change.at, end, least)
		}
		end = change.at
	}
	return nil
}
