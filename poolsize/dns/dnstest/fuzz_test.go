package dnstest

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"
)

// FuzzAnswer checks that no message panics, and that an answer has the question's id, is marked as an
// answer, and fits. A question that was read stands in it unchanged, and its name can be written again.
func FuzzAnswer(f *testing.F) {
	s := &Server{names: map[string]records{}}
	s.Set("web.test", append(run("10.0.0.1", 100), netip.MustParseAddr("::1"))...)
	f.Add(ask("web.test", typeA, 1232), false, byte(0))
	f.Fuzz(func(t *testing.T, m []byte, stream bool, mode byte) {
		s.Fail(Mode(mode) % Mode(len(modeNames)))
		q, err := parseQuestion(m)
		a := s.answer(m, stream)
		if errors.Is(err, errNoQuestion) || s.mode == Silent {
			if a != nil {
				t.Fatalf("answer %x to no question", a)
			}
			return
		}
		limit := limit(q, s.mode, stream)
		if len(a) < headerSize || len(a) > limit || a[2]&0x80 == 0 ||
			binary.BigEndian.Uint16(a) != binary.BigEndian.Uint16(m) {
			t.Fatalf("answer %x to %x, limit %d", a, m, limit)
		}
		if err != nil {
			if a[3]&15 != formatError || binary.BigEndian.Uint16(a[4:]) != 0 {
				t.Fatalf("answer %x to a malformed question", a)
			}
			return
		}
		if got := a[headerSize : headerSize+len(q.raw)]; string(got) != string(q.raw) ||
			q.size < minDatagram || q.size > maxDatagram {
			t.Fatalf("question %x comes back as %x, size %d", q.raw, got, q.size)
		}
	})
}
