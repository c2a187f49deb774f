package admin

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"time"
	"weak"

	"github.com/quotient-go/quotient"
)

// mostOverrides is how many overrides a state shows. A limiter may have as many as half its keys, and the
// state is sent once a second.
const mostOverrides = 1000

// seen is what a handler remembers of the limiters that it has shown. It keeps none of them alive: weak pointers of two
// limiters differ even when the second one was made where the first one had been. The zero value is ready.
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

func firstOverrides(all map[string]quotient.KeyLimit) []OverrideState {
	keys := slices.Sorted(maps.Keys(all))
	keys = keys[:min(len(keys), mostOverrides)]
	list := make([]OverrideState, 0, len(keys))
	for _, key := range keys {
		list = append(list, newOverrideState(key, all[key]))
	}
	return list
}

func newOverrideState(key string, own quotient.KeyLimit) OverrideState {
	s := OverrideState{Key: key, KeyBase64: inBase64(key), Limit: newLimitState(own.Limit), Until: own.Until}
	if own.Then != nil {
		s.Then = new(newLimitState(*own.Then))
	}
	return s
}

// etag is the tag of a limiter's configuration. The first part stands for the handler, the name and the limiter itself.
// So another limiter under the same name has other tags, and a tag that was sent before a restart matches nothing.
func (h *handler) etag(name string, l *quotient.Limiter, version uint64) string {
	return h.tag(name, h.seen.number(l), version)
}

// tag is the tag of a version of what a name and a number stand for. A tag of another process matches nothing.
func (h *handler) tag(name string, number, version uint64) string {
	instance := maphash.Comparable(h.seed, struct {
		name   string
		number uint64
	}{name, number})
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

const (
	// scanFresh is how long the answer of a scan also serves others who ask the same.
	scanFresh = time.Second
	// mostScans is how many answers are kept. Some operators look at some limiters, all with the page's number of keys.
	mostScans = 16
)

// scans are the looks at all keys of a limiter that GET /keys takes: one at a time, so that no number of
// clients slows the limiters down.
type scans struct {
	place chan struct{} // full while one is under way; what follows belongs to the goroutine that has put something in
	done  map[scan]found
}

// scan is what was asked for.
type scan struct {
	limiter   uint64 // its number
	top       int
	byRefused bool
}

// found is what a scan came to.
type found struct {
	at   time.Time
	keys []quotient.KeyState
}

// top is topKeys, not older than scanFresh. It fails only with the context, while it waits for another scan. The caller
// must not change the list.
func (s *scans) top(
	ctx context.Context, number uint64, l *quotient.Limiter, n int, byRefused bool,
) ([]quotient.KeyState, error) {
	select {
	case s.place <- struct{}{}:
		defer func() { <-s.place }()
	case <-ctx.Done():
	}
	if err := ctx.Err(); err != nil { // a client that has gone needs no scan, also when it was its turn
		return nil, err
	}
	what := scan{number, n, byRefused}
	if f, ok := s.done[what]; ok && time.Since(f.at) < scanFresh {
		return f.keys, nil
	}
	keys := topKeys(l, n, byRefused)
	maps.DeleteFunc(s.done, func(_ scan, f found) bool { return time.Since(f.at) >= scanFresh })
	if len(s.done) >= mostScans {
		clear(s.done)
	}
	s.done[what] = found{time.Now(), keys}
	return keys, nil
}

// topKeys returns the n keys with the most callers waiting, then those that have used the most of a rule, then by name.
// If byRefused, those with the most calls refused in the last minute are before them.
func topKeys(l *quotient.Limiter, n int, byRefused bool) (top []quotient.KeyState) {
	before := func(a, b quotient.KeyState) int {
		refused := 0
		if byRefused {
			refused = cmp.Compare(b.Refused, a.Refused)
		}
		return cmp.Or(
			refused, cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.Used, a.Used), cmp.Compare(a.Key, b.Key))
	}
	cut := func() {
		slices.SortFunc(top, before)
		clear(top[min(n, len(top)):])
		top = top[:min(n, len(top))]
	}
	for k := range l.Keys() {
		if top = append(top, k); len(top) >= 2*n+1000 {
			cut()
		}
	}
	cut()
	return top
}
