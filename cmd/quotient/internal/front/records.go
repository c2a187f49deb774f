package front

import (
	"net"

	"github.com/quotient-go/quotient/internal/held"
)

// recordBytes is more than a record has (RFC 8446, 5.2), which is all that a connection keeps of data.
const recordBytes = 20 << 10

// records is what TLS reads. Package crypto/tls puts the messages of a handshake together, and can be sent one at
// any time.
type records struct {
	net.Conn
	share *held.Share
	read  int   // since the last data
	taken int64 // for it
}

// Read takes room for what is more than one record without data in it.
func (r *records) Read(p []byte) (int, error) {
	if free := recordBytes - r.read; free > 0 {
		p = p[:min(len(p), free)] // crypto/tls reads ahead of its record
	}
	n, err := r.Conn.Read(p)
	if r.read += n; r.read > recordBytes {
		if !r.share.Take(byteCost * int64(n)) {
			return 0, errNoRoom
		}
		r.taken += byteCost * int64(n)
	}
	return n, err
}

// rest gives it back: there is data, or the end.
func (r *records) rest() {
	r.share.Give(r.taken)
	r.read, r.taken = 0, 0
}
