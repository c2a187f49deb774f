package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/poolsize/dns"
	"github.com/quotient-go/quotient/poolsize/file"
	"github.com/quotient-go/quotient/poolsize/gossip"
	"github.com/quotient-go/quotient/poolsize/redis"
)

// source is how a replica counts the pool: all that a program has to know of its platform. It is nil for a
// replica that gets the size.
func (a assignment) source() quotient.Source {
	switch a.Pool {
	case "file":
		return &file.Source{Path: a.At, Every: fileEvery}
	case "dns":
		// A pod has an address of its own and the resolver of its platform; here, both have to be given.
		return &dns.Source{Name: fleetName + ".", Refresh: dnsRefresh, Resolver: resolver(a.At), Own: []netip.Addr{address(a.ID)}}
	case "redis":
		client := goredis.NewClient(&goredis.Options{Addr: a.At, ContextTimeoutEnabled: true})
		return closing{&redis.Source{Client: client, Fleet: fleetName, Period: redisPeriod, Expiry: redisExpiry}, client}
	case "gossip":
		return a.gossip()
	}
	return nil
}

// gossip is a source that listens on the replica's own port, and joins those that were started before. A pod would join the
// addresses of its headless Service.
func (a assignment) gossip() quotient.Source {
	addresses := strings.Split(a.At, ",")
	src, err := gossip.New(gossip.Config{Fleet: fleetName, Name: fmt.Sprintf("replica-%d", a.ID), Probe: gossipProbe,
		Bind: addresses[a.ID-1], Join: addresses[:a.ID-1], Rejoin: gossipRejoin})
	if err != nil {
		return unmade{err}
	}
	return src
}

// unmade is a source that could not be made.
type unmade struct{ err error }

// Watch returns why.
func (b unmade) Watch(context.Context, func(quotient.Pool, error)) error { return b.err }

// resolver asks one DNS server.
func resolver(address string) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, address)
	}}
}

// closing is a source with a client that is closed when it is watched no more.
type closing struct {
	quotient.Source
	client io.Closer
}

// Watch watches once.
func (c closing) Watch(ctx context.Context, report func(quotient.Pool, error)) error {
	defer c.client.Close() //nolint:errcheck // nothing is lost
	return c.Source.Watch(ctx, report)
}

// look notes the pool that is in force, if it is another than at the look before.
func (r *replica) look() {
	began := r.clock.Now()
	waits := r.believed == 0 && r.waits()
	n := r.limiter.Stats().Pool.Replicas
	b := belief{Replicas: n, After: r.looked, By: r.clock.Now()}
	r.looked = began
	if waits || n == r.believed {
		return
	}
	r.believed = n
	r.count(func(m *message) { m.Beliefs = append(m.Beliefs, b) })
}

// waits reports whether the replica waits for its first hint: until then the configured pool is not in
// force.
func (r *replica) waits() bool {
	return r.limiter.Stats().Pool.Source == "awaited"
}
