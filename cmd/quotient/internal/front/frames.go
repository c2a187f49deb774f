package front

import (
	"encoding/binary"
	"net/http"
	"sync"

	"github.com/quotient-go/quotient/internal/held"
)

// streams counts what the requests of an HTTP/2 connection hold.
type streams struct {
	share *held.Share
	block int64 // that a head holds at most
	most  int   // handlers at a time

	mu      sync.Mutex
	atWork  int
	waiting int   // requests that net/http starts when handlers return: those before them were reset
	uploads int64 // what bodies may hold each
}

// come takes room for a head that has to wait in net/http, as long as it may be. No more than four times as many wait
// as have handlers: net/http then ends the connection. What comes beyond is refused there.
func (s *streams) come() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.atWork < s.most || s.waiting > 4*s.most {
		return true
	}
	if !s.share.Take(s.block) {
		return false
	}
	s.waiting++
	return true
}

// enter takes room for a request whose handler begins, which leave gives back.
func (s *streams) enter(r *http.Request) (leave func(), ok bool) {
	cost := byteCost * int64(len(r.RequestURI)+len(r.Host))
	for name, values := range r.Header {
		for _, v := range values {
			cost += fieldCost + byteCost*int64(len(name)+len(v))
		}
	}
	if r.Trailer != nil {
		cost += s.block // net/http keeps whatever stands in it
	}
	upload := int64(0)
	if r.Body != http.NoBody {
		upload = uploadBuffer
		if r.ContentLength >= 0 {
			upload = min(r.ContentLength, uploadBuffer)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.atWork++; s.atWork > 1 {
		cost += streamCost
	}
	s.begin(min(s.waiting, 1))
	if ok = s.share.Take(cost + s.upload(upload)); !ok {
		s.upload(-upload)
		cost, upload = 0, 0
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.share.Give(cost - s.upload(-upload))
		if s.atWork--; s.atWork <= s.most/2 {
			s.begin(s.waiting) // or net/http has dropped them
		}
	}, ok
}

// begin gives the room of n requests back that do not wait any more. The caller holds s.mu.
func (s *streams) begin(n int) {
	s.waiting -= n
	s.share.Give(int64(n) * s.block)
}

// upload adds to what bodies hold, and returns how much room that takes: all have streamBuffer together. The caller
// holds s.mu.
func (s *streams) upload(n int64) int64 {
	before := min(s.uploads, streamBuffer)
	s.uploads += n
	return min(s.uploads, streamBuffer) - before
}

// frames follows the frames of an HTTP/2 connection for two things: requests for which there is no handler yet, and
// the head of one that has begun and does not end. Its client may send the rest at any time, or never, and a byte of it
// can stand for a field that came before. So it holds as much as the longest head.
type frames struct {
	streams *streams
	left    int // bytes before the next frame
	head    []byte
	open    bool
	last    uint32 // stream that was opened
}

// The first bytes of a frame: three of its length, one of its type, one of flags, and four that say the stream.
const (
	frameHead         = 9
	frameHeaders      = 1
	frameContinuation = 9
	flagEndHeaders    = 4
)

func (f *frames) check(p []byte) error {
	for len(p) > 0 {
		if f.left > 0 {
			n := min(f.left, len(p))
			f.left -= n
			p = p[n:]
			continue
		}
		n := min(frameHead-len(f.head), len(p))
		f.head = append(f.head, p[:n]...)
		p = p[n:]
		if len(f.head) < frameHead {
			return nil
		}
		h := f.head
		f.head = f.head[:0]
		f.left = int(h[0])<<16 | int(h[1])<<8 | int(h[2])
		if h[3] != frameHeaders && h[3] != frameContinuation {
			continue
		}
		if !f.begin(h[4]&flagEndHeaders == 0) || !f.opens(binary.BigEndian.Uint32(h[5:])&0x7fffffff) {
			return errNoRoom
		}
	}
	return nil
}

// opens notes which stream a part of a head is for. A stream that was opened before has a trailer.
func (f *frames) opens(stream uint32) bool {
	if stream <= f.last {
		return true
	}
	f.last = stream
	return f.streams.come()
}

// begin notes that a head goes on behind a frame, or does not.
func (f *frames) begin(open bool) bool {
	if open == f.open {
		return true
	}
	if f.open = open; open {
		return f.streams.share.Take(f.streams.block)
	}
	f.streams.share.Give(f.streams.block)
	return true
}
