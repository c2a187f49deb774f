package fairshare

import (
	"cmp"
	"slices"
)

// Busiest are about the keys that were held back the most of late. Each has one of a few places by its hash. A key
// that takes the place of another must have been held back more often, as in the majority vote of Boyer and Moore
// (1981). The zero value has none.
type Busiest [8]Held

// Held is a key, and by how much more often than others it was held back.
type Held struct {
	Key string
	n   int
}

// Note counts that a key was held back.
func (b *Busiest) Note(key string, hash uint32) {
	switch p := &b[hash%uint32(len(b))]; {
	case p.n == 0:
		*p = Held{key, 1}
	case p.Key == key:
		p.n++
	default:
		p.n--
	}
}

// Most returns those of several lists that were noted at all, the most first.
func Most(lists ...Busiest) (all []Held) {
	for _, b := range lists {
		for _, h := range b {
			if h.n > 0 {
				all = append(all, h)
			}
		}
	}
	slices.SortFunc(all, func(a, b Held) int { return cmp.Or(b.n-a.n, cmp.Compare(a.Key, b.Key)) })
	return all
}
