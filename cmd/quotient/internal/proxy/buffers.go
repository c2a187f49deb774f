package proxy

import "sync"

// bufferSize is what is copied at a time, that of io.Copy.
const bufferSize = 32 << 10

var free = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// buffers is a pool of buffers, for httputil.ReverseProxy.
type buffers struct{}

// Get returns a buffer.
func (buffers) Get() []byte { return free.Get().(*[bufferSize]byte)[:] }

// Put takes one back.
func (buffers) Put(b []byte) {
	if cap(b) >= bufferSize {
		free.Put((*[bufferSize]byte)(b[:bufferSize]))
	}
}
