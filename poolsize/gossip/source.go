package gossip

import (
	"bytes"
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/rest"
	"github.com/quotient-go/quotient/poolsize/internal/setting"
)

const (
	// sayAgain is the pause after which a pool is reported again although it is the same.
	sayAgain = time.Second
	// mostPending bounds the errors that wait for a slow Watch. Older ones are dropped.
	mostPending = 8
)

// Source is one replica of a fleet, and counts all of them. New makes it. It may be used from many
// goroutines, and watched several times, also at once: that is still one replica.
type Source struct {
	c        *settings
	id       uint64
	numbers  *numbers
	traffic  traffic
	readings atomic.Uint64 // of the key file
	turn     chan struct{} // holds a value while a run begins or ends

	// These fields belong to the one goroutine that re-reads the key file.
	keys     [][]byte // in use
	keysSeen [][]byte // at the last reading

	mu       sync.Mutex // guards what follows
	watches  map[*watch]struct{}
	address  string // that it advertises; "": it does not listen
	members  int
	pool     quotient.Pool
	version  uint64 // of the pool; 0: there is none
	errors   uint64
	last     error
	end      context.CancelFunc // ends the run
	hasEnded chan struct{}
}

// New returns a replica that reads the key file now and gossips once Watch is called. An error names the wrong field.
func New(c Config) (*Source, error) {
	id := 1 + rand.Uint64N(math.MaxUint64) // 0 would be none
	set, err := c.complete(id)
	if err != nil {
		return nil, err
	}
	return &Source{c: set, id: id, numbers: newNumbers(set, id), keys: set.keys, keysSeen: set.keys,
		turn: make(chan struct{}, 1), watches: map[*watch]struct{}{}}, nil
}

// watch is a Watch that runs.
type watch struct {
	wake chan struct{} // gets a value when there is something to report
	errs []error       // not reported yet; guarded by Source.mu
}

// Watch gossips, and reports the live members: at each change, and again every second. The ordinal is this
// replica's position in the order of their names. When the context ends, Watch takes this replica out of
// the fleet, which takes a second at most, and returns the context's error. A running probe of a member
// that does not answer ends later, after at most four times Config.Probe.
//
// Nothing is reported before the start is over. The start ends when one of the addresses to join has
// answered, when another replica has joined this one, or when no address except its own is listed. Until
// then each failed attempt is an error.
//
// Later errors are reported between the pools. Sockets cannot be opened, another replica has the name, a file cannot
// be read, a host cannot be looked up, or none of the addresses answers. Watch tries again after each of them.
func (s *Source) Watch(ctx context.Context, report func(quotient.Pool, error)) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case s.turn <- struct{}{}:
	}
	w := s.begin()
	<-s.turn
	defer s.leave(w)
	again := time.NewTicker(sayAgain)
	defer again.Stop()
	for seen := uint64(0); ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.wake:
		case <-again.C:
			seen = 0
		}
		s.mu.Lock()
		errs, p, version := w.errs, s.pool, s.version
		w.errs = nil
		s.mu.Unlock()
		for _, err := range errs {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			report(quotient.Pool{}, err)
		}
		if version != seen && ctx.Err() == nil {
			seen = version
			report(p, nil)
		}
	}
}

// begin adds a Watch. The first one has the replica gossip.
func (s *Source) begin() *watch {
	w := &watch{wake: make(chan struct{}, 1)}
	rest.Wake(w.wake)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watches[w] = struct{}{}; len(s.watches) == 1 {
		ctx, end := context.WithCancel(context.Background())
		ended := make(chan struct{})
		s.end, s.hasEnded = end, ended
		go func() {
			defer close(ended)
			s.run(ctx)
		}()
	}
	return w
}

// leave takes a Watch away. The last one ends the gossip, and waits for it.
func (s *Source) leave(w *watch) {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	s.mu.Lock()
	delete(s.watches, w)
	last, ended := len(s.watches) == 0, s.hasEnded
	s.mu.Unlock()
	if last {
		s.end()
		<-ended
		s.mu.Lock()
		s.address, s.members, s.pool, s.version = "", 0, quotient.Pool{}, 0
		s.mu.Unlock()
	}
}

// run has one session after another, until the context is done.
func (s *Source) run(ctx context.Context) {
	for retry := min(setting.FirstRetry, s.c.Rejoin); ; retry = min(2*retry, s.c.Rejoin) {
		began := time.Now()
		err := s.session(ctx)
		if ctx.Err() != nil {
			return
		}
		s.fail(err)
		if time.Since(began) > s.c.Rejoin {
			retry = min(setting.FirstRetry, s.c.Rejoin)
		}
		if !rest.For(ctx, setting.Jittered(retry)) {
			return
		}
	}
}

func (s *Source) publish(members int, p quotient.Pool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.members, s.pool = members, p
	s.version++
	for w := range s.watches {
		rest.Wake(w.wake)
	}
}

func (s *Source) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.errors++
	s.last = err
	for w := range s.watches {
		w.errs = append(w.errs, err)
		w.errs = w.errs[max(0, len(w.errs)-mostPending):]
		rest.Wake(w.wake)
	}
}

// rereadKeys installs the keys of the key file, if two readings in a row have found the same. Half of a key
// that is being written might pass for a shorter one.
func (s *Source) rereadKeys(ctx context.Context, ring *memberlist.Keyring) error {
	if ring == nil {
		return nil
	}
	keys, err := readKeys(ctx, s.c.KeyFile)
	if err != nil {
		return err
	}
	same := func(a, b [][]byte) bool { return slices.EqualFunc(a, b, bytes.Equal) }
	if same(keys, s.keysSeen) && !same(keys, s.keys) {
		s.keys = keys
		err = install(ring, keys)
	}
	s.keysSeen = keys
	return err
}

// Stats is the state of this replica at one instant.
type Stats struct {
	// Name is the name of this replica.
	Name string
	// Address is the address that it advertises, "host:port"; "" while it does not listen.
	Address string
	// Members are the live replicas, this one included; 0 before the start is over.
	Members int
	// Age is how old the oldest part of the fleet's sums is; math.MaxInt64 while a part is missing.
	Age time.Duration
	// Diameter is the number of packets, one after the other, that bring a number from one end of the fleet
	// to the other.
	Diameter int
	// Keys is the number of keys that have numbers.
	Keys int
	// Sent and Received count the bytes of all packets and streams, membership included, without the headers
	// of UDP, TCP and IP.
	Sent, Received uint64
	// PacketsSent and PacketsReceived count UDP packets.
	PacketsSent, PacketsReceived uint64
	// Refused counts the packets of numbers that were dropped. They were malformed or of another version,
	// or their sender is no neighbour, as for an instant after each change of the fleet.
	Refused uint64
	// Errors counts the errors that Watch has reported. LastError is the last one, or nil.
	Errors    uint64
	LastError error
}

// Stats returns the state of this replica now.
func (s *Source) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Stats{
		Name: s.c.Name, Address: s.address, Members: s.members,
		Sent: s.traffic.sent.Load(), Received: s.traffic.received.Load(),
		PacketsSent: s.traffic.packetsSent.Load(), PacketsReceived: s.traffic.packetsReceived.Load(),
		Errors: s.errors, LastError: s.last,
	}
	s.numbers.stats(&st)
	return st
}
