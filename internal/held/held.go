// Package held counts the bytes that clients make a server keep for them, and bounds them for all clients together.
// What it counts is what memory costs, as far as that can be known, which is more than what was sent.
package held

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// ErrNoRoom is why something is refused that would have to be kept.
var ErrNoRoom = errors.New("there is no room for the request now (max.held-bytes)")

// Room is what all clients together may have kept. The zero value has no room.
type Room struct {
	most, held atomic.Int64
	refused    atomic.Uint64
}

// SetMost changes how many bytes there are. If that is less than what is held, nothing more is until enough is free.
func (r *Room) SetMost(n int64) { r.most.Store(n) }

// State returns how many bytes are held, and how often there was no room.
func (r *Room) State() (held int64, refused uint64) { return r.held.Load(), r.refused.Load() }

// take takes n bytes for a share that has some already. No share may have more than it leaves free, so that one alone
// gets half, and the next ones less, but none nothing.
func (r *Room) take(n, has int64) bool {
	if n <= 0 {
		r.held.Add(n)
		return true
	}
	for {
		now := r.held.Load()
		if has+n > r.most.Load()-now-n {
			r.refused.Add(1)
			return false
		}
		if r.held.CompareAndSwap(now, now+n) {
			return true
		}
	}
}

// Share is what one client holds. Its first bytes, Free of them, take no room: so who asks for little is served
// whatever others hold. A nil Share has no bound. It is safe for use by many goroutines; the fields must not change.
type Share struct {
	Room *Room
	Free int64

	mu    sync.Mutex
	held  int64
	ended bool
}

// Take holds n more bytes, if there is room for them.
func (s *Share) Take(n int64) bool {
	if s == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return n <= 0
	}
	has := s.counted(s.held)
	if more := s.counted(s.held+n) - has; more != 0 && !s.Room.take(more, has) {
		return false
	}
	s.held += n
	return true
}

// Give gives n bytes back.
func (s *Share) Give(n int64) {
	if s != nil && n != 0 {
		s.Take(-n)
	}
}

// End gives all back when the client has gone. It takes nothing more then.
func (s *Share) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Room.take(-s.counted(s.held), 0)
	s.held, s.ended = 0, true
}

func (s *Share) counted(held int64) int64 { return max(0, held-s.Free) }

type key struct{}

// With returns a context whose requests hold what they hold in s.
func With(ctx context.Context, s *Share) context.Context { return context.WithValue(ctx, key{}, s) }

// From returns the Share of a request's context; nil under a server that counts nothing.
func From(ctx context.Context) *Share {
	s, _ := ctx.Value(key{}).(*Share)
	return s
}
