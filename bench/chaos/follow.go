package main

import (
	"context"
	"net"
	"net/netip"
	"strconv"

	goredis "github.com/redis/go-redis/v9"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/poolsize/dns"
	"github.com/quotient-go/quotient/poolsize/file"
	"github.com/quotient-go/quotient/poolsize/redis"
)

// stores are the clients of Redis, of one server and of the Cluster. They do not repeat what has failed: the
// source does.
func (r *replica) stores() (one, cluster goredis.UniversalClient) {
	goredis.SetLogger(quiet{}) // the source reports what fails, and the client says it again
	one = goredis.NewClient(&goredis.Options{
		Addr: r.Redis, ContextTimeoutEnabled: true, DialTimeout: redisPeriod, DialerRetries: 1, MaxRetries: -1,
	})
	cluster = goredis.NewClusterClient(&goredis.ClusterOptions{
		Addrs: r.Cluster, ContextTimeoutEnabled: true, DialTimeout: redisPeriod, DialerRetries: 1, MaxRetries: -1,
	})
	return one, cluster
}

type quiet struct{}

// Printf says nothing.
func (quiet) Printf(context.Context, string, ...any) {}

// follow returns the sources, each of which notes its first report.
func (r *replica) follow(store, cluster goredis.UniversalClient) [sources]quotient.Source {
	count := func(client goredis.UniversalClient) quotient.Source {
		id := strconv.Itoa(r.ID)
		return &redis.Source{Client: client, Fleet: redisFleet, ID: id, Period: redisPeriod, Expiry: redisExpiry}
	}
	list := [sources]quotient.Source{
		fromFile: &file.Source{Path: r.File, Every: fileEvery}, fromDNS: r.records(r.DNS),
		fromRedis: count(store), fromCluster: count(cluster),
		onSlots: r.records(r.Steady), onWindows: r.records(r.Steady), onTurns: r.records(r.Steady),
	}
	for s := range list {
		if r.Believe > 0 {
			list[s] = sized(r.Believe)
		}
		list[s] = notifying{list[s], r.paths[s]}
	}
	return list
}

// records is a source that asks a DNS server, and finds its ordinal by its own address.
func (r *replica) records(server string) quotient.Source {
	return &dns.Source{
		Name: dnsName, Refresh: dnsRefresh, Timeout: dnsTimeout, Resolver: resolver(server),
		Own: []netip.Addr{netip.MustParseAddr(r.Address)}, Uncapped: true, // eight replicas are right here
	}
}

// resolver asks one server alone.
func resolver(server string) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, server)
	}}
}

// sized is a source that says one size, once.
type sized int

// Watch reports the size and waits for the end of the context.
func (n sized) Watch(ctx context.Context, report func(quotient.Pool, error)) error {
	report(quotient.Pool{Replicas: int(n)}, nil)
	<-ctx.Done()
	return ctx.Err()
}

// notifying is a source that notifies its path of the first report.
type notifying struct {
	quotient.Source
	path *path
}

// Watch is the source's, with a report that passes the path.
func (h notifying) Watch(ctx context.Context, report func(quotient.Pool, error)) error {
	return h.Source.Watch(ctx, h.path.listen(report))
}
