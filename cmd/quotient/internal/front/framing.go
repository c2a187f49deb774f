package front

import (
	"bytes"
	"errors"
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// framing follows the requests of an HTTP/1 connection as their bytes come, before net/http reads them. It refuses
// what two servers could take for two different requests. Left to itself net/http takes a bare LF for the end of a
// line, joins folded lines, drops one of two lengths, and ignores Transfer-Encoding in HTTP/1.0. framing knows where a
// request ends, so that it also sees the next one. The last byte of a head that is refused is never passed on.
//
// All other requests are read by net/http as always, with checks of its own.
type framing struct {
	h2     bool // a connection may begin with the preface of HTTP/2
	onlyH2 bool // and must
	off    bool // the rest is none of our business: HTTP/2, upgraded, or net/http will end it
	err    error

	state state
	left  uint64 // of a body or a chunk, in bytes
	line  []byte // that has begun in an earlier read
	head  head
	later bool // a request has come on this connection
}

// head is what counts of the request whose head is being read.
type head struct {
	old       bool   // HTTP/1.0
	length    uint64 // of its body
	lengths   int    // Content-Length fields
	codings   int    // Transfer-Encoding fields
	odd       bool   // one that is not chunked: net/http answers 501
	authority []byte // of a target in absolute form; nil: it is another
}

type state int

const (
	atStart   state = iota // of a request
	inFields               // of a head
	inBody                 // of so many bytes
	atChunk                // its size
	inChunk                // so many bytes
	afterData              // the line end after a chunk
	inTrailer
)

// maxLine bounds what is kept of a line. net/http reads no head that is longer, if its own bound is not: such a line
// is refused by its length anyway.
const maxLine = 1 << 20

var (
	errLineEnd   = errors.New("front: a line does not end in CRLF, or has a CR in it")
	errFolded    = errors.New("front: a folded field")
	errVersion   = errors.New("front: the version is neither HTTP/1.1 nor HTTP/1.0")
	errRequest   = errors.New("front: a malformed request line")
	errField     = errors.New("front: a line that is no field")
	errTwoLength = errors.New("front: more than one length, or none that is a number")
	errCodingOld = errors.New("front: Transfer-Encoding in HTTP/1.0")
	errAuthority = errors.New("front: the target and Host differ")
	errChunk     = errors.New("front: a malformed chunk")
	errTrailer   = errors.New("front: a field that must not stand in a trailer")
	errLong      = errors.New("front: a line that is too long")
)

const preface = "PRI * HTTP/2.0\r\n"

// inBody reports whether the next bytes are of a body.
func (f *framing) inBody() bool { return !f.off && f.state >= inBody }

// check looks at the first n bytes of p, which have come now, and lowers n to those that may be passed on. Its error
// is for when none is left, and f.err for the reads after this.
func (f *framing) check(p []byte, n *int) error {
	for i := 0; i < *n && !f.off; {
		if f.state == inBody || f.state == inChunk {
			take := min(f.left, uint64(*n-i))
			f.left -= take
			i += int(take)
			if f.left == 0 {
				f.dataEnds()
			}
			continue
		}
		end := bytes.IndexByte(p[i:*n], '\n')
		if end < 0 {
			if len(f.line)+*n-i > maxLine {
				return f.refuse(n, i, errLong)
			}
			f.line = append(f.line, p[i:*n]...)
			break
		}
		line := p[i : i+end+1]
		if len(f.line) > 0 {
			f.line = append(f.line, line...)
			line = f.line
		}
		before := f.state
		if err := f.read(line); err != nil {
			if before == atStart { // net/http answers only if something has come
				i += end
			}
			return f.refuse(n, i, err)
		}
		f.line = f.line[:0]
		i += end + 1
	}
	if f.state == atStart && len(f.line) == 0 {
		f.line = nil
	}
	return nil
}

func (f *framing) refuse(n *int, passed int, err error) error {
	*n, f.err = passed, err
	return err
}

func (f *framing) dataEnds() {
	if f.state == inChunk {
		f.state = afterData
		return
	}
	f.state = atStart
}

func (f *framing) read(line []byte) error {
	if len(line) < 2 || line[len(line)-2] != '\r' || bytes.IndexByte(line, '\r') != len(line)-2 {
		return errLineEnd
	}
	text := line[:len(line)-2]
	switch f.state {
	case atStart:
		return f.requestLine(line, text)
	case inFields:
		return f.field(text)
	case atChunk:
		return f.chunk(text)
	case afterData:
		f.state = atChunk
		if len(text) > 0 {
			return errChunk
		}
	case inTrailer:
		return f.trailer(text)
	}
	return nil
}

func (f *framing) requestLine(line, text []byte) error {
	if f.h2 && !f.later && string(line) == preface {
		f.off = true
		return nil
	}
	if f.onlyH2 {
		return errBadPreface
	}
	if len(text) == 0 && f.later { // some clients send one more line end after a body
		return nil
	}
	method, rest, _ := bytes.Cut(text, []byte(" "))
	target, version, ok := bytes.Cut(rest, []byte(" "))
	if !ok || len(method) == 0 || len(target) == 0 {
		return errRequest
	}
	f.head = head{old: string(version) == "HTTP/1.0"}
	if !f.head.old && string(version) != "HTTP/1.1" {
		return errVersion
	}
	if _, after, ok := bytes.Cut(target, []byte("://")); ok && target[0] != '/' && target[0] != '*' {
		authority := after
		if end := bytes.IndexAny(after, "/?#"); end >= 0 {
			authority = after[:end]
		}
		f.head.authority = append([]byte{}, authority...)
	}
	f.later = true
	f.state = inFields
	return nil
}

func (f *framing) field(text []byte) error {
	if len(text) == 0 {
		return f.headEnds()
	}
	name, value, err := split(text)
	if err != nil {
		return err
	}
	h := &f.head
	switch {
	case is(name, "content-length"):
		h.lengths++
		if h.length, err = decimal(value); err != nil || h.lengths > 1 {
			return errTwoLength
		}
	case is(name, "transfer-encoding"):
		h.codings++
		h.odd = h.odd || h.codings > 1 || !is(value, "chunked")
	case is(name, "host") && h.authority != nil && !bytes.EqualFold(value, h.authority):
		return errAuthority
	}
	return nil
}

// split cuts a field in two. Names with an underscore in place of a hyphen are those of other fields to servers that
// hand them on as variables.
func split(text []byte) (name, value []byte, err error) {
	if text[0] == ' ' || text[0] == '\t' {
		return nil, nil, errFolded
	}
	name, value, ok := bytes.Cut(text, []byte(":"))
	if !ok || is(name, "content_length") || is(name, "transfer_encoding") {
		return nil, nil, errField
	}
	return name, bytes.Trim(value, " \t"), nil
}

func is(text []byte, lower string) bool {
	return len(text) == len(lower) && strings.EqualFold(string(text), lower)
}

func decimal(text []byte) (n uint64, err error) {
	if len(text) == 0 || len(text) > 18 {
		return 0, errTwoLength
	}
	for _, d := range text {
		if d < '0' || d > '9' {
			return 0, errTwoLength
		}
		n = n*10 + uint64(d-'0')
	}
	return n, nil
}

func (f *framing) headEnds() error {
	h := &f.head
	switch {
	case h.codings > 0 && h.old:
		return errCodingOld
	case h.codings > 0 && h.lengths > 0:
		return errTwoLength
	case h.odd:
		f.off = true
	case h.codings > 0:
		f.state = atChunk
	case h.length > 0:
		f.state, f.left = inBody, h.length
	default:
		f.state = atStart
	}
	return nil
}

// chunk reads the size of a chunk. An extension may follow; no server that we know does anything with one.
func (f *framing) chunk(text []byte) error {
	size, extension, _ := bytes.Cut(text, []byte(";"))
	if len(size) == 0 || len(size) > 15 {
		return errChunk
	}
	for _, b := range extension {
		if b < ' ' && b != '\t' || b >= 0x7f {
			return errChunk
		}
	}
	f.left = 0
	for _, d := range size {
		v := bytes.IndexByte([]byte("0123456789abcdef"), d|0x20)
		if v < 0 || d < '0' {
			return errChunk
		}
		f.left = f.left<<4 | uint64(v)
	}
	f.state = inChunk
	if f.left == 0 {
		f.state = inTrailer
	}
	return nil
}

// trailer reads a field after the last chunk. It must not be one of framing, routing or identity: a server that adds
// trailers to the head would believe it.
func (f *framing) trailer(text []byte) error {
	if len(text) == 0 {
		f.state = atStart
		return nil
	}
	name, _, err := split(text)
	if err != nil {
		return err
	}
	if !lateIsFine(string(name)) {
		return errTrailer
	}
	return nil
}

// lateIsFine reports whether a field may stand in a trailer.
func lateIsFine(name string) bool {
	key := http.CanonicalHeaderKey(name)
	return httpguts.ValidTrailerHeader(key) && key != "Connection" && key != "Upgrade" && key != "Cookie" &&
		key != "Forwarded" && key != "X-Real-Ip" && !strings.HasPrefix(key, "X-Forwarded-")
}
