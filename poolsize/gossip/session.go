package gossip

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

const (
	// firstRetry is the pause after a first failure. It doubles with each further one, up to Rejoin.
	firstRetry = 100 * time.Millisecond
	// leaveTimeout bounds the time for telling the others that this replica goes.
	leaveTimeout = time.Second
	// slowestGossip is memberlist's time from one round of news about members to the next, at most.
	slowestGossip = 100 * time.Millisecond
	// rivalPause is for how many Rejoins a rival must be seen before one of the two gives way.
	rivalPause = 2
)

// session is a memberlist that runs.
type session struct {
	src       *Source
	transport *transport
	delegate  *delegate
	roster    *roster
	ring      *memberlist.Keyring // nil: nothing is encrypted
	list      *memberlist.Memberlist

	settled bool // it has found out who else there is
	members []member
	peers   map[string]*memberlist.Node

	rivals       uint64    // of delegate.count: those that have been seen to
	rivalBegan   time.Time // when a rival that is settled was first seen
	rivalErrored time.Time // when one was last reported
}

// open starts memberlist.
func (s *Source) open() (*session, error) {
	r := newRoster(s.c.Name)
	x := &session{src: s, roster: r, peers: map[string]*memberlist.Node{}}
	x.delegate = &delegate{own: s.c.Name, roster: r, receive: s.numbers.receive,
		changed: make(chan struct{}, 1)}
	x.delegate.meta.Store(&meta{id: s.id, weight: s.c.Weight})
	if s.keys != nil {
		ring, err := memberlist.NewKeyring(s.keys, s.keys[0])
		if err != nil {
			return nil, fmt.Errorf("gossip: %w", err)
		}
		x.ring = ring
	}
	var err error
	if x.transport, err = listen(s.c, &s.traffic); err != nil {
		return nil, err
	}
	if x.list, err = memberlist.Create(x.config()); err != nil {
		x.transport.Shutdown() //nolint:errcheck // it returns none
		return nil, fmt.Errorf("gossip: %w", err)
	}
	s.listens(x.transport.advertise.String())
	return x, nil
}

// config is memberlist's.
func (x *session) config() *memberlist.Config {
	c := memberlist.DefaultLANConfig()
	s := x.src.c
	c.Name, c.Label, c.Transport = s.Name, "quotient/"+s.Fleet, x.transport
	c.ProtocolVersion = memberlist.ProtocolVersion2Compatible // of all versions of this package
	c.TCPTimeout = streamTimeout
	c.ProbeInterval, c.ProbeTimeout = s.Probe, s.Probe/2
	c.AwarenessMaxMultiplier = 4
	c.GossipInterval = min(s.Interval, slowestGossip)
	c.GossipToTheDeadTime = 30 * s.Probe
	c.DeadNodeReclaimTime = 1 // one that has died may come back at another address
	c.EnableCompression = false
	c.UDPBufferSize = s.PacketSize
	c.Keyring = x.ring
	c.Delegate, c.Events, c.Conflict, c.Alive = x.delegate, x.delegate, x.delegate, x.delegate
	c.Logger = logger(s.Logger)
	return c
}

// session gossips until the context is done or the name is taken. It leaves in the former case only: in the
// latter the others would take the rival for gone.
func (s *Source) session(ctx context.Context) error {
	x, err := s.open()
	if err != nil {
		return err
	}
	rounds := make(chan round)
	var done sync.WaitGroup
	joins, stop := context.WithCancel(ctx)
	done.Go(func() { x.keepJoining(joins, rounds) })
	err = x.run(ctx, rounds)
	stop()
	s.numbers.rest()
	if ctx.Err() != nil {
		x.list.Leave(leaveTimeout) //nolint:errcheck // the others notice all the same
	}
	x.list.Shutdown() //nolint:errcheck // the transport returns none
	done.Wait()
	return err
}

