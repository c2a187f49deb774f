package front

import "github.com/quotient-go/quotient/internal/held"

// frames follows the frames of an HTTP/2 connection for one thing: the head of a request that has begun and does not
// end. Its client may send the rest at any time, or never, and a byte of it can stand for a field that came before. So
// it holds as much as the longest head. Heads that end with the frame that they began in are counted by serveStream.
type frames struct {
	share *held.Share
	most  int64 // that a head holds
	left  int   // bytes before the next frame
	head  []byte
	open  bool
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
		if h[3] == frameHeaders || h[3] == frameContinuation {
			if !f.begin(h[4]&flagEndHeaders == 0) {
				return errNoRoom
			}
		}
	}
	return nil
}

// begin notes that a head goes on behind a frame, or does not.
func (f *frames) begin(open bool) bool {
	if open == f.open {
		return true
	}
	if f.open = open; open {
		return f.share.Take(f.most)
	}
	f.share.Give(f.most)
	return true
}
