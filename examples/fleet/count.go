package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
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

// How the replicas count themselves. All of it is short, so that the act shows everything in twelve seconds; a
// service would take the defaults.
const (
	holdDown     = 2 * time.Second        // a smaller pool counts after this; 30 s by default
	hintMaxAge   = 20 * time.Second       // without a word for so long, the configured size counts; never by default
	gossipRejoin = time.Second            // 10 s by default
	gossipProbe  = 150 * time.Millisecond // 1 s by default

	mostReplicas = 7                     // in one run: those at the start, and the one that joins
	fleetName    = "replicas.fleet.test" // in the DNS and in Redis: names under .test never exist (RFC 6761)
)

// A counting is a way for replicas to know how many they are without being notified: a value of -pool.
type counting struct {
	start  func() (*platform, error)
	where  string        // for the reader
	period time.Duration // between two looks
	expiry time.Duration // until one who says nothing any more counts as gone
}

var countings = map[string]counting{
	"file":   {startFile, "in a file", 200 * time.Millisecond, 0},                                        // 1 s by default
	"dns":    {startDNS, "in the DNS", 250 * time.Millisecond, 0},                                        // 5 s by default
	"redis":  {startRedis, "in Redis, which no request waits for,", 250 * time.Millisecond, time.Second}, // 1 s, 10 s
	"gossip": {startGossip, "among themselves", 200 * time.Millisecond, 2 * time.Second},                 // some ten probes
}

// allowed is how late a change may be noticed by the last replica, on a machine that never stands still, and what that
// is made of. Two periods, since a look may have begun just before the change. A pool that shrinks counts after the
// hold-down, and in Redis after the expiry of the lost replica.
func (c counting) allowed(shrinks bool) (most time.Duration, terms string) {
	switch most = 2 * c.period; {
	case !shrinks:
		return most, "2 periods"
	case c.expiry == 0:
		return most + holdDown, "hold-down + 2 periods"
	}
	return most + holdDown + c.expiry, "hold-down + 2 periods + expiry"
}

// validatePool refuses a run that cannot be judged: a change that is not noticed before the next one.
func (p plan) validatePool() error {
	how, counts := countings[p.Pool]
	switch {
	case !counts:
		return nil
	case p.Believe > 0:
		return fmt.Errorf("-believe: %d, but under -pool %s the replicas count themselves", p.Believe, p.Pool)
	case p.Act == "adaptive":
		return errors.New("-pool: in the adaptive act the replicas do not count: they do not know how many they are")
	}
	end := p.Duration
	for _, flag := range []string{"-kill", "-join"} {
		at := map[string]time.Duration{"-kill": p.Kill, "-join": p.Join}[flag]
		if at == 0 {
			continue
		}
		if most, _ := how.allowed(flag == "-kill"); end-at < most+time.Second {
			return fmt.Errorf("%s: %v is too close to what comes next, at %v: it may take %v until it is noticed",
				flag, at, end, most+time.Second)
		}
		end = at
	}
	return nil
}

// A platform is what runs the replicas, as far as they can see of it. It knows who is alive.
type platform struct {
	name  string                // for the reader
	at    string                // where the replicas look: a path, an address
	say   func(ids []int) error // makes known which replicas live; nil: the replicas find out
	close func() error
}

// startFile is a platform that writes how many are alive into a file, in one step, so that no reader sees half of it.
func startFile() (*platform, error) {
	dir, err := os.MkdirTemp("", "fleet")
	path := filepath.Join(dir, "replicas")
	say := func(ids []int) error {
		return errors.Join(os.WriteFile(path+".next", []byte(strconv.Itoa(len(ids))+"\n"), 0o600), os.Rename(path+".next", path))
	}
	return &platform{"a file that the platform writes", path, say, func() error { return os.RemoveAll(dir) }}, err
}

// startDNS is a platform that holds an address record for each replica, as a headless Service of Kubernetes does.
func startDNS() (*platform, error) {
	server, err := dnstest.New()
	if err != nil {
		return nil, err
	}
	say := func(ids []int) error {
		var addrs []netip.Addr
		for _, id := range ids {
			addrs = append(addrs, address(id))
		}
		server.Set(fleetName, addrs...)
		return nil
	}
	return &platform{"the DNS of the platform", server.Addr(), say, server.Close}, nil
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
	return &platform{name, server.Addr(), nil, server.Close}, nil
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
	return &platform{"each other", strings.Join(addresses, ","), nil, func() error { return nil }}, nil
}

// source is how a replica counts the pool: all that a program has to know of its platform. It is nil for a
// replica that gets the size.
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

// A change is an instant from which on another number of replicas was alive.
type change struct {
	of     string // join, kill
	shrink bool
	at     time.Duration // when it happened
	said   time.Duration // when the platform had made it known
	until  time.Duration // when the next change happened, or the run ended
	alive  []*process    // from then on
	shown  bool          // that all have noticed
}

