package quotient

import (
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/quotient-go/quotient/internal/meter"
)

// store holds the gates of one shard. Idle gates are dropped, others never. An idle gate is equal to that of
// a key never seen, so no caller can tell.
//
// simplelru keeps their order, page by page: an entry of its own for each gate would take more bytes than the
// gate, and a collection would follow seven pointers more. Its Add would drop the oldest page by itself. So it
// is made larger than it may ever become, and room is made before adding. A look-up moves nothing to the front,
// which would touch three more cache lines: it marks the gate as seen. The search for a key to drop looks at the
// gates of the oldest page one by one. Then it moves the page with those that stay to the front, and so gives
// them a second chance.
type store struct {
	order    *simplelru.LRU[*page, struct{}]
	newest   *page              // nil while there is none
	n        int32              // gates
	peak     int32              // of them, since the store was last rebuilt
	pause    uint32             // calls from one sweep to the next
	moved    uint32             // lines of old that have been moved
	promises map[*gate]promises // to callers of keys that were refused; nil while there are none
	saved    int                // looks for an idle key that calls have paid for and that were not used; see earn
	vain     int                // looks since one was found
	old      index              // has the gates that are not in index yet
	index    index
}

// page is some gates of a store, most of which came one after another.
type page struct {
	hand, end int // the next to be looked at, and how many there are
	gates     [pageGates]*gate
}

const pageGates = 62 // with them a page has 512 bytes

// maxOverrides is how many keys may have a limit of their own beside so many keys.
func maxOverrides(maxKeys int) int { return max(1, maxKeys/2) }

// The fewer keys are idle, the longer one looks for them. So calls pay for looks: each for one, and one that
// finds no room for some more. Unused looks are saved for calls that need more. All looks together are never
// more than have been paid for, also while all keys are busy and new ones come without end.
const (
	probes     = 6   // looks that a call without room pays for
	maxLooks   = 512 // of one call: locks are held meanwhile
	perLook    = 16  // settings that a key has missed cost as much as a look
	neighbours = 3   // that a call looks at when its own has no idle key
	maxSwept   = 4   // keys dropped by one sweep
	longPause  = 256 // calls between sweeps while there is nothing to drop
	shortPause = 2
	coldTicks  = 5   // of ticksAt, about ten seconds: a key used since then stays while there is room
	rebuildAt  = 256 // a store that never held more is not worth rebuilding
)

func newStore() store {
	st := store{pause: shortPause}
	st.renew()
	return st
}

// renew starts from nothing: Go's maps keep their memory when they empty.
func (st *store) renew() {
	order, err := simplelru.NewLRU[*page, struct{}](math.MaxInt, nil)
	if err != nil {
		panic(err) // only for a size below 1
	}
	st.order, st.newest, st.n, st.peak = order, nil, 0, 0
	st.old, st.index, st.promises = nil, make(index, 1), nil
}

// gates returns all, in the order in which they are looked at.
func (st *store) gates() []*gate {
	all := make([]*gate, 0, st.n)
	for _, p := range st.order.Keys() {
		all = append(all, p.gates[p.hand:p.end]...)
	}
	if p, _, ok := st.order.GetOldest(); ok {
		all = append(all, p.gates[:p.hand]...)
	}
	return all
}

// push puts a gate into the newest page.
func (st *store) push(g *gate) {
	if p := st.newest; p == nil || p.end == pageGates {
		st.newest = new(page)
		st.order.Add(st.newest, struct{}{})
	}
	st.newest.gates[st.newest.end] = g
	st.newest.end++
	st.n++
}

// pull takes a gate off its page.
func (st *store) pull(p *page, at int) {
	p.end--
	copy(p.gates[at:], p.gates[at+1:p.end+1])
	p.gates[p.end] = nil // or it would be kept alive
	st.n--
}

// oldest returns the page with the gate that is looked at next. There must be one.
func (st *store) oldest() *page {
	for {
		p, _, _ := st.order.GetOldest()
		if p.hand < p.end {
			return p
		}
		st.turn(p)
	}
}

// turn makes a page that has been looked at the newest, or puts its gates into that if they fit.
func (st *store) turn(p *page) {
	p.hand = 0
	if to := st.newest; to != p && to.end+p.end <= pageGates {
		to.end += copy(to.gates[to.end:], p.gates[:p.end])
		st.order.Remove(p)
		return
	}
	st.order.Get(p)
	st.newest = p
}

// find returns the gate of a key by its hash, or nil.
func (st *store) find(hash uint64) *gate {
	if g := st.home(hash); g != nil {
		return g
	}
	if g := st.index.find(hash); g != nil {
		return g
	}
	return st.old.find(hash)
}

// home is find for a gate that stands in its own line, as nearly all do.
func (st *store) home(hash uint64) *gate { return st.index.line(uint32(hash>>32), 0).find(hash) }

