package lease

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/quotient-go/quotient/internal/held"
)

// ErrClosed is returned after Server.Close.
var ErrClosed = errors.New("lease: the server is closed")

// StandByError is the answer of a server that does not lead.
type StandByError struct{ Leader string } // URL of the one that does; empty: not known

// Error names the leader, if it is known.
func (e *StandByError) Error() string {
	if e.Leader == "" {
		return "lease: this server is on stand-by, and the leader is not known"
	}
	return "lease: this server is on stand-by, the leader is " + e.Leader
}

// ServerOptions are the options of NewServer beside a Config. The zero value is a server that leads.
type ServerOptions struct {
	StandBy bool         // start without a Table, until Lead
	Version string       // of GET /version; empty: "unknown"
	Metrics http.Handler // of GET /metrics; nil: 404
	Log     *slog.Logger // nil: slog.Default
}

// Server serves one Table over HTTP. It starts no goroutine: one timer does what is due. NewServer makes
// it. It is safe for concurrent use. Call Close at the end.
//
// All large bodies together have 16 MiB of memory at a time, and so have all lists of peers. Each may take as much as
// it leaves free, and a request that would need more is answered 503. A request holds up to 1 KiB beside that, so bound
// the connections.
type Server struct {
	options ServerOptions
	bodies  held.Room  // of bodies that are read
	lists   held.Room  // of lists of peers that are sent
	parsing sync.Mutex // held while a large body is understood

	mu      sync.Mutex // guards all below
	config  Config
	table   *Table              // nil on a stand-by, and after Close
	until   time.Time           // the table is good until then; zero: for good
	leader  string              // URL of the leader, on a stand-by
	blocked map[uint64]*blocked // by peer
	timer   *time.Timer
	due     time.Time // when timer fires; zero: it does not
	closed  bool
	missing uint64 // requests to unknown places
}

// maxBlocked bounds the blocked requests of one peer. It can wait for one lock only, so that more than one
// is a request that was repeated after a connection broke.
const maxBlocked = 8

// maxBlockFor bounds how long one request waits: net/http may not notice that its client has gone.
const maxBlockFor = time.Hour

// blocked are the requests that wait for the pending lock of one peer.
type blocked struct {
	decided chan struct{} // closed when the lock may be decided
	n       int           // how many wait
}

// NewServer returns a Server that leads, with ClockTokens, unless o.StandBy is set. An error names a field of c.
func NewServer(c Config, o ServerOptions) (*Server, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	o.Log = cmp.Or(o.Log, slog.Default())
	s := &Server{options: o, config: c.withDefaults(), blocked: make(map[uint64]*blocked)}
	s.bodies.SetMost(maxBodies)
	s.lists.SetMost(maxLists)
	if !o.StandBy {
		return s, s.Lead(ClockTokens(time.Now()), time.Time{})
	}
	return s, nil
}

// Lead makes this server the leader, with these tokens and a Table without peers, whose grace time starts
// now. The server leads until StandBy is called, or until the given time passes without Extend; zero means
// for good. So a process that was stopped for longer than its election lasts grants nothing when it
// continues. The tokens must be above all tokens that any server has given. It fails with ErrClosed.
func (s *Server) Lead(tokens Tokens, until time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	now := time.Now()
	t, err := NewTable(s.config, tokens, now)
	if err != nil {
		return err
	}
	s.stop("")
	s.table, s.until = t, until
	s.settle(now)
	return nil
}

// Extend extends the lead of this server until the given time; zero means for good. If the server does not
// lead, or its time has passed, the error is a StandByError. After Close it is ErrClosed.
func (s *Server) Extend(until time.Time) error {
	return s.do(func(*Table, time.Time) error {
		s.until = until
		return nil
	})
}

// StandBy makes this server drop all peers and redirect its clients to the leader, a URL. An empty URL
// means that the leader is not known.
func (s *Server) StandBy(leader string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop(leader)
}

// Leads reports whether this server grants leases. Otherwise leader is the URL of the one that does, if known.
func (s *Server) Leads() (leads bool, leader string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current(time.Now()) != nil, s.leader
}

