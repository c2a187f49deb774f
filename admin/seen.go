package admin

import (
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"weak"

	"github.com/quotient-go/quotient"
)

// mostOverrides is how many overrides a state shows. A limiter may have as many as half its keys, and the
// state is sent once a second.
const mostOverrides = 1000

// seen is what a handler remembers of the limiters that it has shown. It keeps none of them alive: weak
// pointers of two limiters differ even when the second one was made where the first one had been. The zero
// value is ready.
type seen struct {
	mu   sync.Mutex
	last uint64 // number given
	of   map[weak.Pointer[quotient.Limiter]]*sight
}

// sight is what is remembered of one limiter.
type sight struct {
	number    uint64 // no other limiter of the handler has had it
	overrides []OverrideState
	count     int    // of all overrides
	version   uint64 // of the limiter when they were read
	read      bool
}

// at returns what is remembered of l. Call it with s.mu held.
func (s *seen) at(l *quotient.Limiter) *sight {
	p := weak.Make(l)
	if known, ok := s.of[p]; ok {
		return known
	}
	if s.of == nil {
		s.of = make(map[weak.Pointer[quotient.Limiter]]*sight)
	}
	maps.DeleteFunc(s.of, func(p weak.Pointer[quotient.Limiter], _ *sight) bool { return p.Value() == nil })
	s.last++
	s.of[p] = &sight{number: s.last}
	return s.of[p]
}

// number identifies l among all limiters that the handler has ever seen.
func (s *seen) number(l *quotient.Limiter) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at(l).number
}

// overridesOf returns the first overrides of l by key, and how many there are. It looks at all of them only
// when the configuration has changed. The version was read before: a change in between makes the list newer
// than its version, and it is read again. The caller must not change the list.
func (s *seen) overridesOf(l *quotient.Limiter, version uint64) ([]OverrideState, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.at(l)
	if !known.read || known.version != version {
		all := l.Overrides()
		known.overrides, known.count, known.version, known.read = firstOverrides(all), len(all), version, true
	}
	return known.overrides, known.count
}

func firstOverrides(all map[string]quotient.Limit) []OverrideState {
	keys := slices.Sorted(maps.Keys(all))
	keys = keys[:min(len(keys), mostOverrides)]
	list := make([]OverrideState, 0, len(keys))
	for _, key := range keys {
		list = append(list, OverrideState{Key: key, KeyBase64: inBase64(key), Limit: newLimitState(all[key])})
	}
	return list
}

// etag is the tag of a limiter's configuration. The first part stands for the handler, the name and the
// limiter itself. So another limiter under the same name has other tags, and a tag that was sent before a
// restart matches nothing.
func (h *handler) etag(name string, l *quotient.Limiter, version uint64) string {
	instance := maphash.Comparable(h.seed, struct {
		name   string
		number uint64
	}{name, h.seen.number(l)})
	return fmt.Sprintf(`"%016x-%d"`, instance, version)
}

// tagOf is the tag of a choice, "" when it is not of one limiter.
func (h *handler) tagOf(chosen map[string]*quotient.Limiter) string {
	if len(chosen) != 1 {
		return ""
	}
	name, l := only(chosen)
	return h.etag(name, l, l.Stats().Version)
}
