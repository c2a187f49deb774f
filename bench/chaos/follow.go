package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	goredis "github.com/redis/go-redis/v9"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/poolsize/dns"
	"github.com/quotient-go/quotient/poolsize/file"
	"github.com/quotient-go/quotient/poolsize/redis"
)

// follow returns the sources, each of which says when it is first heard.
func (r *replica) follow(store goredis.UniversalClient) [sources]quotient.Source {
	own := netip.MustParseAddr(address(r.ID))
	list := [sources]quotient.Source{
		fromFile: &file.Source{Path: r.File, Every: fileEvery},
		fromDNS: &dns.Source{
			Name: dnsName, Refresh: dnsRefresh, Timeout: dnsTimeout, Resolver: resolver(r.DNS),
			Own: []netip.Addr{own}, Uncapped: true, // eight replicas are right here
		},
		fromRedis: &redis.Source{Client: store, Fleet: redisFleet, ID: strconv.Itoa(r.ID), Period: redisPeriod, Expiry: redisExpiry},
	}
	for s := range list {
		if r.Believe > 0 {
			list[s] = quotient.Static(quotient.Pool{Replicas: r.Believe})
		}
		list[s] = heard{list[s], r.paths[s]}
	}
	return list
}

// address is the address of a replica in DNS, by its number.
func address(id int) string { return fmt.Sprintf("127.1.%d.%d", id/250, id%250+1) }

// resolver asks one server alone.
func resolver(server string) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, server)
	}}
}

// heard is a source whose path is told when it is first heard.
type heard struct {
	quotient.Source
	path *path
}

// Watch is the source's, with a report that passes the path.
func (h heard) Watch(ctx context.Context, report func(quotient.Pool, error)) error {
	return h.Source.Watch(ctx, h.path.listen(report))
}
