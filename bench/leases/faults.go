package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/quotient-go/quotient/bench/rig"
	"github.com/quotient-go/quotient/internal/kept"
	"github.com/quotient-go/quotient/internal/rest"
	"github.com/quotient-go/quotient/lease"
)

// Settings: clients restore within the grace time, and etcd grants no shorter lease on an election.
const (
	killGrace    = 600 * time.Millisecond
	killExpires  = 2 * time.Second
	stuckAfter   = time.Minute
	electionTTL  = 2 * time.Second
	electionMost = electionTTL + 2*time.Second // etcd looks for leases that have ended now and then
	servers      = 3
	tolerance    = 500 * time.Millisecond
)

// etcd is one etcd, which keeps its data when it is started again.
type etcd struct {
	*kept.Process
	dir   string
	ports [2]int
}

// start starts it, on the ports that it had before.
func (e *etcd) start(ctx context.Context) (err error) {
	if e.dir == "" {
		var err1, err2, err3 error
		e.dir, err1 = os.MkdirTemp("", "quotient-etcd-")
		e.ports[0], err2 = rig.FreePort()
		e.ports[1], err3 = rig.FreePort()
		if err := errors.Join(err1, err2, err3); err != nil {
			return err
		}
	}
	url, peers := "http://"+rig.At(e.ports[0]), "http://"+rig.At(e.ports[1])
	e.Process, err = kept.Start(e.dir, "etcd", "--name", "one", "--data-dir", filepath.Join(e.dir, "data"),
		"--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls", peers,
		"--initial-advertise-peer-urls", peers, "--initial-cluster", "one="+peers, "--log-level", "error")
	if err != nil {
		return err
	}
	return e.Serves(ctx, rig.Dials(rig.At(e.ports[0])))
}

func (e *etcd) end() (err error) {
	if e.Process != nil {
		err = e.Stop()
	}
	return errors.Join(err, os.RemoveAll(e.dir))
}

// election is the part of a configuration for servers that it elects.
func (e *etcd) election() string {
	return fmt.Sprintf("[leases.election]\nendpoints = [%q]\nttl = \"%v\"\n", rig.At(e.ports[0]), electionTTL)
}

// cluster is several lease servers, of which etcd elects one.
type cluster struct {
	b       *bench
	etcd    etcd
	file    string
	ports   [servers]int
	servers [servers]*kept.Process
}

// faults are those after which another server leads. Each returns what mends it.
var faults = []struct {
	name   string
	anyone bool // also the leader may lead again
	strike func(c *cluster, ctx context.Context, leader int) (mend func() error, err error)
}{
	{"kill -9 of the leader", false, (*cluster).killLeader},
	{"SIGSTOP of the leader", false, (*cluster).stopLeader},
	{"etcd stopped and started", true, (*cluster).stopEtcd},
}

// manyFailovers makes one server after the other lead.
func (b *bench) manyFailovers(ctx context.Context) (s rig.Section, err error) {
	c := &cluster{b: b}
	defer func() { err = errors.Join(err, c.end()) }()
	if err := c.start(ctx); err != nil {
		return s, err
	}
	s = rig.Section{Title: "Failovers", Note: fmt.Sprintf(`
%d programs quotient leases stand for an election on etcd, with a lease of %v and a grace time of %v. One
fault after the other makes another one lead. 8 clients lock one semaphore all the time; porcupine judges what
they held as above. Time without service is from the fault, or from etcd's start, until a server grants a
lock.`, servers, electionTTL, b.grace)}
	gaps := make([][]time.Duration, len(faults))
	one := &crew{name: "one", n: 8, most: 1, long: 2 * b.grace}
	strike := func(i int) (time.Time, error) {
		i %= len(faults)
		at, gap, err := c.failover(ctx, i)
		if gaps[i] = append(gaps[i], gap); err != nil {
			err = fmt.Errorf("%s: %w", faults[i].name, err)
		}
		return at, err
	}
	err = trial{[]*crew{one}, c.client, b.failovers, strike, electionTTL, func() int { return 0 }}.run(ctx, b.seed, &s)
	for i, f := range faults {
		name := fmt.Sprintf("%s, %d times: longest without service", f.name, len(gaps[i]))
		if len(gaps[i]) > 0 {
			s.Verdicts = append(s.Verdicts, rig.AtMost(name, rig.Quantile(gaps[i], 1).Seconds(),
				(electionMost+b.grace+tolerance).Seconds(), " s"))
		}
	}
	return s, err
}

