package admin

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"hash/crc32"
	"net/http"
	"strconv"
	"strings"
)

// shortestPacked is the length, in bytes, from which an answer is compressed.
const shortestPacked = 4 << 10

// takesGzip reports whether the client accepts gzip by its name.
func takesGzip(r *http.Request) bool {
	for _, one := range strings.Split(strings.Join(r.Header.Values("Accept-Encoding"), ","), ",") {
		coding, weight, weighted := strings.Cut(strings.ToLower(one), ";")
		if strings.TrimSpace(coding) != "gzip" {
			continue
		}
		_, q, _ := strings.Cut(weight, "=")
		n, err := strconv.ParseFloat(strings.TrimSpace(q), 64)
		return !weighted || err == nil && n > 0
	}
	return false
}

// pack compresses a long body for a client that accepts gzip, and sets the header field for it.
func pack(w http.ResponseWriter, r *http.Request, body []byte) []byte {
	if len(body) < shortestPacked || !takesGzip(r) {
		return body
	}
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed) // the level is valid, and a buffer takes everything
	_, _ = z.Write(body)
	_ = z.Close()
	w.Header().Set("Content-Encoding", "gzip")
	return b.Bytes()
}

// A text is what a stream sends. All streams share it, and so they share its compression: packed refers to
// nothing before it, and ends at the border of a byte.
type text struct{ plain, packed []byte }

// gzipHead is the header of a gzip stream without a name and a time (RFC 1952).
const gzipHead = "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"

// gzipSum is what the end of a gzip stream says of all that was in it.
type gzipSum struct{ crc, size uint32 }

func (s *gzipSum) add(plain []byte) {
	s.crc = crc32.Update(s.crc, crc32.IEEETable, plain)
	s.size += uint32(len(plain)) // modulo 1<<32, as the format has it
}

// end returns the end of the stream: an empty last block, and the sum.
func (s *gzipSum) end() []byte {
	b := []byte{1, 0, 0, 0xff, 0xff}
	b = binary.LittleEndian.AppendUint32(b, s.crc)
	return binary.LittleEndian.AppendUint32(b, s.size)
}
