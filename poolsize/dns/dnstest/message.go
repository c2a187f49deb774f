package dnstest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// Numbers of RFC 1035, 2782 (SRV), 3596 (AAAA) and 6891 (OPT).
const (
	typeA    = 1
	typeAAAA = 28
	typeSRV  = 33
	typeOPT  = 41

	classInternet = 1

	formatError   = 1
	serverFailure = 2
	nameError     = 3

	headerSize = 12
	optSize    = 11 // of an OPT record without options
	maxLabel   = 63
	maxName    = 255 // in a message, with lengths and the root
)

// question is what a client asks.
type question struct {
	id          uint16
	flags       uint16 // those that an answer repeats: opcode and "recursion desired"
	raw         []byte // the question as it came; empty when it could not be read
	name        string // as it came, without the last dot
	kind, class uint16
	edns        bool
	size        int // of the largest datagram that the client takes
}

var (
	errNoQuestion = errors.New("no question") // nothing that may be answered
	errMalformed  = errors.New("malformed")
)

// parseQuestion reads a standard query with one question. After errMalformed the id
// and the flags are right, so that it can be answered; errNoQuestion is not to be answered.
func parseQuestion(m []byte) (question, error) {
	if len(m) < headerSize || m[2]&0x80 != 0 {
		return question{}, errNoQuestion
	}
	q := question{id: binary.BigEndian.Uint16(m), flags: binary.BigEndian.Uint16(m[2:]) & 0x7900, size: minDatagram}
	counts := [4]uint16{}
	for i := range counts {
		counts[i] = binary.BigEndian.Uint16(m[4+2*i:])
	}
	if q.flags&0x7800 != 0 || counts[0] != 1 || counts[1] != 0 || counts[2] != 0 {
		return q, errMalformed
	}
	name, end, ok := readName(m, headerSize)
	if !ok || len(m) < end+4 {
		return q, errMalformed
	}
	q.name, q.raw = name, m[headerSize:end+4]
	q.kind, q.class = binary.BigEndian.Uint16(m[end:]), binary.BigEndian.Uint16(m[end+2:])
	if rest := m[end+4:]; counts[3] > 0 && len(rest) >= optSize && rest[0] == 0 && binary.BigEndian.Uint16(rest[1:]) == typeOPT {
		q.edns = true
		q.size = min(max(int(binary.BigEndian.Uint16(rest[3:])), minDatagram), maxDatagram)
	}
	return q, nil
}

// readName reads the name at an offset and returns the offset behind it. Pointers are not for questions.
func readName(m []byte, at int) (name string, end int, ok bool) {
	var labels []string
	for start := at; at < len(m); {
		n := int(m[at])
		at++
		switch {
		case n == 0:
			return strings.Join(labels, "."), at, at-start <= maxName
		case n > maxLabel || at+n > len(m):
			return "", 0, false
		}
		labels = append(labels, string(m[at:at+n]))
		at += n
	}
	return "", 0, false
}

// appendName appends a name as a message holds it. "" and "." are the root.
func appendName(b []byte, name string) ([]byte, error) {
	start := len(b)
	if rest := strings.TrimSuffix(name, "."); rest != "" {
		for label := range strings.SplitSeq(rest, ".") {
			if label == "" || len(label) > maxLabel {
				return b[:start], fmt.Errorf("name %q: a label of %d bytes, not of 1 to %d", name, len(label), maxLabel)
			}
			b = append(append(b, byte(len(label))), label...)
		}
	}
	if b = append(b, 0); len(b)-start > maxName {
		return b[:start], fmt.Errorf("name %q: %d bytes are above %d", name, len(b)-start, maxName)
	}
	return b, nil
}

// reply is an answer to be written.
type reply struct {
	q         question
	limit     int // of the message, in bytes
	code      uint16
	truncated bool
	records   [][]byte // data of records of the kind that was asked for
}

// Flags of an answer: it is one, the server speaks for the name, and recursion is available.
const (
	flagAnswer    = 0x8480
	flagTruncated = 0x0200
)

// message writes the answer. Records that do not fit are left out, and the message has the mark of a truncated one.
func (a reply) message() []byte {
	room := a.limit - headerSize - len(a.q.raw) - optSize
	var body []byte
	n := 0
	for _, data := range a.records {
		record := append(a.head(len(data)), data...)
		if len(body)+len(record) > room {
			a.truncated = true
			break
		}
		body = append(body, record...)
		n++
	}
	m := append(a.header(n), body...)
	if a.q.edns {
		m = append(m, 0, 0, typeOPT, maxDatagram>>8, maxDatagram&0xff, 0, 0, 0, 0, 0, 0)
	}
	return m
}

// header is the header and the question of an answer with n records.
func (a reply) header(n int) []byte {
	flags := a.q.flags | flagAnswer | a.code
	if a.truncated {
		flags |= flagTruncated
	}
	questions, additional := uint16(0), uint16(0)
	if len(a.q.raw) > 0 {
		questions = 1
	}
	if a.q.edns {
		additional = 1
	}
	var m []byte
	for _, v := range []uint16{a.q.id, flags, questions, uint16(n), 0, additional} {
		m = binary.BigEndian.AppendUint16(m, v)
	}
	return append(m, a.q.raw...)
}

// head is a record up to its data: a pointer to the name of the question, type, class, no time to live.
func (a reply) head(size int) []byte {
	b := []byte{0xc0, headerSize}
	b = binary.BigEndian.AppendUint16(b, a.q.kind)
	b = binary.BigEndian.AppendUint16(b, a.q.class)
	b = binary.BigEndian.AppendUint32(b, 0)
	return binary.BigEndian.AppendUint16(b, uint16(size))
}

// garbage promises three records, and there is no record in it.
func (a reply) garbage() []byte {
	a.q.edns = false
	return append(a.header(3), 0xff, 0xff, 0xff, 0xff, 0xff)
}
