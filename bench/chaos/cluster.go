package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/quotient-go/quotient/poolsize/redis/redistest"
)

const (
	clusterMasters = 3 // fewer cannot agree that one of them is gone
	clusterNodes   = clusterMasters + 1
	// A node counts as gone after nodeTimeout; longer than one may stand still on a busy machine.
	nodeTimeout   = time.Second
	clusterWithin = 20 * time.Second // it is up, also on a busy machine
	failoverIn    = 15 * time.Second // the replica is promoted
	clusterPoll   = 50 * time.Millisecond
	// All are back so long after a promotion: two periods and two commands, as the page of poolsize/redis says.
	clusterBack  = 2*storePeriod + redisExpiry
	clusterSlots = 16384
	clusterKey   = "{quotient:" + redisFleet + "}" // the hash tag of all keys of the fleet
)

// A cluster is three masters and a replica of the one that has the fleet's keys. These two, a pair, change
// roles with each failover.
type cluster struct {
	nodes   [clusterNodes]*redistest.Server
	clients [clusterNodes]*goredis.Client
}

// pair are the nodes that may have the fleet's keys.
var pair = [2]int{0, clusterMasters}

// newCluster starts the nodes and joins them. An error leaves nothing behind.
func newCluster(ctx context.Context) (_ *cluster, err error) {
	c := &cluster{}
	errs := make([]error, clusterNodes)
	var starting sync.WaitGroup
	for i := range c.nodes {
		starting.Go(func() { errs[i] = c.start(i) })
	}
	starting.Wait()
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, clusterWithin)
	defer cancel()
	if err := c.join(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// start starts a node that knows no other.
func (c *cluster) start(i int) (err error) {
	bus, err := freePort()
	if err != nil {
		return err
	}
	c.nodes[i], err = redistest.Start("--cluster-enabled", "yes", "--cluster-port", bus,
		"--cluster-node-timeout", strconv.FormatInt(nodeTimeout.Milliseconds(), 10),
		"--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0")
	if err == nil {
		c.clients[i] = goredis.NewClient(&goredis.Options{
			Addr: c.nodes[i].Addr(), ContextTimeoutEnabled: true, DialTimeout: clusterPoll, DialerRetries: 1, MaxRetries: -1,
		})
	}
	return err
}

// freePort is a port without a listener.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, errors.Join(err, l.Close())
}

// join makes a cluster of the nodes, and returns when the replica has copied its master.
func (c *cluster) join(ctx context.Context) error {
	slot, err := c.clients[0].ClusterKeySlot(ctx, clusterKey).Result()
	if err != nil {
		return err
	}
	own := int(slot) * clusterMasters / clusterSlots // the part that the first node has
	for i, client := range c.clients {
		if i < clusterMasters {
			part := (own + i) % clusterMasters
			from, to := (part*clusterSlots+clusterMasters-1)/clusterMasters, ((part+1)*clusterSlots-1)/clusterMasters
			epoch := client.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
			err = errors.Join(err, client.ClusterAddSlotsRange(ctx, from, to).Err(), epoch.Err())
		}
		bus, err1 := client.ConfigGet(ctx, "cluster-port").Result()
		meet := c.clients[0].Do(ctx, "CLUSTER", "MEET", "127.0.0.1", c.nodes[i].Port(), bus["cluster-port"])
		err = errors.Join(err, err1, meet.Err())
	}
	if err != nil {
		return err
	}
	master, err := c.clients[0].ClusterMyID(ctx).Result()
	if err != nil {
		return err
	}
	replica := c.clients[pair[1]]
	known := eventually(ctx, "the replica knows its master", func() bool {
		return replica.ClusterReplicate(ctx, master).Err() == nil
	})
	return errors.Join(known, eventually(ctx, "the cluster is up", func() bool {
		for i := range c.nodes {
			if !c.up(ctx, i) {
				return false
			}
		}
		return c.ready(ctx)
	}))
}

// eventually waits until something holds.
func eventually(ctx context.Context, what string, holds func() bool) error {
	tick := time.NewTicker(clusterPoll)
	defer tick.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("redis cluster: %s: %w", what, ctx.Err())
		case <-tick.C:
		}
	}
	return nil
}

