package dns

import (
	"bytes"
	"testing"
)

// answer is a message with a question for the name and so many A records.
func answer(records int) []byte {
	m := []byte{0x12, 0x34, 0x84, 0x80, 0, 1, byte(records >> 8), byte(records), 0, 0, 0, 0}
	m = append(m, "\x03web\x04test\x00\x00\x01\x00\x01"...)
	for i := range records {
		m = append(m, 0xc0, headerSize, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 10, 0, byte(i>>8), byte(i))
	}
	return m
}

// An answer that lacks its last byte, or any number of bytes, has a flaw; more bytes than it promises are
// none.
func TestFlawOfACutAnswer(t *testing.T) {
	for _, n := range []int{0, 1, 2, 300} {
		whole := answer(n)
		if err := flaw(whole); err != nil {
			t.Errorf("%d records: %v", n, err)
		}
		if err := flaw(append(answer(n), "and more"...)); err != nil {
			t.Errorf("%d records and more: %v", n, err)
		}
		for i := range whole {
			if flaw(whole[:i]) == nil {
				t.Errorf("%d records: no flaw in the first %d of %d bytes", n, i, len(whole))
			}
		}
	}
}

func TestFlawOfACode(t *testing.T) {
	for c := range byte(16) {
		m := answer(1)
		m[codeAt] |= c
		if err := flaw(m); (err == nil) != (c == noError || c == nameError) {
			t.Errorf("code %d: %v", c, err)
		}
	}
}

// FuzzFlaw holds: no message panics; one that is cut has a flaw if it had one before. A message that was
// spoiled is a failure of the server, with its id, its flags and its question, and no record.
func FuzzFlaw(f *testing.F) {
	f.Add(answer(2))
	f.Fuzz(func(t *testing.T, m []byte) {
		had := flaw(m) != nil
		if cut := m[:len(m)-min(1, len(m))]; had && flaw(cut) == nil {
			t.Fatalf("%x has a flaw, and not without its last byte", m)
		}
		was := bytes.Clone(m)
		spoil(m)
		if len(m) < headerSize {
			return
		}
		if !bytes.Equal(m[:codeAt], was[:codeAt]) || !bytes.Equal(m[headerSize:], was[headerSize:]) {
			t.Fatalf("%x becomes %x", was, m)
		}
		if m[codeAt]&codeBits != serverFailure || flaw(m) == nil ||
			!bytes.Equal(m[questionsAt:headerSize], []byte{0, 1, 0, 0, 0, 0, 0, 0}) {
			t.Fatalf("spoiled: %x", m)
		}
	})
}