// manyKills kills the server again and again while clients work.
func (b *bench) manyKills(ctx context.Context) (s rig.Section, err error) {
	port, err := rig.FreePort()
	if err != nil {
		return s, err
	}
	flags := []string{"-s", "one=1", "-s", "some=3", "--grace", fmt.Sprintf("%dms", killGrace.Milliseconds())}
	p, err := b.leases(ctx, port, flags...)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	defer transport.CloseIdleConnections()
	client := func() *lease.Client {
		return &lease.Client{URLs: []string{"http://" + rig.At(port)}, ExpiresIn: killExpires, Timeout: time.Second,
			HTTP: &http.Client{Transport: transport}, BlockFor: 300 * time.Millisecond}
	}
	s = rig.Section{Title: "Kills", Note: fmt.Sprintf(`
quotient leases is killed %d times and started again under load: 12 clients (lease.Client) lock a semaphore of
1, as many one of 3. The grace time is %v, leases last %v. Some starts come so late that holders give up. Each
holder writes down from when to when it believed in its lease; porcupine looks for an order in which no lock
begins beyond the maximum, and tokens rise.`, b.kills, killGrace, killExpires)}
	rng, before := rand.New(rand.NewPCG(uint64(b.seed), 17)), 0
	beyond := func() int { return before + strings.Count(p.Said(), "restored beyond the maximum") }
	strike := func(int) (time.Time, error) {
		rest.For(ctx, killGrace+time.Duration(rng.Int64N(int64(killGrace))))
		at := time.Now()
		if err := p.Kill(); err != nil {
			return at, err
		}
		if rng.IntN(10) == 0 {
			rest.For(ctx, killGrace) // the holders lose their leases
		}
		next, err := b.leases(ctx, port, flags...)
		if err == nil {
			before, p = beyond(), next
		}
		return at, err
	}
	crews := []*crew{{name: "one", n: 12, most: 1, long: 2 * killGrace}, {name: "some", n: 12, most: 3, long: 2 * killGrace}}
	return s, trial{crews, client, b.kills, strike, killGrace / 2, beyond}.run(ctx, b.seed, &s)
}

// client is one that knows all servers.
func (c *cluster) client() *lease.Client {
	k := &lease.Client{ExpiresIn: 10 * time.Second, BlockFor: time.Second, Timeout: time.Second}
	for _, port := range c.ports {
		k.URLs = append(k.URLs, "http://"+rig.At(port))
	}
	return k
}

// start starts etcd and the servers.
func (c *cluster) start(ctx context.Context) (err error) {
	if err := c.etcd.start(ctx); err != nil {
		return err
	}
	c.file = filepath.Join(c.etcd.dir, "quotient.toml")
	text := fmt.Sprintf("[leases]\ngrace = %q\n[leases.semaphores]\none = 1\nprobe = 1000000\n%s",
		c.b.grace.String(), c.etcd.election())
	if err := os.WriteFile(c.file, []byte(text), 0o600); err != nil {
		return err
	}
	for i := range c.servers {
		if c.ports[i], err = rig.FreePort(); err != nil {
			return err
		}
		if c.servers[i], err = c.b.leases(ctx, c.ports[i], "-c", c.file); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) end() (err error) {
	for _, p := range c.servers {
		if p != nil {
			_ = p.Signal(syscall.SIGCONT) // it may have ended, or not be stopped
			err = errors.Join(err, p.Stop())
		}
	}
	http.DefaultClient.CloseIdleConnections()
	return errors.Join(err, c.etcd.end())
}

// failover waits until a server grants locks, strikes, and waits until one does again.
func (c *cluster) failover(ctx context.Context, i int) (struck time.Time, gap time.Duration, err error) {
	const within = electionMost + stuckAfter
	leader, err := c.granting(ctx, within+c.b.grace, -1)
	if err != nil {
		return struck, 0, err
	}
	struck = time.Now()
	mend, err := faults[i].strike(c, ctx, leader)
	if err != nil {
		return struck, 0, err
	}
	from := struck
	if faults[i].anyone {
		leader, from = -1, time.Now()
	}
	_, err = c.granting(ctx, within+c.b.grace, leader)
	gap = time.Since(from)
	err = errors.Join(err, mend())
	rest.For(ctx, tolerance) // one that goes on may not grant
	return struck, gap, err
}

// granting waits until a server grants a lock that is free, and returns which; one is left out.
func (c *cluster) granting(ctx context.Context, within time.Duration, not int) (server int, err error) {
	return server, rig.Until(ctx, within, func() error {
		for i, port := range c.ports {
			if i != not && ready("http://"+rig.At(port)) == nil {
				server = i
				return c.grants(ctx, port)
			}
		}
		return errors.New("no server leads")
	})
}

// grants reports whether a server that leads grants a lock at once: its grace time is over.
func (c *cluster) grants(ctx context.Context, port int) error {
	ctx, cancel := context.WithTimeout(ctx, tolerance)
	defer cancel()
	client := &lease.Client{URLs: []string{"http://" + rig.At(port)}, BlockFor: tolerance / 5}
	held, err := client.Lock(ctx, "probe", 1)
	if err != nil {
		return err
	}
	return held.Unlock(ctx)
}

func (c *cluster) killLeader(ctx context.Context, leader int) (func() error, error) {
	return func() (err error) {
		c.servers[leader], err = c.b.leases(ctx, c.ports[leader], "-c", c.file)
		return err
	}, c.servers[leader].Kill()
}

func (c *cluster) stopLeader(_ context.Context, leader int) (func() error, error) {
	p := c.servers[leader]
	return func() error { return p.Signal(syscall.SIGCONT) }, p.Signal(syscall.SIGSTOP)
}

// stopEtcd stops etcd until the leader has given up, and starts it again.
func (c *cluster) stopEtcd(ctx context.Context, leader int) (func() error, error) {
	if err := c.etcd.Stop(); err != nil {
		return nil, err
	}
	err := rig.Until(ctx, electionMost+stuckAfter, func() error {
		if ready("http://"+rig.At(c.ports[leader])) == nil {
			return errors.New("the leader leads still, without etcd")
		}
		return nil
	})
	return func() error { return nil }, errors.Join(err, c.etcd.start(ctx))
}
