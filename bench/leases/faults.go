package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/quotient-go/quotient/bench/rig"
	"github.com/quotient-go/quotient/lease"
)

// Settings of failovers: the shortest lease on an election that etcd grants.
const (
	electionTTL  = 2 * time.Second
	electionMost = electionTTL + 2*time.Second // etcd looks for leases that have ended now and then
	servers      = 3
	tolerance    = 500 * time.Millisecond
)

// etcd is one etcd, which keeps its data when it is started again.
type etcd struct {
	*rig.Process
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
	e.Process, err = rig.Start(e.dir, "etcd", "--name", "one", "--data-dir", filepath.Join(e.dir, "data"),
		"--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls", peers,
		"--initial-advertise-peer-urls", peers, "--initial-cluster", "one="+peers, "--log-level", "error")
	if err != nil {
		return err
	}
	return e.Serves(ctx, rig.At(e.ports[0]))
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
	servers [servers]*rig.Process
	struck  []time.Time
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
	crew := hire(ctx, &crew{name: "one", n: 8, most: 1, long: 2 * b.grace}, b.seed, c.client)
	defer crew.cancel()
	gaps := map[string][]time.Duration{}
	for i := range b.failovers {
		f := faults[i%len(faults)]
		gap, err := c.failover(ctx, i%len(faults))
		if err != nil {
			return s, fmt.Errorf("%s: %w", f.name, err)
		}
		gaps[f.name] = append(gaps[f.name], gap)
	}
	served, err := crew.dismiss(ctx, stuckAfter+2*b.grace)
	if err != nil {
		return s, err
	}
	s = rig.Section{Title: "Failovers", Note: fmt.Sprintf(`
%d programs quotient leases stand for an election on etcd, with a lease of %v and a grace time of %v. One
fault after the other makes another one lead. 8 clients lock one semaphore all the time; porcupine judges what
they held as above. Time without service is from the fault, or from etcd's start, until a server grants a
lock.`,
		servers, electionTTL, b.grace), Table: rig.Table{Header: crewHeader}}
	if err := crew.report(&s, served, 0, crew.survived(c.struck, electionTTL)); err != nil {
		return s, err
	}
	for _, f := range faults {
		worst := rig.Quantile(gaps[f.name], 1)
		name := fmt.Sprintf("%s, %d times: longest without service", f.name, len(gaps[f.name]))
		if len(gaps[f.name]) > 0 {
			s.Verdicts = append(s.Verdicts, rig.AtMost(name, worst.Seconds(),
				(electionMost+b.grace+tolerance).Seconds(), " s"))
		}
	}
	return s, nil
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

// end ends all processes.
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
func (c *cluster) failover(ctx context.Context, i int) (gap time.Duration, err error) {
	const within = electionMost + stuckAfter
	leader, err := c.granting(ctx, within+c.b.grace, -1)
	if err != nil {
		return 0, err
	}
	struck := time.Now()
	c.struck = append(c.struck, struck)
	mend, err := faults[i].strike(c, ctx, leader)
	if err != nil {
		return 0, err
	}
	if faults[i].anyone {
		leader, struck = -1, time.Now()
	}
	_, err = c.granting(ctx, within+c.b.grace, leader)
	gap = time.Since(struck)
	err = errors.Join(err, mend())
	pause(ctx, tolerance) // one that goes on may not grant
	return gap, err
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
