package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/quotient-go/quotient/bench/rig"
	"github.com/quotient-go/quotient/poolsize/redis/redistest"
)

const (
	// A node counts as gone after nodeTimeout; longer than one may stand still on a busy machine.
	nodeTimeout   = time.Second
	clusterWithin = 20 * time.Second // it is up, or a replica is promoted, also on a busy machine
	lastSlot      = 16383
)

// A cluster is three masters, the fewest that agree that one of them is gone, and a replica of the first one, which
// has the fleet's keys: the others have a slot each. The replica and its master change roles with each failover.
type cluster struct {
	nodes   [4]*redistest.Server
	clients [4]*goredis.Client
}

// newCluster starts the nodes and joins them. An error leaves nothing behind.
func newCluster(ctx context.Context) (_ *cluster, err error) {
	c := &cluster{}
	for i := range c.nodes {
		bus, err1 := rig.FreePort()
		node, err2 := redistest.Start("--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(bus),
			"--cluster-node-timeout", strconv.FormatInt(nodeTimeout.Milliseconds(), 10),
			"--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0")
		if err = errors.Join(err, err1, err2); err != nil {
			return nil, errors.Join(err, c.close())
		}
		c.nodes[i] = node
		c.clients[i] = goredis.NewClient(&goredis.Options{Addr: node.Addr(), DialTimeout: nodeTimeout, MaxRetries: -1})
	}
	if err = c.join(ctx); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// join makes a cluster of the nodes, and returns when the replica has copied its master.
func (c *cluster) join(ctx context.Context) (err error) {
	parts := [3][2]int{{2, lastSlot}, {0, 0}, {1, 1}}
	for i, client := range c.clients {
		if i < len(parts) {
			epoch := client.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
			err = errors.Join(err, client.ClusterAddSlotsRange(ctx, parts[i][0], parts[i][1]).Err(), epoch.Err())
		}
		bus, err1 := client.ConfigGet(ctx, "cluster-port").Result()
		meet := c.clients[0].Do(ctx, "CLUSTER", "MEET", "127.0.0.1", c.nodes[i].Port(), bus["cluster-port"])
		err = errors.Join(err, err1, meet.Err())
	}
	master, err1 := c.clients[0].ClusterMyID(ctx).Result()
	if err = errors.Join(err, err1); err != nil {
		return err
	}
	if err := rig.Until(ctx, clusterWithin, func() error { return c.clients[3].ClusterReplicate(ctx, master).Err() }); err != nil {
		return err
	}
	return rig.Until(ctx, clusterWithin, func() error {
		return errors.Join(c.up(ctx, 0), c.up(ctx, 1), c.up(ctx, 2), c.up(ctx, 3), c.replicates(ctx, 3))
	})
}

// up is an error until a node knows all others and serves.
func (c *cluster) up(ctx context.Context, i int) error {
	info, err := c.clients[i].ClusterInfo(ctx).Result()
	return wants(info, err, "cluster_state:ok", fmt.Sprintf("cluster_known_nodes:%d", len(c.nodes)))
}

// replicates is an error until a node is the replica of a pair and can take over.
func (c *cluster) replicates(ctx context.Context, i int) error {
	info, err := c.clients[i].Info(ctx, "replication").Result()
	return wants(info, err, "role:slave", "master_link_status:up")
}

// masters is an error until a node is the master of a pair and serves.
func (c *cluster) masters(ctx context.Context, i int) error {
	info, err := c.clients[i].Info(ctx, "replication").Result()
	return errors.Join(wants(info, err, "role:master"), c.up(ctx, i))
}

// wants is an error where a node does not say all of these lines.
func wants(info string, err error, lines ...string) error {
	for _, line := range lines {
		if err == nil && !strings.Contains(info, line+"\r") {
			err = fmt.Errorf("redis cluster: no %s", line)
		}
	}
	return err
}

func (c *cluster) addrs() (addrs []string) {
	for _, n := range c.nodes {
		addrs = append(addrs, n.Addr())
	}
	return addrs
}

func (c *cluster) close() (err error) {
	for i := range c.nodes {
		if c.nodes[i] != nil {
			err = errors.Join(err, c.nodes[i].Close(), c.clients[i].Close())
		}
	}
	return err
}

// failover kills the master of the fleet's keys, and restarts it after a while, when its replica has been promoted:
// then it is that one's replica. All are back two periods and two commands later, as the page of poolsize/redis says.
func (f *fleet) failover(time.Duration) (func() error, error) {
	c, ctx, at := f.world.cluster, context.Background(), f.now()
	old := 0
	if err := rig.Until(ctx, clusterWithin, func() error {
		if old = 0; c.replicates(ctx, 3) != nil {
			old = 3
		}
		return errors.Join(c.masters(ctx, old), c.replicates(ctx, 3-old))
	}); err != nil {
		return nil, err
	}
	return func() error {
		err := rig.Until(ctx, clusterWithin, func() error { return c.masters(ctx, 3-old) })
		f.Faults[fromRedis] = append(f.Faults[fromRedis], span{at, f.now() + fromRedis.looks() + redisExpiry})
		return errors.Join(err, c.nodes[old].Restart(false))
	}, c.nodes[old].Kill()
}

// flush takes all data away. Each replica reports itself again within a period.
func (f *fleet) flush(time.Duration) (func() error, error) {
	c, ctx := f.world.cluster, context.Background()
	f.Faults[fromRedis] = append(f.Faults[fromRedis], span{f.now(), f.now() + fromRedis.looks()})
	if err := c.clients[0].FlushAll(ctx).Err(); err != nil {
		return nil, c.clients[3].FlushAll(ctx).Err() // one of them is the master
	}
	return nil, nil
}
