package dns

import (
	"errors"
	"fmt"

	"golang.org/x/net/dns/dnsmessage"
)

// Offsets in a message, and bits of its fields (RFC 1035, 4.1), for what is changed in place.
const (
	flagsAt       = 2 // one bit of this byte says truncated
	codeAt        = 3 // the lower half of this byte is the code
	questionsAt   = 4
	headerSize    = 12
	truncationBit = 0x02
	codeBits      = 0x0f
)

var (
	errTruncated = errors.New("the answer is truncated, over TCP too")
	errCut       = errors.New("the answer does not hold what it promises")
)

func truncated(m []byte) bool { return len(m) > flagsAt && m[flagsAt]&truncationBit != 0 }

// flaw is why a message does not say all that one question asks; nil when it does. Package net would believe the
// other answers, and those records of this one that it can read.
func flaw(m []byte) error {
	var p dnsmessage.Parser
	h, err := p.Start(m)
	if err != nil {
		return errCut
	}
	if h.RCode != dnsmessage.RCodeSuccess && h.RCode != dnsmessage.RCodeNameError {
		return fmt.Errorf("the server answers with code %d", h.RCode)
	}
	if questions, err := p.AllQuestions(); err != nil || len(questions) != 1 {
		return errCut
	}
	for {
		switch _, err := p.AnswerHeader(); {
		case errors.Is(err, dnsmessage.ErrSectionDone):
			return nil
		case err != nil || p.SkipAnswer() != nil:
			return errCut
		}
	}
}

// spoil makes a failure of the server out of an answer that has a flaw. The sender and the question stay.
func spoil(m []byte) {
	if len(m) < headerSize {
		return // package net drops it
	}
	m[codeAt] = m[codeAt]&^codeBits | byte(dnsmessage.RCodeServerFailure)
	clear(m[questionsAt:headerSize])
	m[questionsAt+1] = 1
}
