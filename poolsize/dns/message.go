package dns

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Offsets in a message, and values of its fields (RFC 1035, 4.1).
const (
	flagsAt       = 2 // one bit of this byte says truncated
	codeAt        = 3 // the lower half of this byte is the code
	questionsAt   = 4
	answersAt     = 6
	headerSize    = 12
	questionSize  = 4  // behind the name
	recordSize    = 10 // behind the name, before the data
	lengthAt      = 8  // of the data, behind the name
	truncationBit = 0x02
	codeBits      = 0x0f
	noError       = 0
	serverFailure = 2
	nameError     = 3
	maxLabel      = 63
	pointerBits   = 0xc0
)

var (
	errTruncated = errors.New("the answer is truncated, over TCP too")
	errCut       = errors.New("the answer does not hold what it promises")
)

// truncated reports whether a message is marked as truncated.
func truncated(m []byte) bool { return len(m) > flagsAt && m[flagsAt]&truncationBit != 0 }

// flaw is why a message does not say all that one question asks; nil when it does. Package net would believe the other
// answers, and those records of this one that it can read.
func flaw(m []byte) error {
	if len(m) < headerSize {
		return errCut
	}
	if code := m[codeAt] & codeBits; code != noError && code != nameError {
		return fmt.Errorf("the server answers with code %d", code)
	}
	if binary.BigEndian.Uint16(m[questionsAt:]) != 1 {
		return errCut
	}
	at := skipName(m, headerSize) + questionSize
	for range binary.BigEndian.Uint16(m[answersAt:]) {
		if at = skipName(m, at); at+recordSize > len(m) {
			return errCut
		}
		at += recordSize + int(binary.BigEndian.Uint16(m[at+lengthAt:]))
	}
	if at > len(m) {
		return errCut
	}
	return nil
}

// skipName is where the name at an offset ends: beyond the message when it does not end or is no name. A pointer,
// which ends a name, leads back.
func skipName(m []byte, at int) int {
	for at < len(m) {
		n := int(m[at])
		switch {
		case n == 0:
			return at + 1
		case n <= maxLabel:
			at += 1 + n
		case n < pointerBits || at+1 == len(m) || int(binary.BigEndian.Uint16(m[at:])&^(pointerBits<<8)) >= at:
			return len(m) + 1
		default:
			return at + 2
		}
	}
	return len(m) + 1
}

// spoil makes a failure of the server out of an answer that has a flaw. The sender and the question stay.
func spoil(m []byte) {
	if len(m) < headerSize {
		return // package net drops it
	}
	m[codeAt] = m[codeAt]&^codeBits | serverFailure
	clear(m[questionsAt:headerSize])
	m[questionsAt+1] = 1
}