// run does what is due, until the context is done or the name is taken.
func (x *session) run(ctx context.Context, rounds <-chan round) error {
	interval := x.src.c.Interval
	select { // replicas that start together do not send together
	case <-ctx.Done():
	case <-time.After(rand.N(interval)):
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			x.tick() // the last numbers
			return ctx.Err()
		case r := <-rounds:
			x.learn(r)
		case <-x.delegate.changed:
		case <-ticker.C:
			x.tick()
		}
		if err := x.yield(); err != nil {
			return err
		}
		x.look()
	}
}

// keepJoining looks at who else there is and at the keys, again and again.
func (x *session) keepJoining(ctx context.Context, rounds chan<- round) {
	retry := min(firstRetry, x.src.c.Rejoin)
	for {
		if err := x.src.rereadKeys(x.ring); err != nil {
			x.src.fail(err)
		}
		r := x.join(ctx)
		select {
		case rounds <- r:
		case <-ctx.Done():
			return
		}
		pause := x.src.c.Rejoin
		if !r.works() {
			pause, retry = min(retry, pause), 2*retry
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(jittered(pause)):
		}
	}
}

// works reports whether a round has found someone, or that there is no one else to look for.
func (r round) works() bool { return r.answered+r.members > 0 || r.listed == 0 && r.err == nil }

// jittered returns d, a tenth longer or shorter at most.
func jittered(d time.Duration) time.Duration { return d - d/10 + rand.N(d/5+1) }

// learn takes in a round. The first one that works ends the start, and so does one after another replica has
// joined this one.
func (x *session) learn(r round) {
	if r.err != nil {
		x.src.fail(r.err)
	}
	if x.settled || x.delegate.count.Load() != x.rivals || !r.works() && len(x.roster.sorted()) < 2 {
		return
	}
	x.settled = true
	m := *x.delegate.meta.Load()
	m.settled = true
	x.delegate.meta.Store(&m)
	x.list.UpdateNode(time.Nanosecond) //nolint:errcheck // it only says that it did not wait
}

// look publishes the members if they have changed.
func (x *session) look() {
	if !x.settled {
		return
	}
	members := x.roster.sorted()
	if slices.Equal(members, x.members) {
		return
	}
	x.members = members
	clear(x.peers)
	for _, m := range members {
		x.peers[m.name] = &memberlist.Node{Name: m.name, Addr: m.at.Addr().AsSlice(), Port: m.at.Port()}
	}
	x.src.numbers.setMembers(members)
	if p, ok := pool(members, x.src.c.Name); ok {
		x.src.publish(len(members), p)
	}
}

// tick is one interval: the limiters' turns, and then a packet for each neighbour.
func (x *session) tick() {
	if !x.settled {
		return
	}
	x.src.numbers.tick(func(to string, packet []byte) {
		if n := x.peers[to]; n != nil {
			x.list.SendBestEffort(n, packet) //nolint:errcheck // the next one says it again
		}
	})
}

// yield returns an error if this replica must give way to another one of its name. One that has just
// started always does. Two that have been at work belong to two halves of a fleet that have met. Of these
// the one with the larger number gives way, once it is clear that the other stays.
func (x *session) yield() error {
	n := x.delegate.count.Load()
	if n == x.rivals {
		return nil
	}
	x.rivals = n
	r := x.delegate.rival.Load()
	now, c := time.Now(), x.src.c
	err := fmt.Errorf("gossip: the name %q is taken: this replica is at %v, another one at %s",
		c.Name, x.transport.advertise, r.address)
	if !x.settled {
		return err
	}
	if r.settled && now.Sub(x.rivalBegan) > 10*rivalPause*c.Rejoin {
		x.rivalBegan = now
	}
	if r.settled && r.id < x.src.id && now.Sub(x.rivalBegan) >= rivalPause*c.Rejoin {
		return err
	}
	if now.Sub(x.rivalErrored) >= c.Rejoin {
		x.rivalErrored = now
		x.src.fail(err)
	}
	return nil
}

// flat is an error in one line.
func flat(err error) error {
	return errors.New(strings.Join(strings.Fields(err.Error()), " "))
}
