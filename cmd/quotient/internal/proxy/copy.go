package proxy

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
)

// copyBody copies an answer's body. What comes in parts of unknown number is passed on as it comes.
func copyBody(w http.ResponseWriter, res *http.Response) error {
	if res.Body == http.NoBody {
		return nil
	}
	events := strings.HasPrefix(strings.ToLower(res.Header.Get("Content-Type")), "text/event-stream")
	if res.ContentLength >= 0 && !events {
		return copyTo(w, res.Body, nil)
	}
	control := http.NewResponseController(w)
	ready, _ := res.Body.(interface{ Ready() bool })
	flush := func() error {
		if ready != nil && ready.Ready() { // more goes with it
			return nil
		}
		return control.Flush()
	}
	if err := flush(); err != nil { // the head
		return err
	}
	return copyTo(w, res.Body, flush)
}

// copyTo copies all that comes, and calls flush, if there is that, after each part but the last.
func copyTo(to io.Writer, from io.Reader, flush func() error) error {
	buffer := takeBuffer()
	defer giveBuffer(buffer)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if _, failed := to.Write(buffer[:n]); failed != nil {
				return failed
			}
		}
		if err == nil && flush != nil {
			err = flush()
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

// oneWay copies what one side says until it says no more, and tells the other.
func oneWay(to io.Writer, from io.Reader) error {
	if err := copyTo(to, from, nil); err != nil {
		return err
	}
	if c, ok := to.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return errHalf
}

// errHalf ends both directions of a connection that cannot end one.
var errHalf = errors.New("one direction cannot be closed alone")

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

// takeBuffer returns a buffer to copy with, which giveBuffer takes back.
func takeBuffer() []byte {
	if inUse.Add(1) <= mostLarge {
		return large.Get().(*[largeBuffer]byte)[:]
	}
	inUse.Add(-1)
	return small.Get().(*[smallBuffer]byte)[:]
}

func giveBuffer(b []byte) {
	if len(b) == largeBuffer {
		inUse.Add(-1)
		large.Put((*[largeBuffer]byte)(b))
		return
	}
	small.Put((*[smallBuffer]byte)(b))
}
