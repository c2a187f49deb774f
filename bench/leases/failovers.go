package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/quotient-go/quotient/lease"
)

// Settings of failovers: the shortest lease on an election that etcd grants.
const (
	electionTTL  = 2 * time.Second
	electionMost = electionTTL + 2*time.Second // etcd looks for leases that have ended now and then
	servers      = 3
	tolerance    = 500 * time.Millisecond
)

// cluster is several lease servers, of which etcd elects one.
type cluster struct {
	b         *bench
	dir, file string
	etcd      *process
	etcdPorts [2]int
	ports     [servers]int
	servers   [servers]*process
	probes    *probes
	struck    []time.Time
}

// fault is one kind of failover. It returns the instant from which another server can be elected.
type fault struct {
	name   string
	anyone bool // also the leader may lead again
	strike func(c *cluster, ctx context.Context, leader int) (from time.Duration, mend func() error, err error)
}

var faults = []fault{
	{"kill -9 of the leader", false, (*cluster).killLeader},
	{"SIGSTOP of the leader", false, (*cluster).stopLeader},
	{"etcd stopped and started", true, (*cluster).stopEtcd},
}

// changed is one failover as the probes saw it.
type changed struct {
	fault    string
	election time.Duration // until another one leads
	grace    time.Duration // from then to the first lock
	gap      time.Duration // without service
}

// manyFailovers makes one server after the other lead.
func (b *bench) manyFailovers(ctx context.Context) (s section, err error) {
	c := &cluster{b: b}
	if c.dir, err = os.MkdirTemp("", "quotient-leases-"); err != nil {
		return s, err
	}
	defer os.RemoveAll(c.dir)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := c.start(ctx); err != nil {
		return s, errors.Join(err, c.end())
	}
	c.probes = newProbes(ctx, c.ports)
	client := func(int) *lease.Client { return c.client(http.DefaultTransport, 10*time.Second) }
	crew := newLedger(1, 2*b.grace).hire(ctx, 8, "one", b.seed, client)
	d := newDrills(ctx, c)
	var all []changed
	for i := 0; i < b.failovers && err == nil; i++ {
		var one changed
		if one, err = c.failover(ctx, faults[i%len(faults)]); err == nil {
			all = append(all, one)
		}
	}
	served := crew.served(ctx, crew.now(), stuckAfter+2*b.grace)
	ended := crew.dismiss(stuckAfter)
	cancel()
	d.wait()
	c.probes.wait()
	if err := errors.Join(err, c.end()); err != nil {
		return s, err
	}
	s = c.section(all, crew, d)
	s.verdicts = append(s.verdicts, exactly("clients that got a lock after the last failover", served, crew.n),
		verdict{"no client is stuck", fmt.Sprintf("all ended: %v", ended), ended})
	return s, nil
}

// client is one that knows all servers.
func (c *cluster) client(t http.RoundTripper, expiresIn time.Duration) *lease.Client {
	k := &lease.Client{HTTP: &http.Client{Transport: t}, ExpiresIn: expiresIn, BlockFor: time.Second,
		Timeout: time.Second}
	for _, port := range c.ports {
		k.URLs = append(k.URLs, "http://"+at(port))
	}
	return k
}