// AddTokens continues with newer tokens, on a server that leads, as Table.AddTokens does. It fails with a
// StandByError and ErrClosed.
func (s *Server) AddTokens(more Tokens) error {
	return s.do(func(t *Table, now time.Time) error {
		t.AddTokens(more, now)
		return nil
	})
}

// TokensLeft returns how many tokens can be given; 0 on a stand-by.
func (s *Server) TokensLeft() (n uint64) {
	n, _ = get(s, func(t *Table, _ time.Time) (uint64, error) { return t.TokensLeft(), nil })
	return n
}

// Configure puts another configuration in force, as Table.Configure does. After an error the old one stays.
func (s *Server) Configure(c Config) error {
	if err := c.Validate(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.config = c.withDefaults()
	now := time.Now()
	t := s.current(now)
	if t == nil {
		return nil
	}
	err := t.Configure(c, now)
	s.settle(now)
	return err
}

// Close ends all requests that wait and stops the timer. Requests are then answered with 503. It may be called again.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.stop("")
}

// stop makes this server forget its Table, ends all requests that wait, and stops the timer. The caller holds the lock.
func (s *Server) stop(leader string) {
	s.table, s.leader, s.until, s.due = nil, leader, time.Time{}, time.Time{}
	for id := range s.blocked {
		s.wake(id)
	}
	if s.timer != nil {
		s.timer.Stop()
	}
}

// current returns the Table that is good now, or nil. The caller holds the lock.
func (s *Server) current(now time.Time) *Table {
	if s.table != nil && !s.until.IsZero() && passed(s.until, now) {
		s.options.Log.Warn("lease: this server leads no more: its time has passed", "until", s.until)
		s.stop("")
	}
	return s.table
}

// passed reports whether the instant has come by one of two clocks. The monotonic one of a machine may stop
// while the machine sleeps, and the other one may be set back.
func passed(at, now time.Time) bool { return !now.Before(at) || !now.Round(0).Before(at.Round(0)) }

// do calls f with the Table and the time, under the lock. It fails with a StandByError and ErrClosed.
func (s *Server) do(f func(t *Table, now time.Time) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	t := s.current(now)
	switch {
	case s.closed:
		return ErrClosed
	case t == nil:
		return &StandByError{s.leader}
	}
	err := f(t, now)
	s.settle(now)
	return err
}

func get[T any](s *Server, f func(t *Table, now time.Time) (T, error)) (v T, err error) {
	err = s.do(func(t *Table, now time.Time) (err error) {
		v, err = f(t, now)
		return err
	})
	return v, err
}

// settle wakes the requests whose lock was decided, and sets the timer. The caller holds the lock.
func (s *Server) settle(now time.Time) {
	for _, id := range s.table.Changed() {
		s.wake(id)
	}
	next := s.table.Next()
	if next.IsZero() || !s.until.IsZero() && s.until.Before(next) {
		next = s.until
	}
	if next.IsZero() || !s.due.IsZero() && !next.Before(s.due) {
		return // the timer may fire too early: it then looks again
	}
	s.due = next
	if s.timer == nil {
		s.timer = time.AfterFunc(next.Sub(now), s.tick)
		return
	}
	s.timer.Reset(next.Sub(now))
}

// tick is the timer's. It may come late, after Lead has set the timer again: it then sets it once more.
func (s *Server) tick() {
	_ = s.do(func(t *Table, now time.Time) error {
		s.due = time.Time{}
		t.Advance(now)
		return nil
	})
}

type ask struct {
	peer      uint64
	semaphore string
	count     int64
	expiresIn time.Duration // of the peer, from now on; or unchanged
	blockFor  time.Duration // how long to wait for the lock
}

// unchanged leaves a peer's expiry as it is.
const unchanged = time.Duration(-1)

