package gossip

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/quotient-go/quotient/internal/rest"
	"github.com/quotient-go/quotient/poolsize/internal/setting"
)

const (
	// leaveTimeout bounds the time for telling the others that this replica goes.
	leaveTimeout = time.Second
	// retransmit is as how often, times the number of digits of the fleet's size, each replica passes
	// reports of a member on. With 4 a fleet of 50 that starts at once has lost some.
	retransmit = 6
	// slowestGossip is memberlist's time from one round of reports about members to the next, at most.
	slowestGossip = 100 * time.Millisecond
)

// session is a memberlist that runs.
type session struct {
	src       *Source
	transport *transport
	delegate  *delegate
	roster    *roster
	ring      *memberlist.Keyring // nil: nothing is encrypted
	list      *memberlist.Memberlist

	aliases   aliases   // of the new replica
	settled   bool      // it has found out who else there is
	contested time.Time // since when another replica has its name; zero: there is none
	changes   int       // of the roster, that the view knows
	view      view
	peers     map[string]*memberlist.Node
}

func (s *Source) open() (*session, error) {
	x := &session{src: s, roster: newRoster(s.id, s.c.Forget), aliases: aliases{},
		peers: map[string]*memberlist.Node{}}
	x.delegate = &delegate{roster: x.roster, receive: s.numbers.receive, changed: make(chan struct{}, 1)}
	x.delegate.meta = meta{id: s.id, weight: s.c.Weight}
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
	s.mu.Lock()
	defer s.mu.Unlock()
	s.address = x.transport.advertise.String()
	return x, nil
}

func (x *session) config() *memberlist.Config {
	c := memberlist.DefaultLANConfig()
	s := x.src.c
	c.Name = fullName(s.Name, rand.Uint64())
	c.Label, c.Transport = label(s.Fleet), x.transport
	c.ProtocolVersion = memberlist.ProtocolVersion2Compatible // of all versions of this package
	c.TCPTimeout = streamTimeout
	c.RetransmitMult = retransmit
	c.ProbeInterval, c.ProbeTimeout = s.Probe, s.Probe/2
	c.SuspicionMaxTimeoutMult = 2 // a death is noticed soon also where few can confirm it
	c.AwarenessMaxMultiplier = 4
	c.GossipInterval = min(s.Interval, slowestGossip)
	c.GossipToTheDeadTime = 30 * s.Probe
	c.EnableCompression = false
	c.UDPBufferSize = s.PacketSize
	c.Keyring = x.ring
	c.Delegate, c.Events, c.Alive = x.delegate, x.delegate, x.delegate
	log := cmp.Or(s.Logger, slog.New(slog.DiscardHandler)) // its lines are for those who look for a fault in memberlist
	c.Logger = slog.NewLogLogger(log.Handler(), slog.LevelDebug)
	return c
}

// session gossips until the context is done, and then leaves.
func (s *Source) session(ctx context.Context) error {
	x, err := s.open()
	if err != nil {
		return err
	}
	rounds := make(chan round)
	var done sync.WaitGroup
	joins, stop := context.WithCancel(ctx)
	done.Go(func() { x.keepJoining(joins, rounds) })
	done.Go(func() { x.keepUp(joins) })
	done.Go(func() { x.keepKeys(joins) })
	x.run(ctx, rounds)
	stop()
	s.numbers.rest()
	x.leave()
	done.Wait()
	return nil
}

// run does what is due, until the context is done.
func (x *session) run(ctx context.Context, rounds <-chan round) {
	interval := x.src.c.Interval
	rest.For(ctx, rand.N(interval)) // replicas that start together do not send together
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			x.tick() // the last numbers
			return
		case r := <-rounds:
			x.learn(r)
		case <-x.delegate.changed:
		case <-ticker.C:
			x.tick()
		}
		x.look()
	}
}

// keepKeys reads the key file again and again, however long the addresses take to answer.
func (x *session) keepKeys(ctx context.Context) {
	for x.ring != nil {
		if err := x.src.rereadKeys(ctx, x.ring); err != nil && ctx.Err() == nil {
			x.src.fail(err)
		}
		x.src.readings.Add(1)
		if !rest.For(ctx, setting.Jittered(x.src.c.Rejoin)) {
			return
		}
	}
}

// keepJoining looks at who else there is, again and again.
func (x *session) keepJoining(ctx context.Context, rounds chan<- round) {
	retry := min(setting.FirstRetry, x.src.c.Rejoin)
	for {
		r := x.join(ctx)
		select {
		case rounds <- r:
		case <-ctx.Done():
			return
		}
		pause := x.src.c.Rejoin
		if !x.delegate.settled.Load() {
			pause, retry = retry, min(2*retry, pause)
		}
		if !rest.For(ctx, setting.Jittered(pause)) {
			return
		}
	}
}

// works reports whether a round has found someone, or that there is no one else to look for.
func (r round) works() bool { return r.answered+r.members > 0 || r.listed == 0 && r.err == nil }

// learn takes in a round. The first one that works ends the start, and so does one after another replica has
// joined this one, unless one of the same name is there.
func (x *session) learn(r round) {
	if r.err != nil {
		x.src.fail(r.err)
	}
	now, c := time.Now(), x.src.c
	v := x.roster.view(now)
	if v.cut() {
		x.src.fail(fmt.Errorf("gossip: of %d replicas %d have died: this is taken for a partition for %v",
			v.weight()+v.lost, v.lost, c.Forget))
	}
	rival, taken := v.rival(c.Name, x.src.id)
	if !taken {
		x.contested = time.Time{}
	} else {
		if x.contested.IsZero() {
			x.contested = now
		}
		x.src.fail(fmt.Errorf("gossip: the name %q is taken: this replica is at %v, another one at %v",
			c.Name, x.transport.advertise, rival.at))
	}
	own := member{meta: meta{id: x.src.id}}
	if x.settled || taken && own.yields(rival, now.Sub(x.contested)) || !r.works() && len(v.members) < 2 {
		return
	}
	x.settled = true
	x.delegate.settled.Store(true)
	x.list.UpdateNode(time.Nanosecond) //nolint:errcheck // it only says that it did not wait
}

// look publishes what the roster amounts to, if that may have changed.
func (x *session) look() {
	now, changes := time.Now(), x.roster.count()
	if !x.settled || changes == x.changes && (x.view.until.IsZero() || now.Before(x.view.until)) {
		return
	}
	before := x.view
	x.changes, x.view = changes, x.roster.view(now)
	if slices.Equal(before.members, x.view.members) && before.lost == x.view.lost {
		return
	}
	clear(x.peers)
	all, complete := partners(x.view.members)
	for _, m := range all {
		x.peers[m.name] = &memberlist.Node{Name: m.name, Addr: m.at.Addr().AsSlice(), Port: m.at.Port()}
	}
	x.src.numbers.setPartners(all, complete && !x.view.cut())
	if p, ok := x.view.pool(x.src.c.Name, x.src.id); ok {
		x.src.publish(len(x.view.members), p)
	}
}

// leave announces that this replica goes, which is no death, and goes.
func (x *session) leave() {
	x.delegate.leaving.Store(true)
	x.list.UpdateNode(leaveTimeout / 2) //nolint:errcheck // the others notice all the same
	x.list.Leave(leaveTimeout / 2)      //nolint:errcheck // as above
	x.list.Shutdown()                   //nolint:errcheck // the transport returns none
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
