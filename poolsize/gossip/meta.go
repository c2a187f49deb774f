package gossip

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// metaVersion is the first byte of what a replica says of itself to all others. A version that cannot be
// read by this one has another.
const metaVersion = 1

// Fields of a meta: a tag, a length of one byte, and so many bytes. Unknown ones are skipped, so that a
// later version can say more.
const (
	tagID      = 1 // eight bytes, big-endian
	tagWeight  = 2 // a varint
	tagSettled = 3 // nothing
	tagLeaving = 4 // nothing
)

// meta is what a replica says of itself.
type meta struct {
	id      uint64 // random at each start; 0: none
	weight  int    // 1 to 1,000
	settled bool   // its start is over
	leaving bool   // it is about to go
}

func (m meta) encode() []byte {
	b := binary.BigEndian.AppendUint64([]byte{metaVersion, tagID, 8}, m.id)
	if m.weight > 1 {
		w := binary.AppendUvarint(nil, uint64(m.weight))
		b = append(append(b, tagWeight, byte(len(w))), w...)
	}
	if m.settled {
		b = append(b, tagSettled, 0)
	}
	if m.leaving {
		b = append(b, tagLeaving, 0)
	}
	return b
}

// parseMeta reads a meta. One of another version is a replica too, which counts as one and has no number.
func parseMeta(b []byte) (meta, error) {
	m := meta{weight: 1}
	if len(b) == 0 {
		return meta{}, errors.New("an empty meta")
	}
	if b[0] != metaVersion {
		return m, nil
	}
	for b = b[1:]; len(b) > 0; {
		if len(b) < 2 || len(b) < 2+int(b[1]) {
			return meta{}, errors.New("a meta that is cut")
		}
		tag, value := b[0], b[2:2+int(b[1])]
		b = b[2+int(b[1]):]
		if err := m.set(tag, value); err != nil {
			return meta{}, err
		}
	}
	return m, nil
}

func (m *meta) set(tag byte, value []byte) error {
	switch tag {
	case tagID:
		if len(value) != 8 {
			return fmt.Errorf("a number of %d bytes", len(value))
		}
		m.id = binary.BigEndian.Uint64(value)
	case tagWeight:
		w, n := binary.Uvarint(value)
		if n != len(value) || w < 1 || w > mostWeight {
			return fmt.Errorf("weight %d", w)
		}
		m.weight = int(w)
	case tagSettled:
		m.settled = true
	case tagLeaving:
		m.leaving = true
	}
	return nil
}
