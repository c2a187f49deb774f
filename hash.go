package quotient

import (
	"encoding/binary"
	"math/bits"
	"unsafe"
)

// shardHash chooses a key's shard. It folds eight bytes at a time with a 64 x 64 to 128 bit
// multiplication, as the wyhash family does, under a random seed; for keys of usual length it takes about
// half the time of hash/maphash. All that hangs on it
// is how evenly locks are shared: the map inside a shard has the runtime's own hash.
func shardHash(seed uint64, key string) uint64 {
	const k0, k1 = 0xa0761d6478bd642f, 0xe7037ed1a0b428db // odd, half of the bits set
	b := unsafe.Slice(unsafe.StringData(key), len(key))   // read only, and not kept
	h := seed ^ uint64(len(b))*k0
	for len(b) > 8 {
		h = fold(h^binary.LittleEndian.Uint64(b), k1)
		b = b[8:]
	}
	var last uint64
	if len(b) == 8 {
		last = binary.LittleEndian.Uint64(b)
	} else {
		for i, c := range b {
			last |= uint64(c) << (8 * i)
		}
	}
	return fold(h^last, k0)
}

func fold(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}