// start starts etcd and the servers.
func (c *cluster) start(ctx context.Context) (err error) {
	for _, port := range []*int{&c.etcdPorts[0], &c.etcdPorts[1], &c.ports[0], &c.ports[1], &c.ports[2]} {
		if *port, err = quietPort(); err != nil {
			return err
		}
	}
	if err := c.startEtcd(ctx); err != nil {
		return err
	}
	c.file = filepath.Join(c.dir, "quotient.toml")
	text := fmt.Sprintf("[leases]\ngrace = \"%v\"\n"+
		"[leases.semaphores]\none = 1\ncut = 1\nprobe = 1000\n"+
		"[leases.election]\nendpoints = [%q]\nttl = \"%v\"\n", c.b.grace, at(c.etcdPorts[0]), electionTTL)
	if err := os.WriteFile(c.file, []byte(text), 0o600); err != nil {
		return err
	}
	for i := range c.servers {
		if c.servers[i], err = c.b.leases(ctx, c.ports[i], "-c", c.file); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) startEtcd(ctx context.Context) (err error) {
	program, err := exec.LookPath("etcd")
	if err != nil {
		return err
	}
	url, peers := "http://"+at(c.etcdPorts[0]), "http://"+at(c.etcdPorts[1])
	c.etcd, err = start(c.dir, program, "--name", "one", "--data-dir", filepath.Join(c.dir, "etcd"),
		"--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls", peers,
		"--initial-advertise-peer-urls", peers, "--initial-cluster", "one="+peers, "--log-level", "error")
	if err != nil {
		return err
	}
	return c.etcd.serves(ctx, at(c.etcdPorts[0]))
}

// end ends all processes.
func (c *cluster) end() (err error) {
	for _, p := range append(c.servers[:], c.etcd) {
		if p != nil {
			_ = p.signal(syscall.SIGCONT) // it may have ended, or not be stopped
			err = errors.Join(err, p.stop())
		}
	}
	return err
}

// failover waits until a server grants locks, strikes, and waits until one does again.
func (c *cluster) failover(ctx context.Context, f fault) (one changed, err error) {
	leader, err := c.probes.granted(ctx, c.probes.now(), electionMost+c.b.grace+stuckAfter)
	if err != nil {
		return one, err
	}
	struck := c.probes.now()
	c.struck = append(c.struck, time.Now())
	from, mend, err := f.strike(c, ctx, leader)
	if err != nil {
		return one, fmt.Errorf("%s: %w", f.name, err)
	}
	not := leader
	if f.anyone {
		not = anyServer
	}
	leads, err := c.probes.find(ctx, from, electionMost+stuckAfter, not, false)
	serves := leads
	if err == nil {
		serves, err = c.probes.find(ctx, leads.at, c.b.grace+stuckAfter, not, true)
	}
	if err := errors.Join(err, mend()); err != nil {
		return one, fmt.Errorf("%s: %w", f.name, err)
	}
	one = changed{f.name, leads.at - from, serves.at - leads.at, c.probes.longestGap(struck)}
	pause(ctx, tolerance) // one that goes on may not grant
	return one, nil
}

func (c *cluster) killLeader(ctx context.Context, leader int) (time.Duration, func() error, error) {
	at := c.probes.now()
	err := c.servers[leader].kill()
	return at, func() (err error) {
		c.servers[leader], err = c.b.leases(ctx, c.ports[leader], "-c", c.file)
		return err
	}, err
}

func (c *cluster) stopLeader(_ context.Context, leader int) (time.Duration, func() error, error) {
	at := c.probes.now()
	p := c.servers[leader]
	return at, func() error { return p.signal(syscall.SIGCONT) }, p.signal(syscall.SIGSTOP)
}

// stopEtcd stops etcd until the leader has given up, and starts it again.
func (c *cluster) stopEtcd(ctx context.Context, _ int) (time.Duration, func() error, error) {
	if err := c.etcd.stop(); err != nil {
		return 0, nil, err
	}
	if err := c.probes.silent(ctx, tolerance, electionMost+stuckAfter); err != nil {
		return 0, nil, err
	}
	err := c.startEtcd(ctx)
	return c.probes.now(), func() error { return nil }, err
}

func (c *cluster) section(all []changed, crew *crew, d *drills) section {
	b, p := c.b, c.probes
	s := section{title: "Failovers",
		note: fmt.Sprintf("%d programs quotient leases stand for an election on Debian's etcd, with a lease "+
			"of %v and a grace time of %v. One fault after the other makes another one lead. Election is from "+
			"the fault, or from etcd's start, until a server leads; service comes back after its grace time. "+
			"Probes at each server see when locks are granted. 8 lease.Clients lock one semaphore all the time. "+
			"Drills cut a client that holds a lock from the network while another one waits for it.",
			servers, electionTTL, b.grace),
		header: []string{"fault", "times", "election, most", "grace, most", "without service, most"}}
	worst := changed{}
	for _, f := range faults {
		n, most := worstOf(all, f.name)
		worst.election, worst.grace = max(worst.election, most.election), max(worst.grace, most.grace)
		s.rows = append(s.rows, []string{f.name, strconv.Itoa(n), rounded(most.election), rounded(most.grace),
			rounded(most.gap)})
	}
	crew.mu.Lock()
	defer crew.mu.Unlock()
	survived := crew.survived(c.struck, electionTTL)
	s.rows = append(s.rows, []string{"locks of the clients", strconv.Itoa(len(crew.all)),
		"lost " + strconv.Itoa(crew.lost()), "longest wait " + rounded(crew.longest),
		"errors " + summary(crew.errs)})
	s.verdicts = []verdict{
		exactly("failovers", len(all), b.failovers),
		exactly("tokens that did not rise, of the probes' "+strconv.Itoa(len(p.grants.all)), p.grants.fallen(), 0),
		exactly("tokens that did not rise, of the clients' "+strconv.Itoa(len(crew.all)), crew.fallen(), 0),
		exactly("locks held by two", crew.tooMany(), 0),
		{"leases that the next leader restored, some", fmt.Sprint(survived), survived > 0},
		atMost("election", worst.election.Seconds(), electionMost.Seconds(), " s"),
		atMost("from a new leader to its first lock", worst.grace.Seconds(),
			(b.grace + tolerance).Seconds(), " s"),
		{"clients that were cut off noticed before their lease ended", fmt.Sprintf("%d of %d, closest %v before",
			d.noticed-d.late, d.noticed, d.closest.Round(time.Millisecond)), d.noticed > 0 && d.late == 0},
		exactly("locks of clients that were cut off, granted before these noticed", d.overlaps, 0),
	}
	return s
}

// worstOf is how many failovers of one fault there were, and the longest times of them.
func worstOf(all []changed, fault string) (n int, most changed) {
	for _, one := range all {
		if one.fault == fault {
			n++
			most = changed{fault, max(most.election, one.election), max(most.grace, one.grace), max(most.gap, one.gap)}
		}
	}
	return n, most
}

func rounded(d time.Duration) string { return d.Round(time.Millisecond).String() }