// say has the platform make known who is alive, and notes that there is something to notice.
func (f *fleet) say(c change) error {
	var ids []int
	for _, p := range f.alive() {
		ids = append(ids, p.id)
	}
	c.alive, c.said, c.until = f.alive(), c.at, time.Hour // later than any run ends
	if f.platform.say != nil {
		if err := f.platform.say(ids); err != nil {
			return err
		}
		c.said = f.up.Now()
	}
	if n := len(f.changes); n > 0 {
		f.changes[n-1].until = c.at
	}
	f.changes = append(f.changes, c)
	return nil
}

// gather waits until the first replicas know of each other, and only then lets them send: a service that
// starts is not ready before.
func (f *fleet) gather(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	if err := f.say(change{at: f.up.Now()}); err != nil {
		return err
	}
	for !f.noticed(f.changes[0]).all {
		select {
		case <-f.urgent:
		case <-ctx.Done():
			return fmt.Errorf("the replicas did not find each other: %w", ctx.Err())
		}
		if err := f.check(); err != nil {
			return err
		}
	}
	f.changes = nil
	for _, p := range f.all {
		if err := p.order(order{Want: f.plan.Want}); err != nil {
			return err
		}
	}
	f.out.happening(0, fmt.Sprintf("%d replicas know how many they are", len(f.all)), "from "+f.platform.name)
	return nil
}

// noticed is how long after a change each replica had put the new size in force.
func (f *fleet) noticed(c change) announcement {
	n := announcement{all: true}
	for _, p := range c.alive {
		at, ok := knew(p.reported().Beliefs, len(c.alive), c.at, c.until)
		n.ids, n.delays = append(n.ids, p.id), append(n.delays, at-c.at)
		n.all = n.all && ok
	}
	return n
}

// knew is the first instant from one on, before another, at which a pool of n was in force for certain; that other if none was.
func knew(beliefs []belief, n int, from, to time.Duration) (time.Duration, bool) {
	for i, b := range beliefs {
		replaced := i+1 < len(beliefs) && beliefs[i+1].By <= from
		if b.Replicas == n && b.By < to && !replaced {
			return max(from, b.By), true
		}
	}
	return to, false
}

// showNotice shows, once, that all have noticed the last change.
func (f *fleet) showNotice() {
	if len(f.changes) == 0 {
		return
	}
	last := &f.changes[len(f.changes)-1]
	if n := f.noticed(*last); n.all && !last.shown {
		last.shown = true
		f.out.event(last.at+slices.Max(n.delays)-f.begin, "all know of the "+last.of, "noticed", n)
	}
}

// settle works out what replicas were entitled to at any time by what they believed, and what the growth of
// the pool may have cost. It is called once all replicas have ended and so sent their last reports.
func (f *fleet) settle() {
	for _, p := range f.all {
		p.steps = f.entitled(p.reported().Beliefs)
	}
	for _, c := range f.changes {
		if !c.shrink {
			f.growth = f.grown(c.at, slices.Max(f.noticed(c).delays), len(c.alive))
		}
	}
}

// entitled is the share by what was believed: nothing before the first hint. Between the two looks that saw a change it is
// the larger one.
func (f *fleet) entitled(beliefs []belief) []step {
	steps := []step{{}}
	for _, b := range beliefs {
		steps = append(steps, f.changed(steps, b.Replicas, b.After, b.By))
	}
	return steps
}

// machine is what a look, a round trip and a wake-up may take beyond the periods when nothing stands still.
// It is also the tenth by which some periods are longer than they are on average.
const machine = 250 * time.Millisecond

// lateness judges how late each change was noticed. Four times the longest stall are forgiven. The replica
// that looks, the answering server and the replica that puts it in force may all have stood still, and the
// observer too. A change that was not noticed when the next one came, although there was time yet, stays
// open.
func (f *fleet) lateness(stall time.Duration) (all []check) {
	slack := machine + 4*stall
	for _, c := range f.changes {
		n := f.noticed(c)
		took := max(0, c.at+slices.Max(n.delays)-c.said)
		allowed, terms := countings[f.plan.Pool].allowed(c.shrink)
		inTime := took <= allowed+slack
		found := fmt.Sprintf("noticed after %.2f s, by the last replica", took.Seconds())
		if !n.all {
			found = fmt.Sprintf("not noticed by all in %.2f s", took.Seconds())
		}
		if !n.all && inTime {
			found += ", too short a time to judge on this machine"
		}
		want := fmt.Sprintf("allowed %.2f s, %s; and %.2f s for the machine", allowed.Seconds(), terms, slack.Seconds())
		all = append(all, promise(c.of, found, want, inTime))
	}
	return all
}
