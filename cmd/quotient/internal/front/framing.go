package front

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/quotient-go/quotient/internal/held"
)

// framing follows the requests of an HTTP/1 connection as their bytes come, before http.ReadRequest has them. It
// refuses what two servers could take for two different requests. ReadRequest takes a bare LF for the end of a line,
// joins folded lines, drops one of two lengths, and ignores Transfer-Encoding in HTTP/1.0. framing knows where a
// request ends, so that it also sees the next one. The last byte of a head that is refused is never passed on.
type framing struct {
	h2     bool // a connection may begin with the preface of HTTP/2
	onlyH2 bool // and must
	off    bool // the rest is none of our business: HTTP/2, or upgraded
	err    error

	share   *held.Share // of the connection
	streams *streams    // of it, for HTTP/2
	frames  *frames     // nil before
	cost    int64       // of the head and the trailer of the request that is being read
	before  int64       // of those that were read before and are not over
	whole   []int64     // of each of these
	taken   int64       // of both, from share

	state state
	left  uint64 // of a body or a chunk, in bytes
	line  []byte // that has begun in an earlier read, without the middle of a long one
	long  bool   // that has more than maxKept bytes
	head  head
	later bool // a request has come on this connection
	size  int  // of the head, in bytes
	most  int  // that it may have
}

