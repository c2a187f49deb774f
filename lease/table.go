package lease

import (
	"cmp"
	"container/heap"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Defaults of a Config.
const (
	DefaultKeepIdle = 5 * time.Minute
	DefaultMaxPeers = 100_000
)

// Bounds of a Config. Sums of counts stay below MaxCount * maxPeers, so that none of them overflows.
const (
	MaxCount      = 1 << 40 // of a lock, and the largest Semaphore.Max
	maxPeers      = 1 << 20
	maxLevel      = 1 << 31
	maxSemaphores = 10_000
	maxName       = 1024       // bytes
	maxDuration   = 100 * year // of a peer's life, a grace time
	year          = 8766 * time.Hour
	maxLocks      = 128    // of one peer: it has to search them
	maxListed     = 10_000 // locks that Locks returns, each of those held and pending
)

// Semaphore is the maximum and the level of one semaphore.
type Semaphore struct {
	Max   int64 // 1 to MaxCount
	Level int64 // 0 to 2^31: a peer that holds a lock may acquire only semaphores of lower levels
}

// Config is the configuration of a Table. The zero value has no semaphore.
type Config struct {
	Semaphores map[string]Semaphore // by name, at most 10,000; a name has 1 to 1,024 bytes
	// KeepIdle is how long an expired peer without locks is kept, at most 100 years. 0 means DefaultKeepIdle.
	KeepIdle time.Duration
	// Grace is the time after the start in which locks are only restored: a new lock waits until its end.
	// It is at most 100 years; 0, the default, means none.
	Grace time.Duration
	// MaxPeers bounds the peers, at most 2^20. 0 means DefaultMaxPeers.
	MaxPeers int
}

// Validate returns an error that names the first field which makes no sense, and its value; nil if all do.
func (c Config) Validate() error {
	switch {
	case c.KeepIdle < 0 || c.KeepIdle > maxDuration:
		return fmt.Errorf("lease: Config.KeepIdle is %v, want 0 to 100 years", c.KeepIdle)
	case c.Grace < 0 || c.Grace > maxDuration:
		return fmt.Errorf("lease: Config.Grace is %v, want 0 to 100 years", c.Grace)
	case c.MaxPeers < 0 || c.MaxPeers > maxPeers:
		return fmt.Errorf("lease: Config.MaxPeers is %d, want 0 to %d", c.MaxPeers, maxPeers)
	case len(c.Semaphores) > maxSemaphores:
		n := len(c.Semaphores)
		return fmt.Errorf("lease: Config.Semaphores has %d names, want at most %d", n, maxSemaphores)
	}
	for _, name := range c.names() {
		switch s := c.Semaphores[name]; {
		case name == "" || len(name) > maxName:
			return fmt.Errorf("lease: Config.Semaphores: name %.40q of %d bytes, want 1 to %d",
				name, len(name), maxName)
		case s.Max < 1 || s.Max > MaxCount:
			return fmt.Errorf("lease: Config.Semaphores[%q].Max is %d, want 1 to %d", name, s.Max, int64(MaxCount))
		case s.Level < 0 || s.Level > maxLevel:
			return fmt.Errorf("lease: Config.Semaphores[%q].Level is %d, want 0 to %d",
				name, s.Level, int64(maxLevel))
		}
	}
	return nil
}

// names returns the names of the semaphores in order, so that equal steps have equal outcomes.
func (c Config) names() []string { return slices.Sorted(maps.Keys(c.Semaphores)) }

// withDefaults returns c with its defaults filled in, and semaphores of its own.
func (c Config) withDefaults() Config {
	c.Semaphores = maps.Clone(c.Semaphores)
	c.KeepIdle, c.MaxPeers = cmp.Or(c.KeepIdle, DefaultKeepIdle), cmp.Or(c.MaxPeers, DefaultMaxPeers)
	return c
}

// Tokens are the fencing tokens that a Table may give: Next, Next+1 and so on below End. A token is given
// once, and a later grant has a larger one. So the larger token is that of the newer holder. Without tokens
// nothing is granted, until AddTokens. The zero value has none.
//
// Where End is EndOfTokens, they are those of a clock: see Restore.
type Tokens struct{ Next, End uint64 }

// EndOfTokens is above every token. So each token fits into a signed integer.
const EndOfTokens = 1 << 63

// ahead is how far a restored token may be ahead of the clock, which may have been set back since it was given.
const ahead = time.Minute

// within returns k within the bounds of tokens: 0 means that a lock is pending.
func (k Tokens) within() Tokens { return Tokens{Next: max(k.Next, 1), End: min(k.End, EndOfTokens)} }

func (k Tokens) left() uint64 {
	if k.Next >= k.End {
		return 0
	}
	return k.End - k.Next
}

// ClockTokens returns the tokens of a server without an election. They start at now in nanoseconds, so that
// tokens after a restart are above those before. If the clock was set back meanwhile, by at most a minute,
// they are above all tokens that are restored.
func ClockTokens(now time.Time) Tokens { return Tokens{Next: clockToken(now), End: EndOfTokens} }

// clockToken is above all that a clock can have given before now: a grant takes longer than a nanosecond.
func clockToken(now time.Time) uint64 { return uint64(max(now.UnixNano(), 1)) }

// Table holds the peers, their locks and the queue of each semaphore. Methods that may change it take the
// time, which must not run backwards. They first do what is due by then. A method takes O(log n) of the
// peers, unless its documentation names another cost. Call Changed after each method. NewTable makes a
// Table. It is not safe for concurrent use.
type Table struct {
	config     Config
	semaphores map[string]*semaphore
	peers      map[uint64]*peer
	busy, idle deadlines // peers with a lock, held or pending, and peers without; each by expiry
	tokens     Tokens
	skipped    uint64    // the largest restored token that was ahead of the clock
	grace      time.Time // until then locks are only restored; zero: over. A token that is ahead prolongs it
	changed    []uint64
}

// NewTable returns a Table without peers. Its grace time starts now. An error names a field of c and its value.
func NewTable(c Config, tokens Tokens, now time.Time) (*Table, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	t := &Table{
		semaphores: make(map[string]*semaphore), peers: make(map[uint64]*peer), tokens: tokens.within(),
	}
	if c.Grace > 0 {
		t.grace = now.Add(c.Grace)
	}
	t.configure(c.withDefaults(), now)
	return t, nil
}

// Configure replaces the configuration. With a lower maximum, holders keep their locks, and a pending lock
// that can never be granted is dropped. With a higher maximum the queue is served at once. A removed
// semaphore is unknown to all but its holders. A changed Grace applies from the next start.
//
// After an error, which names a field of c and its value, the old configuration stays. Configure takes O(n)
// of the semaphores and the queues.
func (t *Table) Configure(c Config, now time.Time) error {
	if err := c.Validate(); err != nil {
		return err
	}
	t.Advance(now)
	t.configure(c.withDefaults(), now)
	return nil
}

func (t *Table) configure(c Config, now time.Time) {
	t.config = c
	for name, s := range t.semaphores {
		if _, stays := c.Semaphores[name]; !stays {
			s.gone = true
			t.refuse(s, 0, now)
			t.forget(s)
		}
	}
	for _, name := range c.names() {
		s, set := t.semaphores[name], c.Semaphores[name]
		if s == nil {
			s = &semaphore{name: name}
			t.semaphores[name] = s
		}
		s.max, s.level, s.gone = set.Max, set.Level, false
		t.refuse(s, s.max, now)
		t.dispatch(s, now)
	}
	t.Advance(now)
}

// refuse drops the pending locks of s above most: they can never be granted.
func (t *Table) refuse(s *semaphore, most int64, now time.Time) {
	for l := s.pending.front; l != nil; {
		next := l.next
		if l.count > most {
			t.detach(l, now)
			l.peer.refused = l
			t.notify(l.peer)
		}
		l = next
	}
}

// forget removes a semaphore that is out of the configuration, once it has no holder.
func (t *Table) forget(s *semaphore) {
	if s.gone && s.held.len == 0 {
		delete(t.semaphores, s.name)
	}
}

// AddTokens continues with newer tokens; the unused present ones are lost. Tokens below those in use, or
// none, change nothing. It takes O(n) of the semaphores.
func (t *Table) AddTokens(more Tokens, now time.Time) {
	t.Advance(now)
	if more = more.within(); more.left() == 0 || more.Next < max(t.tokens.Next, t.skipped+1) {
		return
	}
	t.tokens = more
	t.dispatchAll(now)
}

// TokensLeft returns how many tokens can be given.
func (t *Table) TokensLeft() uint64 { return t.tokens.left() }

// Advance does what is due by now: peers expire, and the grace time ends.
func (t *Table) Advance(now time.Time) {
	for p := t.busy.first(); p != nil && !p.expires.After(now); p = t.busy.first() {
		t.remove(p, now, func(s *semaphore) { s.totals.Expired++ })
	}
	for p := t.idle.first(); p != nil && !p.expires.Add(t.config.KeepIdle).After(now); p = t.idle.first() {
		t.remove(p, now, nil)
	}
	if !t.grace.IsZero() && !t.grace.After(now) {
		t.grace = time.Time{}
		t.tokens.Next = max(t.tokens.Next, t.skipped+1)
		t.dispatchAll(now)
	}
}

// Next returns when something is due by itself; the zero time if nothing is.
func (t *Table) Next() time.Time {
	next := t.grace
	sooner := func(at time.Time) {
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	if p := t.busy.first(); p != nil {
		sooner(p.expires)
	}
	if p := t.idle.first(); p != nil {
		sooner(p.expires.Add(t.config.KeepIdle))
	}
	return next
}

// Changed returns the peers whose pending lock was granted or dropped since the last call, and those that were removed.
// A peer may be in it twice. The slice is valid until the next call of a method. Without calls of Changed it grows.
func (t *Table) Changed() []uint64 {
	ids := t.changed
	t.changed = t.changed[:0]
	return ids
}

func (t *Table) notify(p *peer) { t.changed = append(t.changed, p.id) }

// deadlines is a heap of peers by expiry; by id where that is the same.
type deadlines []*peer

func (d deadlines) first() *peer {
	if len(d) == 0 {
		return nil
	}
	return d[0]
}

func (d deadlines) Len() int { return len(d) }

func (d deadlines) Less(i, j int) bool {
	c := d[i].expires.Compare(d[j].expires)
	return c < 0 || c == 0 && d[i].id < d[j].id
}

func (d deadlines) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].index, d[j].index = i, j
}

// Push is heap.Push's.
func (d *deadlines) Push(x any) {
	p := x.(*peer)
	p.index = len(*d)
	*d = append(*d, p)
}

// Pop is heap.Pop's.
func (d *deadlines) Pop() any {
	last := len(*d) - 1
	p := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	return p
}

// heapOf returns the heap that p is in.
func (t *Table) heapOf(p *peer) *deadlines {
	if p.inBusy {
		return &t.busy
	}
	return &t.idle
}

// place puts p where its locks and its expiry want it.
func (t *Table) place(p *peer) {
	if busy := len(p.locks) > 0; busy != p.inBusy {
		heap.Remove(t.heapOf(p), p.index)
		p.inBusy = busy
		heap.Push(t.heapOf(p), p)
		return
	}
	heap.Fix(t.heapOf(p), p.index)
}
