package quotient

import (
	"strings"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// store holds the gates of one shard by key. Idle gates are dropped, others never:
// an idle gate is equal to that of a key never seen, so nobody can tell.
//
// simplelru keeps keys and order. Its Add would drop the oldest unasked, so it is made larger
// than it may ever become, and room is made before adding. A look-up does not move the key
// to the front (that touches three more cache lines); it marks the gate as seen, and whoever
// looks for something to drop turns the gates that were seen to the front: a second chance.
type store struct {
	lru   *simplelru.LRU[string, *gate]
	most  int
	peak  int    // keys since the map was last rebuilt
	pause uint32 // asks from one sweep to the next
	left  uint32 // asks until the next sweep
	ticks uint32 // the time of the last sweep, in 2^30 ns: a coarse clock for gate.seen
	saved int    // looks for an idle key that asks have paid for and nobody has used; see earn
	vain  int    // looks since one was found
	last  lastKey
}

// lastKey is the key looked up last, and its gate: the next ask is often for the same. It has a copy
// of the key, since a string would keep alive whatever the caller has cut it from; longer keys do without.
type lastKey struct {
	gate *gate
	len  int
	name [64]byte
}

func (k *lastKey) is(key string) bool {
	return k.gate != nil && len(key) == k.len && string(k.name[:k.len]) == key
}

func (k *lastKey) set(key string, g *gate) {
	if len(key) <= len(k.name) {
		k.gate, k.len = g, copy(k.name[:], key)
	}
}

// The fewer keys are idle, the longer one looks for them. So asks pay for looks: each for one, and one that
// finds no room for some more. What is not used is saved for asks that need more. All looks together are
// never more than have been paid for, also while all keys are busy and new ones come without end.
const (
	probes     = 6   // looks that an ask without room pays for
	mostLooks  = 512 // of one ask: locks are held meanwhile
	perLook    = 16  // settings that a key has missed cost as much as a look
	neighbours = 3   // that an ask looks at when its own has no idle key
	sweepMost  = 4   // keys dropped by one sweep
	longPause  = 256 // asks between sweeps while there is nothing to drop
	shortPause = 2
	restTicks  = 10  // of 2^30 ns, ten seconds or so: an idle key that was asked since is kept while there is room
	rebuildAt  = 256 // a map that never held more is not worth rebuilding
)

func newStore(most int) store {
	st := store{most: most, pause: shortPause, left: shortPause}
	st.renew()
	return st
}

// renew starts with an empty map: Go's maps keep their memory when they empty.
func (st *store) renew() {
	lru, err := simplelru.NewLRU[string, *gate](st.most+mostOverrides(st.most)+1, nil)
	if err != nil {
		panic(err) // only for a size below 1, which New has refused
	}
	st.lru, st.peak = lru, 0
}

func (st *store) get(key string) *gate {
	g, ok := st.lru.Peek(key)
	if !ok {
		return nil
	}
	st.last.set(key, g)
	return g
}

// add puts a key in that is not there. The key is copied, so that it keeps nothing else alive.
func (st *store) add(key string, g *gate) {
	st.lru.Add(strings.Clone(key), g)
	st.last.set(key, g)
	st.peak = max(st.peak, st.lru.Len())
}

// evictOne drops one of the oldest keys that may go, and tells whether it found one.
// It looks at so many and turns those that stay to the front.
func (st *store) evictOne(looks int, mayGo func(*gate) bool) bool {
	for range min(looks, st.lru.Len()) {
		key, g, _ := st.lru.GetOldest()
		if mayGo(g) {
			st.drop(g)
			return true
		}
		st.lru.Get(key)
	}
	return false
}

// drop removes the oldest, which is g.
func (st *store) drop(g *gate) {
	st.lru.RemoveOldest()
	if st.last.gate == g {
		st.last.gate = nil
	}
	if st.peak > rebuildAt && st.lru.Len() < st.peak/4 {
		st.rebuild()
	}
}

// rebuild moves the keys that are left into a new map.
func (st *store) rebuild() {
	old := st.lru
	st.renew()
	for _, key := range old.Keys() {
		g, _ := old.Peek(key)
		st.lru.Add(key, g)
	}
	st.peak = st.lru.Len()
}

// sweep drops a few keys that have been idle for a while, now and then, so that the map holds
// the keys that are being limited and not all that were ever seen. It looks
// often while it finds some, and seldom otherwise.
func (s *shard) sweep() {
	s.earn(int(s.pause))
	if s.dropRested()+s.l.sweepNext(s) > 0 {
		s.pause = shortPause
	} else {
		s.pause = min(2*s.pause, longPause)
	}
	s.left = s.pause
}

// sweepNext does the same in another shard, each in its turn, which may have no asks of its own. A shard that is
// in use is left out, so that no two wait for each other.
func (l *Limiter) sweepNext(but *shard) int {
	s := &l.shards[l.broom.Add(1)&l.mask]
	if s == but || !s.mu.TryLock() {
		return 0
	}
	defer s.mu.Unlock()
	return s.dropRested()
}

// dropRested drops the oldest keys that have rested, a few at most, and returns how many.
func (s *shard) dropRested() int {
	now, n := s.tick(s.l.now()), 0
	s.ticks = ticksAt(now.Sub(s.l.base))
	for n < sweepMost && s.evictOne(1, func(g *gate) bool { return s.rested(g, now) }) {
		n, s.vain = n+1, 0
	}
	s.evicted(n)
	return n
}

func ticksAt(at time.Duration) uint32 { return uint32(at >> 30) }

// rested tells that the gate is idle and was not asked of late.
func (s *shard) rested(g *gate, now time.Time) bool {
	return s.ticks-g.seen >= restTicks && s.spare(g, now)
}

// spare tells that the gate may be dropped at any time.
func (s *shard) spare(g *gate, now time.Time) bool {
	s.reclaim(g, now)
	g.sync(s.setting)
	if g.held != 0 || g.used != 0 || g.setting.own != nil {
		return false // and nothing is forgotten: what is out may bring feedback that is dated before now
	}
	g.settle(now, nil)
	return g.idle(now, s.untouched)
}

func (s *shard) evicted(n int) {
	if n > 0 {
		s.l.keys.Add(int64(-n))
		s.counts.evicted += uint64(n)
	}
}

// hasRoom reports whether makeRoom would find room, as far as a few keys tell, and drops none.
func (s *shard) hasRoom(now time.Time) bool {
	if s.l.keys.Load() < int64(s.l.maxKeys)+s.l.owned.Load() {
		return true
	}
	found := false
	s.evictOne(probes, func(g *gate) bool {
		found = found || s.spare(g, now)
		return false
	})
	return found
}

// makeRoom reserves room for one more key and tells whether there is: below MaxKeys, or in
// place of an idle key of this shard or another one.
func (s *shard) makeRoom(now time.Time) bool {
	if s.l.keys.Add(1) <= int64(s.l.maxKeys)+s.l.owned.Load() {
		s.earn(1)
		return true
	}
	s.l.keys.Add(-1)
	s.earn(probes)
	if s.evictIdle(now) {
		s.counts.evicted++
		return true
	}
	return false
}

// earn saves looks, up to one for each key. When as many have been in vain nothing is saved until a key is
// found: all are busy then, and to look at them once more would be work for nothing.
func (s *shard) earn(looks int) {
	most := s.lru.Len()
	if s.vain > most {
		most = 0
	}
	s.saved = min(s.saved+looks, most+probes)
}

// evictIdle drops an idle key, of this shard or else of another one, and reports whether it found one.
func (s *shard) evictIdle(now time.Time) bool {
	if _, found := s.look(now, mostLooks); found {
		return true
	}
	found := false
	for i, left := 0, mostLooks; i < neighbours && left > 0 && !found; i++ {
		left, found = s.l.lookNext(s, left)
	}
	return found
}

// look drops the first idle key that it finds within so many looks, as far as they are saved, and returns how
// many are left. Each goes on where the last one has ended.
func (s *shard) look(now time.Time, most int) (left int, found bool) {
	for s.saved > 0 && most > 0 && !found {
		cost := 1
		found = s.evictOne(1, func(g *gate) bool {
			cost += g.missed(s.setting) / perLook
			return s.spare(g, now)
		})
		most -= cost
		s.saved, s.vain = max(0, s.saved-cost), s.vain+1
	}
	if found {
		s.vain = 0
	}
	return most, found
}

// missed is how many settings g has not applied yet.
func (g *gate) missed(newest *setting) int {
	st := g.setting
	if st.own != nil {
		st = st.base
	}
	return int(newest.era - st.era)
}

// lookNext looks in another shard: it stays with one that has idle keys, and goes on to the next otherwise.
// A shard that is in use is left out, so that no two wait for each other.
func (l *Limiter) lookNext(but *shard, most int) (left int, found bool) {
	s := &l.shards[l.broom.Load()&l.mask]
	left = most
	if s != but && s.mu.TryLock() {
		defer s.mu.Unlock()
		if s.saved > 0 {
			left, found = s.look(s.tick(l.now()), most)
		}
	}
	if !found {
		l.broom.Add(1)
	}
	return left, found
}

// newKey returns the gate of a key that is not in the map: a fresh one, or, when there is no
// room for it, the overflow gate that such keys share.
//
// A key that still waits or holds permits through the overflow gate stays there. Any other
// that gets a gate of its own while the overflow gate is not idle starts with what that one has left: it
// may have been let through there, and must not get a second burst.
func (s *shard) newKey(key string, now time.Time) *gate {
	like := s.untouched
	if o := s.overflow; o != nil {
		if s.spare(o, now) {
			s.overflow = nil
		} else if like = o; o.more.names[key] > 0 {
			return s.overflowed()
		}
	}
	if !s.makeRoom(now) {
		return s.overflowed()
	}
	g := newGate(like, now, s.l.lawSeed(key))
	s.add(key, g)
	return g
}

func (s *shard) overflowed() *gate {
	s.counts.overflowed++
	if s.overflow == nil {
		s.overflow = newGate(s.untouched, s.now, s.l.lawSeed(""))
		s.overflow.extra().names = make(map[string]int)
	}
	return s.overflow
}

// unname takes one wait or one permit of a key off the overflow gate.
func (s *shard) unname(key string) {
	names := s.overflow.more.names
	if names[key]--; names[key] <= 0 {
		delete(names, key)
	}
}