// head is what counts of the request whose head is being read.
type head struct {
	old       bool   // HTTP/1.0
	length    uint64 // of its body
	lengths   int    // Content-Length fields
	codings   int    // Transfer-Encoding fields
	odd       bool   // one that is not chunked
	hosts     int    // Host fields
	authority []byte // of a target in absolute form; nil: it is another
	fields    int    // of the trailer, too
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

const (
	// maxKept bounds what is kept of a line, in bytes: its first ones and, of these, lastKept of its end. A method, an
	// authority, the name of a field, and any value that says how to read a request, end within them.
	maxKept  = 2 << 10
	lastKept = 16
	// byteCost is what net/http and the proxy keep for a byte of a head: the line as it grows, its text, and that
	// decoded. fieldCost is what they keep for a field beside its bytes.
	byteCost  = 3
	fieldCost = 256
	// step is how much room is taken at a time. The first does not count.
	step = 8 << 10
)

var (
	errLineEnd   = errors.New("front: a line does not end in CRLF, or has a CR in it")
	errFolded    = errors.New("front: a folded field")
	errVersion   = errors.New("front: the version is neither HTTP/1.1 nor HTTP/1.0")
	errRequest   = errors.New("front: a malformed request line")
	errField     = errors.New("front: a line that is no field")
	errTwoLength = errors.New("front: more than one length, or none that is a number")
	errCoding    = errors.New("front: a Transfer-Encoding other than chunked")
	errCodingOld = errors.New("front: Transfer-Encoding in HTTP/1.0")
	errAuthority = errors.New("front: the target and Host differ")
	errChunk     = errors.New("front: a malformed chunk")
	errTrailer   = errors.New("front: a field that must not stand in a trailer")
	errLong      = errors.New("front: a line that is too long where it has to be short")
	errMany      = errors.New("front: too many fields")
	errNoRoom    = fmt.Errorf("front: %w", held.ErrNoRoom)
)

// preface is the first line of HTTP/2, and prefaceRest the others.
const (
	preface     = "PRI * HTTP/2.0\r\n"
	prefaceRest = "\r\nSM\r\n\r\n"
)

// inBody reports whether the next bytes are of a body.
func (f *framing) inBody() bool { return !f.off && f.state >= inBody }

// inHead reports whether a head has begun, and is not whole.
func (f *framing) inHead() bool { return f.state == inFields || f.state == atStart && len(f.line) > 0 }

// check looks at the first n bytes of p, which have come now, and lowers n to those that may be passed on. Its error
// is for when none is left, and f.err for the reads after this.
func (f *framing) check(p []byte, n *int) error {
	i := 0
	for i < *n && !f.off {
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
		part := p[i : i+end+1]
		if end < 0 {
			part = p[i:*n]
		}
		if err := f.readPart(part, end >= 0); err != nil {
			return f.refuse(n, i, err)
		}
		i += len(part)
	}
	if f.frames != nil {
		if err := f.frames.check(p[i:*n]); err != nil {
			return f.refuse(n, i, err)
		}
	}
	return nil
}

// readPart reads a part of a line, which may be all of it.
func (f *framing) readPart(part []byte, ends bool) error {
	if f.state <= inFields {
		if f.size += len(part); f.size > f.most {
			return errLong
		}
	}
	if !f.holds(part) {
		return errNoRoom
	}
	if !ends {
		return f.keep(part)
	}
	line := part
	if len(f.line) > 0 {
		f.line = append(f.line, part...)
		line = f.line
	}
	f.long = f.long || len(line) > maxKept
	err := f.read(line)
	f.long = false
	if f.line = f.line[:0]; f.state == atStart || cap(f.line) > maxKept {
		f.line = nil
	}
	return err
}

// keep keeps a part of a line that goes on. What is left out of a long one is looked at before: it has no CR, and a
// space in a request line stays.
func (f *framing) keep(part []byte) error {
	if len(f.line)+len(part) <= maxKept {
		f.line = append(f.line, part...)
		return nil
	}
	f.long = true
	whole := slices.Concat(f.line, part)
	first, end := whole[:maxKept-lastKept], whole[len(whole)-lastKept:]
	middle := whole[len(first) : len(whole)-lastKept]
	if bytes.IndexByte(middle, '\r') >= 0 {
		return errLineEnd
	}
	f.line = append(f.line[:0], first...)
	if bytes.IndexByte(middle, ' ') >= 0 {
		f.line = append(f.line, ' ')
	}
	f.line = append(f.line, end...)
	return nil
}

// holds takes room for a part of a line, if others keep it.
func (f *framing) holds(part []byte) bool {
	switch f.state {
	case atChunk, afterData:
		return true
	case inFields, inTrailer:
		if len(f.line) == 0 {
			f.cost += fieldCost
		}
	}
	f.cost += byteCost * int64(len(part))
	more := (f.before+f.cost)/step*step - f.taken
	if more > 0 && !f.share.Take(more) {
		return false
	}
	f.taken += more
	return true
}

// ends notes the end of a request. What follows with its last bytes is of another one.
func (f *framing) ends() {
	f.state = atStart
	f.before += f.cost
	f.whole = append(f.whole, f.cost)
	f.cost, f.size = 0, 0
}

// rest gives the room back that the first request had, when it is over. Others may have been read with it: at most
// 4 KiB.
func (f *framing) rest() {
	f.before -= f.whole[0]
	f.whole = slices.Delete(f.whole, 0, 1)
	kept := (f.before + f.cost) / step * step
	f.share.Give(f.taken - kept)
	f.taken = kept
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
	f.ends()
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
		f.off, f.frames = true, &frames{streams: f.streams, left: len(prefaceRest)}
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
	if !ok || len(method) == 0 || len(method) > maxKept/4 || len(target) == 0 {
		return errRequest
	}
	f.head = head{old: string(version) == "HTTP/1.0"}
	if !f.head.old && string(version) != "HTTP/1.1" {
		return errVersion
	}
	if err := f.absolute(target); err != nil {
		return err
	}
	f.later = true
	f.state = inFields
	return nil
}

// absolute notes the authority of a target that has one.
func (f *framing) absolute(target []byte) error {
	if target[0] == '/' || target[0] == '*' {
		return nil
	}
	_, after, ok := bytes.Cut(target, []byte("://"))
	if !ok && f.long {
		return errLong
	}
	if !ok {
		return nil
	}
	authority := after
	if end := bytes.IndexAny(after, "/?#"); end >= 0 {
		authority = after[:end]
	}
	if len(target)-len(after)+len(authority) > maxKept/2 {
		return errLong
	}
	f.head.authority = append([]byte{}, authority...)
	return nil
}

func (f *framing) field(text []byte) error {
	if len(text) == 0 {
		return f.headEnds()
	}
	name, value, err := f.split(text)
	if err != nil {
		return err
	}
	h := &f.head
	switch {
	case f.long:
		if is(name, "content-length") || is(name, "transfer-encoding") || is(name, "host") {
			return errLong
		}
	case is(name, "content-length"):
		h.lengths++
		if h.length, err = decimal(value); err != nil || h.lengths > 1 {
			return errTwoLength
		}
	case is(name, "transfer-encoding"):
		h.codings++
		h.odd = h.odd || h.codings > 1 || !is(value, "chunked")
		if !httpguts.ValidHeaderFieldValue(string(value)) {
			return errField
		}
	case is(name, "host"):
		if h.hosts++; h.hosts > 1 || h.authority != nil && !bytes.EqualFold(value, h.authority) {
			return errAuthority
		}
	}
	return nil
}

// split cuts a field in two. Names with an underscore in place of a hyphen are those of other fields to servers that
// hand them on as variables.
func (f *framing) split(text []byte) (name, value []byte, err error) {
	if f.head.fields++; f.head.fields > maxFields {
		return nil, nil, errMany
	}
	if text[0] == ' ' || text[0] == '\t' {
		return nil, nil, errFolded
	}
	name, value, ok := bytes.Cut(text, []byte(":"))
	if len(name) > maxKept/2 {
		return nil, nil, errLong
	}
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
		return errCoding
	case h.hosts == 0 && !h.old:
		return errAuthority
	case h.codings > 0:
		f.state = atChunk
	case h.length > 0:
		f.state, f.left = inBody, h.length
	default:
		f.ends()
	}
	return nil
}

// chunk reads the size of a chunk. An extension may follow; no server that we know does anything with one.
func (f *framing) chunk(text []byte) error {
	size, extension, _ := bytes.Cut(text, []byte(";"))
	if f.long || len(size) == 0 || len(size) > 15 {
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
		f.ends()
		return nil
	}
	name, _, err := f.split(text)
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