// has reports whether a gate is there.
func (st *store) has(g *gate) bool {
	_, now := st.index.has(g)
	_, before := st.old.has(g)
	return now || before
}

// add puts the gate of a key in that is not there.
func (st *store) add(hash uint64, g *gate) {
	st.push(g)
	st.peak = max(st.peak, st.n)
	if int(st.n) > lineFull*len(st.index) {
		st.old, st.moved, st.index = st.index, 0, make(index, 2*len(st.index))
	}
	g.mark(hash)
	st.index.place(g, tagOf(hash))
	st.move()
}

// move moves gates out of the old index, if there is one. It must have gone before the next one is old.
func (st *store) move() {
	if st.old == nil {
		return
	}
	st.old[st.moved].moveTo(st.index)
	if st.moved++; int(st.moved) == len(st.old) {
		st.old = nil
	}
}

// remove takes a gate out, wherever it stands.
func (st *store) remove(g *gate) {
	for _, p := range st.order.Keys() {
		if at := slices.Index(p.gates[:p.end], g); at >= 0 {
			if p.hand > at {
				p.hand--
			}
			st.pull(p, at)
			break
		}
	}
	st.forget(g)
}

// forget takes a gate out that is in the order no more, and rebuilds a store that has become too large.
func (st *store) forget(g *gate) {
	delete(st.promises, g)
	if !st.index.displace(g) {
		st.old.displace(g)
	}
	if st.peak > rebuildAt && st.n < st.peak/4 {
		st.rebuild()
	}
}

// evictOne drops one of the oldest keys that may go, and reports whether it found one. It looks at so many.
func (st *store) evictOne(looks int, mayGo func(*gate) bool) bool {
	for range min(looks, int(st.n)) {
		p := st.oldest()
		g := p.gates[p.hand]
		if mayGo(g) {
			st.pull(p, p.hand)
			st.forget(g)
			return true
		}
		p.hand++
	}
	return false
}

// rebuild moves the gates that are left into smaller maps.
func (st *store) rebuild() {
	was := *st
	st.renew()
	for _, g := range was.gates() {
		st.push(g)
	}
	st.peak = st.n
	n := 1
	for n*lineFull < int(st.peak) {
		n *= 2
	}
	st.index = make(index, n)
	for _, ix := range []index{was.old, was.index} {
		for i := range ix {
			ix[i].moveTo(st.index)
		}
	}
}

// sweep drops, now and then, a few keys that have been idle for a while. So the store holds the keys that are
// being limited, and not all that were ever seen. It looks often while it finds some, and seldom otherwise.
func (s *shard) sweep() {
	s.move()
	s.earn(int(s.pause))
	if s.dropCold()+s.l.sweepNext(s) > 0 {
		s.pause = shortPause
	} else {
		s.pause = min(2*s.pause, longPause)
	}
	s.left = s.pause
}

// sweepNext does the same in another shard, each in its turn, which may have no calls of its own. A shard
// that is in use is left out, so that no two wait for each other.
func (l *Limiter) sweepNext(but *shard) int {
	s := &l.shards[l.broom.Add(1)&l.mask]
	if s == but || !s.mu.TryLock() {
		return 0
	}
	defer s.mu.Unlock()
	return s.dropCold()
}

// dropCold drops the oldest keys that are cold, a few at most, and returns how many.
func (s *shard) dropCold() int {
	if s.n == 0 {
		return 0
	}
	now, n := s.now(), 0
	for n < maxSwept && s.evictOne(1, func(g *gate) bool { return s.cold(g, now) }) {
		n, s.vain = n+1, 0
	}
	s.evicted(n)
	return n
}

// ticksAt returns a coarse clock for gate.seen, in 2^31 ns. It wraps after nine minutes: then a cold gate
// counts as recently used, for ten seconds.
func ticksAt(t meter.Instant) uint8 { return uint8(t.At >> 31) }

// cold reports whether the gate is idle and has not been used lately.
func (s *shard) cold(g *gate, now meter.Instant) bool {
	return ticksAt(now)-g.seen >= coldTicks && s.spare(g, now)
}

// spare reports whether the gate may be dropped at any time. A busy one forgets nothing: a permit that is out
// may bring feedback that is dated before now.
func (s *shard) spare(g *gate, now meter.Instant) bool {
	g.sync()
	s.reclaim(g, now)
	if g.setting.lapsed() && g.held == 0 && g.used == 0 && g.rested(now) {
		g.join(s.newest(0), now)
	}
	if g.held != 0 || g.used != 0 || g.setting.overridden() {
		return false
	}
	g.advance(now, nil)
	return g.part() == 0 && g.idle(now, s.unseen(g.setting.plan)) && s.idleElsewhere(g, now)
}