// acquire asks for a lock, and waits for it. It returns token 0 for one that is still pending. Where too many
// requests of the peer wait, it does not wait.
func (s *Server) acquire(ctx context.Context, a ask) (token uint64, err error) {
	var w *blocked
	step := func(t *Table, now time.Time) (err error) {
		if a.expiresIn >= 0 {
			_, _ = t.Heartbeat(a.peer, a.expiresIn, now) // the errors are those of Acquire
		}
		token, err = t.Acquire(a.peer, a.semaphore, a.count, now)
		if err == nil && token == 0 && a.blockFor > 0 {
			w = s.block(a.peer)
		}
		return err
	}
	if err = s.do(step); err != nil || w == nil {
		return token, err
	}
	ctx, cancel := context.WithTimeout(ctx, min(a.blockFor, maxBlockFor))
	defer cancel()
	for w != nil {
		select {
		case <-w.decided:
		case <-ctx.Done(): // it may have been decided in the same instant
		}
		s.unblock(a.peer, w)
		w = nil
		err = s.do(func(t *Table, now time.Time) (err error) {
			token, err = t.State(a.peer, a.semaphore, a.count, now) // it may have been given back
			if err == nil && token == 0 && ctx.Err() == nil {
				w = s.block(a.peer)
			}
			return err
		})
	}
	return token, err
}

// block counts one more request that waits for the peer's pending lock; nil if there are too many. The caller
// holds the lock.
func (s *Server) block(id uint64) *blocked {
	w := s.blocked[id]
	if w == nil {
		w = &blocked{decided: make(chan struct{})}
		s.blocked[id] = w
	}
	if w.n >= maxBlocked {
		return nil
	}
	w.n++
	return w
}

func (s *Server) unblock(id uint64, w *blocked) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.n--; w.n == 0 && s.blocked[id] == w {
		delete(s.blocked, id)
	}
}

// wake makes the requests that wait for the peer look again. The caller holds the lock.
func (s *Server) wake(id uint64) {
	if w := s.blocked[id]; w != nil {
		close(w.decided)
		delete(s.blocked, id)
	}
}

// doWithGrace is do, and names the grace time of the configuration in the answer: only restores are served in it,
// after a start.
func (s *Server) doWithGrace(w http.ResponseWriter, f func(t *Table, now time.Time) error) error {
	var grace time.Duration
	err := s.do(func(t *Table, now time.Time) error {
		grace = t.config.Grace
		return f(t, now)
	})
	if grace > 0 {
		w.Header().Set("Lease-Grace", FormatDuration(grace))
	}
	return err
}

// newPeer adds a peer with a random id. It is not 0, and cannot be guessed: to know an id is to be the peer.
func (t *Table) newPeer(expiresIn time.Duration, now time.Time) (id uint64, err error) {
	for id == 0 || t.peers[id] != nil {
		var b [8]byte
		_, _ = rand.Read(b[:]) // it never fails
		id = binary.LittleEndian.Uint64(b[:])
	}
	return id, t.AddPeer(id, expiresIn, now)
}

// Stats is a Server at an instant.
type Stats struct {
	Leads      bool
	Leader     string        // URL, on a stand-by that knows it
	Grace      time.Duration // how much of the grace time is left
	Peers      int
	Missing    uint64           // requests to unknown places since the start
	Semaphores []SemaphoreStats // in no order; empty on a stand-by
}

// Stats returns the server's state. It takes O(semaphores).
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	t := s.current(now)
	st := Stats{Leads: t != nil, Leader: s.leader, Missing: s.missing}
	if t == nil {
		return st
	}
	st.Semaphores = t.Stats(now)
	st.Peers = len(t.peers)
	if !t.grace.IsZero() {
		st.Grace = t.grace.Sub(now)
	}
	s.settle(now)
	return st
}

// Locks returns the oldest locks of a semaphore, as Table.Locks does. It fails with ErrUnknownSemaphore.
func (s *Server) Locks(name string, most int) (held, pending []Lock, err error) {
	err = s.do(func(t *Table, now time.Time) error {
		var ok bool
		if held, pending, ok = t.Locks(name, most, now); !ok {
			return ErrUnknownSemaphore
		}
		return nil
	})
	return held, pending, err
}

// Break takes a lock away from its holder, as Table.Break does.
func (s *Server) Break(peer uint64, name string, token uint64) (broken Lock, err error) {
	broken, err = get(s, func(t *Table, now time.Time) (Lock, error) { return t.Break(peer, name, token, now) })
	if err != nil {
		return Lock{}, fmt.Errorf("lease: break %q of peer %d: %w", name, peer, err)
	}
	return broken, nil
}
