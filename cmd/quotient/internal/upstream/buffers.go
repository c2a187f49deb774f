package upstream

import (
	"io"
	"sync"
	"sync/atomic"
)

// A copy from one connection to another has a buffer while it waits for either. A few are as large as that of io.Copy,
// which is fastest. When there are many copies, most of them wait for a peer, and are given small ones.
const (
	largeBuffer = 32 << 10
	smallBuffer = 4 << 10
	mostLarge   = 256
)

var (
	inUse atomic.Int64 // large ones
	large = sync.Pool{New: func() any { return new([largeBuffer]byte) }}
	small = sync.Pool{New: func() any { return new([smallBuffer]byte) }}
)

// Buffers is a pool of buffers to copy with, for httputil.ReverseProxy.
type Buffers struct{}

// Get returns a buffer.
func (Buffers) Get() []byte {
	if inUse.Add(1) <= mostLarge {
		return large.Get().(*[largeBuffer]byte)[:]
	}
	inUse.Add(-1)
	return small.Get().(*[smallBuffer]byte)[:]
}

// Put takes one back that Get has returned.
func (Buffers) Put(b []byte) {
	if len(b) == largeBuffer {
		inUse.Add(-1)
		large.Put((*[largeBuffer]byte)(b))
		return
	}
	small.Put((*[smallBuffer]byte)(b))
}

// WriteTo copies what the upstream says on an upgraded connection.
func (s *stream) WriteTo(w io.Writer) (int64, error) { return copyTo(w, s.ReadWriteCloser) }

// ReadFrom copies what the client says.
func (s *stream) ReadFrom(r io.Reader) (int64, error) { return copyTo(s.ReadWriteCloser, r) }

func copyTo(w io.Writer, r io.Reader) (int64, error) {
	b := Buffers{}.Get()
	defer Buffers{}.Put(b)
	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, b)
}
