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
	nodes   []*redistest.Server
	clients []*goredis.Client
}

const clusterNodes = 4

// newCluster starts the nodes and joins them. What it has started is there to be closed after an error too.
func newCluster(ctx context.Context) (*cluster, error) {
	c := &cluster{}
	for range clusterNodes {
		bus, err1 := rig.FreePort()
		node, err2 := redistest.Start("--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(bus),
			"--cluster-node-timeout", strconv.FormatInt(nodeTimeout.Milliseconds(), 10),
			"--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0")
		if err := errors.Join(err1, err2); err != nil {
			return c, err
		}
		c.nodes = append(c.nodes, node)
		options := goredis.Options{Addr: node.Addr(), DialTimeout: nodeTimeout, MaxRetries: -1}
		c.clients = append(c.clients, goredis.NewClient(&options))
	}
	return c, c.join(ctx)
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
	err = rig.Until(ctx, clusterWithin, func() error { return c.clients[3].ClusterReplicate(ctx, master).Err() })
	if err != nil {
		return err
	}
	return rig.Until(ctx, clusterWithin, func() error {
		err := c.says(ctx, 3, copies...)
		for i := range c.nodes {
			err = errors.Join(err, c.says(ctx, i, serves...))
		}
		return err
	})
}

// What a node says that knows all others and serves, what a master says besides, and what a replica that can take over.
var (
	serves  = []string{"cluster_state:ok", fmt.Sprintf("cluster_known_nodes:%d", clusterNodes)}
	masters = append([]string{"role:master"}, serves...)
	copies  = []string{"role:slave", "master_link_status:up"}
)

// says is an error until a node says all of these lines.
func (c *cluster) says(ctx context.Context, i int, lines ...string) error {
	known, err1 := c.clients[i].ClusterInfo(ctx).Result()
	role, err2 := c.clients[i].Info(ctx, "replication").Result()
	err := errors.Join(err1, err2)
	for _, line := range lines {
		if err == nil && !strings.Contains(known+role, line+"\r") {
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
		err = errors.Join(err, c.nodes[i].Close(), c.clients[i].Close())
	}
	return err
}

// failover kills the master of the fleet's keys, and restarts it after a while, when its replica has been promoted:
// then it is that one's replica. All are back two periods and two commands later, as the page of poolsize/redis says.
func (f *fleet) failover(until time.Duration) error {
	c, ctx, at := f.world.cluster, context.Background(), f.now()
	old := 0
	if err := rig.Until(ctx, clusterWithin, func() error {
		if old = 0; c.says(ctx, 3, copies...) != nil {
			old = 3
		}
		return errors.Join(c.says(ctx, old, masters...), c.says(ctx, 3-old, copies...))
	}); err != nil {
		return err
	}
	err := c.nodes[old].Kill()
	f.rest(until)
	err = errors.Join(err, rig.Until(ctx, clusterWithin, func() error { return c.says(ctx, 3-old, masters...) }))
	f.Faults[fromRedis] = append(f.Faults[fromRedis], span{at, f.now() + fromRedis.looks() + redisExpiry})
	return errors.Join(err, c.nodes[old].Restart(false))
}

// flush takes all data away. Each replica reports itself again within a period.
func (f *fleet) flush(time.Duration) error {
	c, ctx := f.world.cluster, context.Background()
	f.Faults[fromRedis] = append(f.Faults[fromRedis], span{f.now(), f.now() + fromRedis.looks()})
	if c.clients[0].FlushAll(ctx).Err() == nil {
		return nil
	}
	return c.clients[3].FlushAll(ctx).Err() // one of them is the master
}