// up reports whether a node knows all others and serves.
func (c *cluster) up(ctx context.Context, i int) bool {
	info, err := c.clients[i].ClusterInfo(ctx).Result()
	known := fmt.Sprintf("cluster_known_nodes:%d\r", clusterNodes)
	return err == nil && strings.Contains(info, "cluster_state:ok") && strings.Contains(info, known)
}

// says reports whether a node says all of something about its replication.
func (c *cluster) says(ctx context.Context, i int, what ...string) bool {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	info, err := c.clients[i].Info(ctx, "replication").Result()
	for _, line := range what {
		if err != nil || !strings.Contains(info, line+"\r") {
			return false
		}
	}
	return true
}

// master is the node that has the fleet's keys; not ok: none reports to have them, or both do.
func (c *cluster) master(ctx context.Context) (_ int, ok bool) {
	first, second := c.says(ctx, pair[0], "role:master"), c.says(ctx, pair[1], "role:master")
	if second {
		return pair[1], !first
	}
	return pair[0], first
}

// ready reports whether the replica can take over.
func (c *cluster) ready(ctx context.Context) bool {
	m, ok := c.master(ctx)
	return ok && c.says(ctx, other(m), "role:slave", "master_link_status:up")
}

// other is the other one of a pair.
func other(node int) int { return pair[0] + pair[1] - node }

// promoted reports whether a node has the fleet's keys and serves.
func (c *cluster) promoted(ctx context.Context, node int) bool {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	return c.says(ctx, node, "role:master") && c.up(ctx, node)
}

// addrs are the addresses of all nodes.
func (c *cluster) addrs() (addrs []string) {
	if c == nil {
		return nil
	}
	for _, n := range c.nodes {
		addrs = append(addrs, n.Addr())
	}
	return addrs
}

// close ends all nodes.
func (c *cluster) close() (err error) {
	if c == nil {
		return nil
	}
	for i := range c.nodes {
		if c.nodes[i] != nil {
			err = errors.Join(err, c.nodes[i].Close())
		}
		if c.clients[i] != nil {
			err = errors.Join(err, c.clients[i].Close())
		}
	}
	return err
}

// failover kills the master of the fleet's keys, and restarts it after a while, when its replica has been
// promoted: then it is that one's replica. The source is broken until all may be back.
func (f *fleet) failover(x fault) error {
	c, ctx := f.world.cluster, context.Background()
	if !c.ready(ctx) {
		if f.now() > f.begin+x.at+failoverIn {
			return fmt.Errorf("redis cluster: %v after the last failover the replica is not in step", failoverIn)
		}
		f.at(f.now()+clusterPoll, func() error { return f.failover(x) })
		return nil
	}
	old, _ := c.master(ctx)
	at := f.now()
	if err := c.nodes[old].Kill(); err != nil {
		return err
	}
	f.say("redis cluster: kill -9 of the master, restarted after %.1f s", x.lasts.Seconds())
	return f.awaitPromotion(x, old, at)
}

// kindFailover is when a replica is promoted.
const kindFailover = "redis cluster failover"

// awaitPromotion looks again and again whether the other node has taken over.
func (f *fleet) awaitPromotion(x fault, old int, at time.Duration) error {
	c := f.world.cluster
	now := f.now()
	if !c.promoted(context.Background(), other(old)) {
		if now > at+failoverIn {
			return fmt.Errorf("redis cluster: no replica was promoted in %v", failoverIn)
		}
		f.at(now+clusterPoll, func() error { return f.awaitPromotion(x, old, at) })
		return nil
	}
	now = f.now()
	f.say("redis cluster: the replica is the master after %.1f s", (now - at).Seconds())
	f.Faults[fromCluster] = append(f.Faults[fromCluster], span{at, now + clusterBack})
	e := event{At: now + clusterBack, Kind: kindFailover, On: [sources]bool{fromCluster: true}, Mend: true}
	f.Events = append(f.Events, e)
	f.at(max(now, at+x.lasts), func() error { return c.nodes[old].Restart(false) })
	return nil
}