// rested reports whether all rules of a gate are as for a key never seen.
func (g *gate) rested(now meter.Instant) bool {
	g.advance(now, nil)
	return g.idle(now, g.setting.fullGate(now))
}

func (s *shard) evicted(n int) {
	if n > 0 {
		s.l.keys.Add(int64(-n))
		s.counts.evicted += uint64(n)
	}
}

// hasRoom reports whether makeRoom would find room, as far as a few keys tell, and drops none.
func (s *shard) hasRoom(now meter.Instant) bool {
	if s.l.keys.Load() < int64(s.l.maxKeys)+s.l.overridden.Load() {
		return true
	}
	found := false
	s.evictOne(probes, func(g *gate) bool {
		found = found || s.spare(g, now)
		return false
	})
	return found
}

// makeRoom reserves room for one more key and reports whether there is: below MaxKeys, or in
// place of an idle key of this shard or another one.
func (s *shard) makeRoom(now meter.Instant) bool {
	if s.l.keys.Add(1) <= int64(s.l.maxKeys)+s.l.overridden.Load() {
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

// earn saves looks, up to one for each key. When as many have been in vain, all are busy, and another look at
// them would be work for nothing. So nothing is saved then until a key is found.
func (s *shard) earn(looks int) {
	most := int(s.n)
	if s.vain > most {
		most = 0
	}
	s.saved = min(s.saved+looks, most+probes)
}

// evictIdle drops an idle key, of this shard or else of another one, and reports whether it found one.
func (s *shard) evictIdle(now meter.Instant) bool {
	if _, found := s.look(now, maxLooks); found {
		return true
	}
	found := false
	for i, left := 0, maxLooks; i < neighbours && left > 0 && !found; i++ {
		left, found = s.l.lookNext(s, left)
	}
	return found
}

// look drops the first idle key that it finds within so many looks, as far as they are saved, and returns how
// many are left. Each goes on where the last one has ended.
func (s *shard) look(now meter.Instant, most int) (left int, found bool) {
	for s.saved > 0 && most > 0 && !found {
		cost := 1
		found = s.evictOne(1, func(g *gate) bool {
			cost += s.missed(g) / perLook
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

// missed returns how many settings g has not applied yet.
func (s *shard) missed(g *gate) int {
	st := g.setting
	if st.own != nil {
		st = st.base
	}
	return int(s.newest(st.plan).serial - st.serial)
}

// lookNext looks in another shard: it stays with one that has idle keys, and goes on to the next otherwise.
// A shard that is in use is left out, so that no two wait for each other.
func (l *Limiter) lookNext(but *shard, most int) (left int, found bool) {
	s := &l.shards[l.broom.Load()&l.mask]
	left = most
	if s != but && s.mu.TryLock() {
		defer s.mu.Unlock()
		if s.saved > 0 {
			left, found = s.look(s.now(), most)
		}
	}
	if !found {
		l.broom.Add(1)
	}
	return left, found
}

// newKey returns the gate of a key that is not in the store. It is a fresh one or, without room for it, the
// overflow gate that such keys share.
//
// A key that still waits or holds permits through the overflow gate stays there. While the overflow gate is
// not idle, any other new key starts with what that gate has left. The key may have been admitted there, and
// must not get a second burst.
func (s *shard) newKey(hash uint64, key string, now meter.Instant) *gate {
	like := s.unseen(0)
	if o := &s.overflow; o.gate != nil {
		if s.spare(o.gate, now) {
			delete(s.promises, o.gate)
			*o = overflow{}
		} else if like = o.gate; o.has(key) {
			return s.overflowed()
		}
	}
	if !s.makeRoom(now) {
		return s.overflowed()
	}
	return s.newGate(hash, key, like, now)
}

// newGate adds a gate for a key, like another one. The key is copied, so that it keeps nothing else alive.
// Its hash seeds its controllers: another one on each replica.
func (s *shard) newGate(hash uint64, key string, like *gate, now meter.Instant) *gate {
	g := newGate(strings.Clone(key), like, now, hash)
	s.add(hash, g)
	return g
}

// overflow is the gate that keys without room share, with the keys that wait or hold permits through it. The
// zero value has no gate.
type overflow struct {
	gate    *gate
	callers map[string]int // waits and permits of each key
}

// is reports whether g is the gate of the overflow.
func (o *overflow) is(g *gate) bool { return o.gate == g }

// has reports whether a key waits or holds permits through the overflow.
func (o *overflow) has(key string) bool { return o.callers[key] > 0 }

// enter counts a wait or a permit of a key.
func (o *overflow) enter(key string) { o.callers[key]++ }

// leave takes one wait or one permit of a key off.
func (o *overflow) leave(key string) {
	if o.callers[key]--; o.callers[key] <= 0 {
		delete(o.callers, key)
	}
}

// overflowed returns the overflow gate for a call, and makes it if there is none.
func (s *shard) overflowed() *gate {
	s.counts.overflowed++
	if s.overflow.gate == nil {
		s.overflow = overflow{newGate("", s.unseen(0), s.latest, s.l.hash("")), make(map[string]int)}
	}
	return s.overflow.gate
}

// index finds gates by the hash of their keys, in a power of two of lines. When they are too few there is a
// new index, and the gates move there line by line, so that no call waits for all.
type index []line

// line is a cache line of gates, each with a tag: a byte of its key's hash. So a look-up touches a line and the gate,
// and seldom more. A gate that finds its line full passes on to the next. Go puts eight bytes in front of an index of
// middle size. The tags come first, so that then only the last gate is on another cache line.
//
// The layout is that of F14: github.com/facebook/folly, folly/container/F14.md.
type line struct {
	tags  uint64           // a byte for each place; the top byte counts the gates that have passed
	gates [lineGates]*gate // nil for a free place
}

const (
	lineGates = 7
	lineFull  = 5 // gates for each line: with more there are twice as many lines
)

// Bits of each place's tag.
const (
	lowest  = 0x00_01_01_01_01_01_01_01
	highest = lowest << 7
	others  = highest - lowest // all but the highest
)

// match returns the highest bit of each place that has a tag. See "Determine if a word has a zero byte" in
// Anderson's Bit Twiddling Hacks.
func (ln *line) match(tag uint8) uint64 {
	x := ln.tags ^ lowest*uint64(tag)
	return ^((x&others + others) | x) & highest
}

// find returns the gate of a hash, or nil.
func (ln *line) find(hash uint64) *gate {
	for match := ln.match(tagOf(hash)); match != 0; match &= match - 1 {
		g := ln.gates[bits.TrailingZeros64(match)/8]
		if g != nil && g.half == uint32(hash>>32) && g.eighth == uint8(hash>>24) {
			return g
		}
	}
	return nil
}

// passed returns how many gates have passed. 255 may be more: it stays.
func (ln *line) passed() uint8 { return uint8(ln.tags >> 56) }

// pass adds to the gates that have passed.
func (ln *line) pass(by int) {
	if ln.passed() < math.MaxUint8 {
		ln.tags += uint64(by) << 56
	}
}

// swap puts a gate in the place of another one, and reports whether that was there.
func (ln *line) swap(old, g *gate, tag uint8) bool {
	at := slices.Index(ln.gates[:], old)
	if at >= 0 {
		ln.gates[at] = g
		ln.tags = ln.tags&^(0xff<<(8*at)) | uint64(tag)<<(8*at)
	}
	return at >= 0
}

// The lowest byte of a hash chooses the shard. The third is the tag, and the gate keeps the upper five. The
// upper half chooses the line too.
func tagOf(hash uint64) uint8 { return uint8(hash >> 16) }

// mark keeps the upper five bytes of the hash of the gate's key.
func (g *gate) mark(hash uint64) { g.half, g.eighth = uint32(hash>>32), uint8(hash>>24) }

// line returns the line that is i behind that of a gate.
func (ix index) line(half uint32, i int) *line { return &ix[(int(half)+i)&(len(ix)-1)] }

// find returns the gate of a hash, or nil.
func (ix index) find(hash uint64) *gate {
	for i := range ix {
		ln := ix.line(uint32(hash>>32), i)
		if g := ln.find(hash); g != nil {
			return g
		}
		if ln.passed() == 0 {
			break
		}
	}
	return nil
}

// place puts a gate into the first free place from its line on.
func (ix index) place(g *gate, tag uint8) {
	for i := 0; !ix.line(g.half, i).swap(nil, g, tag); i++ {
		ix.line(g.half, i).pass(1)
	}
}

// has reports whether a gate is there, behind how many lines that it has passed.
func (ix index) has(g *gate) (behind int, ok bool) {
	for i := range ix {
		ln := ix.line(g.half, i)
		if slices.Contains(ln.gates[:], g) {
			return i, true
		}
		if ln.passed() == 0 {
			break
		}
	}
	return 0, false
}

// displace undoes place, and reports whether the gate was there.
func (ix index) displace(g *gate) bool {
	behind, ok := ix.has(g)
	if ok {
		ix.line(g.half, behind).swap(g, nil, 0)
		for i := range behind {
			ix.line(g.half, i).pass(-1)
		}
	}
	return ok
}

// moveTo moves the gates of a line to another index.
func (ln *line) moveTo(ix index) {
	for i, g := range ln.gates {
		if g != nil {
			ix.place(g, uint8(ln.tags>>(8*i)))
			ln.gates[i] = nil
		}
	}
}
