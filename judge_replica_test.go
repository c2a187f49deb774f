package quotient_test

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
)

// The judge's knowledge of one replica, and its judgement of what that replica does.

// replica is one limiter and what the judge knows of it.
type replica struct {
	l        *quotient.Limiter
	w        *world
	id       int
	conf     config
	plans    map[string]quotient.Limit // at the start
	weight   int                       // as how many replicas it truly counts
	first    int                       // its first ordinal, where ordinals are fixed
	clock    clock
	keys     map[string]*keyState
	base     []item
	pool     quotient.Pool
	awaiting bool
	limit    quotient.Limit
	calls    []*call
	done     chan *call
	kept     []*held
	dry      bool
	source   *source
	known    [3]bool // units that some limit has counted
	words    bool    // an operator has set the pool
	exact    bool    // the other model may be held against refusals
	stepped  bool
	blurred  bool // it is not known when a permit's time is over
	counts   tally
	seen     []report
	hooks    atomic.Pointer[hook]
	fired    uint64 // timers, until judged
	judged   time.Time
	served   int // calls, since
	poolings int
}

// clock is a wall clock that is set now and then. It still knows what it read at an instant in the past.
type clock struct {
	mu    sync.Mutex
	steps []clockStep
}

type clockStep struct {
	at     time.Time
	offset time.Duration // from at on
}

func (c *clock) at(now time.Time) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(c.steps) - 1; i >= 0; i-- {
		if !now.Before(c.steps[i].at) {
			return now.UnixNano() + int64(c.steps[i].offset)
		}
	}
	return now.UnixNano()
}

// set sets the clock by so much, and returns how far it is off then. It takes a nanosecond, so that no
// instant has two readings.
func (c *clock) set(by time.Duration) (offset time.Duration) {
	time.Sleep(time.Nanosecond)
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.steps); n > 0 {
		offset = c.steps[n-1].offset
	}
	c.steps = append(c.steps, clockStep{time.Now(), offset + by})
	return offset + by
}

type config struct {
	joins, awaits, learns, ceiling, atLeastOne bool
	stops                                      bool // it awaits, and no pool is configured
	maxKeys, perKey, total                     int
	maxWait, maxHold, holdDown, hintMaxAge     time.Duration
	hooked                                     bool
}

type tally struct{ admitted, refused, cancelled, dry uint64 }

// report is a usable hint.
type report struct {
	at time.Time
	p  quotient.Pool
}

type keyState struct {
	items   []item
	hi, lo  model
	fed     int // items that hi has played
	fedLo   int
	start   model
	startLo model
	owned   bool // it has a limit of its own
}

// held is a permit that is out.
type held struct {
	key     string
	p       quotient.Permit
	t       *taking
	extra   []*taking // corrections upwards, the last at the end
	charged amounts
	weight  int
	slots   int
	seq     int
	ends    time.Time // zero: never
}

// call is an Acquire in a goroutine of its own.
type call struct {
	key    string
	n      amounts
	class  quotient.Priority
	cancel context.CancelFunc
	permit quotient.Permit
	err    error
	panic  any
	began  time.Time
	at     time.Time // it returned
	seq    int
	slow   bool
}

// date is when the call was admitted; at the earliest, where a hook may have slept since.
func (c *call) date() time.Time {
	if c.slow {
		return c.began
	}
	return c.at
}

// hook is what the hooks of the next calls do.
type hook struct {
	sleepOnWait               time.Duration
	panicOnWait, panicOnAdmit bool
}

type source struct {
	report func(quotient.Pool, error)
	cancel context.CancelFunc
	ended  chan error
}

// Watch is that of a source that says what the judge wants.
func (s *source) Watch(ctx context.Context, report func(quotient.Pool, error)) error {
	s.report = report
	<-ctx.Done()
	return ctx.Err()
}

// listener learns when a replica's pool changes: a timer may do that in the middle of a sleep.
type listener struct {
	slog.Handler
	r *replica
}

// Enabled is slog.Handler's.
func (h listener) Enabled(context.Context, slog.Level) bool { return true }

// WithAttrs is slog.Handler's.
func (h listener) WithAttrs([]slog.Attr) slog.Handler { return h }

// Handle is slog.Handler's.
func (h listener) Handle(_ context.Context, rec slog.Record) error {
	news := map[string]string{
		"pool changed":                        "new",
		"pool not known: nothing is admitted": "last",
	}[rec.Message]
	rec.Attrs(func(a slog.Attr) bool {
		if a.Key == news {
			h.r.pooled(a.Value.Any().(quotient.Pool))
		}
		return true
	})
	return nil
}

// pooled notes a pool that has come into force.
func (r *replica) pooled(p quotient.Pool) {
	r.w.tell("replica %d believes %+v", r.id, p)
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	r.pool, r.awaiting = p, quotient.Awaits(r.l)
	r.poolings++
	r.note(item{at: time.Now(), pool: &p, awaiting: r.awaiting})
	r.w.changes()
}

// note adds a change to the history of all keys.
func (r *replica) note(it item) {
	r.base = append(r.base, it)
	for _, k := range r.keys {
		k.items = append(k.items, it)
	}
}

// key is what the judge knows of a key.
func (r *replica) key(name string) *keyState {
	k := r.keys[name]
	if k == nil {
		k = &keyState{items: slices.Clone(r.base)}
		for _, m := range []*model{&k.start, &k.startLo} {
			*m = model{plan: planOf(name), joins: r.conf.joins, awaits: r.conf.awaits, phase: 3}
			m.learns, m.ceiling = r.conf.learns, r.conf.ceiling
		}
		k.start.generous = true
		k.hi, k.lo = k.start, k.startLo
		r.keys[name] = k
	}
	return k
}

// upTo plays both models up to now.
func (k *keyState) upToNow() (hi, lo *model) {
	for ; k.fed < len(k.items); k.fed++ {
		k.hi.play(k.items[k.fed])
	}
	for ; k.fedLo < len(k.items); k.fedLo++ {
		k.lo.play(k.items[k.fedLo])
	}
	k.hi.advance(time.Now())
	k.lo.advance(time.Now())
	return &k.hi, &k.lo
}

// when is the generous model at an instant, and the place in the history that what has come then has.
func (k *keyState) when(at time.Time) (*model, int) {
	if !at.Before(time.Now()) {
		hi, _ := k.upToNow()
		return hi, len(k.items)
	}
	place := 0
	for place < len(k.items) && !k.items[place].at.After(at) {
		place++
	}
	m := k.before(place)
	m.advance(at)
	return m, place
}

// before is the generous model before a place in the history.
func (k *keyState) before(place int) *model {
	m := k.start
	m.rules = nil
	for _, it := range k.items[:place] {
		m.play(it)
	}
	return &m
}

// insert puts an item into the history.
func (k *keyState) insert(place int, it item) {
	if k.items = slices.Insert(k.items, place, it); place < k.fed || place < k.fedLo {
		k.again()
		k.lo, k.fedLo = k.startLo, 0
	}
}

// again has the generous model play the whole history again: something that was taken is less now.
func (k *keyState) again() { k.hi, k.fed = k.start, 0; k.hi.rules = nil }

// hook returns what the hooks do now. Callers that have been admitted ask for it while the world goes on.
func (r *replica) hook() hook {
	if h := r.hooks.Load(); h != nil {
		return *h
	}
	return hook{}
}

func (r *replica) hang(h hook) { r.hooks.Store(&h) }

func (r *replica) onWait(string, time.Duration) {
	h := r.hook()
	if h.panicOnWait {
		panic("OnWait")
	}
	time.Sleep(h.sleepOnWait)
}

func (r *replica) onAdmit(string, time.Duration, time.Duration) {
	h := r.hook()
	if h.panicOnAdmit {
		panic("OnAdmit")
	}
}

// collect takes up the calls that have returned.
func (r *replica) collect() {
	var ended []*call
	for range len(r.done) {
		ended = append(ended, <-r.done)
	}
	slices.SortFunc(ended, func(a, b *call) int { // as a key's queue admits them
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(b.class, a.class), cmp.Compare(a.seq, b.seq))
	})
	r.calls = slices.DeleteFunc(r.calls, func(c *call) bool { return slices.Contains(ended, c) })
	r.served += len(ended)
	for _, c := range ended {
		r.returned(c)
	}
}

// returned judges a call that has ended.
func (r *replica) returned(c *call) {
	w := r.w
	w.tell("replica %d %s: Acquire of %v in class %v ended at %v: %v %v", r.id, c.key, c.n, c.class,
		c.at.Format("04:05.000000000"), c.err, c.panic)
	switch {
	case c.panic == "OnWait":
		r.counts.cancelled++
	case c.panic != nil:
		r.admitted(c.key, c.n, quotient.Permit{}, c.date(), true, c.slow)
		r.inOrder(c)
	case c.err == nil:
		h := r.admitted(c.key, c.n, c.permit, c.date(), true, c.slow)
		r.inOrder(c)
		if c.permit != (quotient.Permit{}) && !quotient.IsDry(c.permit) {
			r.kept = append(r.kept, h)
		}
	case errors.Is(c.err, quotient.ErrLimited):
		if r.counts.refused++; c.at.Equal(time.Now()) {
			r.refused(c.key, c.n, c.err)
		}
	case errors.Is(c.err, context.Canceled), errors.Is(c.err, context.DeadlineExceeded):
		r.counts.cancelled++
		if c.slow { // it may have been admitted, at any instant since, and have come back only in part
			r.exact = false
		}
	default:
		r.counts.refused++
	}
}

// admitted judges an admission, and notes it.
func (r *replica) admitted(key string, n amounts, p quotient.Permit, at time.Time, waited, slow bool) *held {
	r.counts.admitted++
	h := &held{key: key, p: p, weight: int(n[0]), charged: n}
	r.w.seq++
	if h.seq = r.w.seq; waited && !at.After(r.w.since) {
		h.seq = 0 // it was admitted before the last change, or may have been, and returned after it
	}
	if quotient.IsDry(p) {
		r.counts.dry++
		return h
	}
	k, w := r.key(key), r.w
	if slow { // it may have been admitted at any instant since the call
		r.exact = false
	}
	hi, place := k.when(at)
	why := r.forbids(hi, key, n, at)
	for i := place - 1; waited && i >= 0 && k.items[i].at.Equal(at); i-- {
		m := k.before(i) // what changed at the same instant may have come after it
		if why != "" && r.forbids(m, key, n, at) == "" {
			hi, place, why = m, i, ""
		}
	}
	if why != "" && !slow {
		w.broken("%s", why)
	}
	h.t = &taking{at: at, net: n, gross: n}
	if r.conf.maxHold > 0 && quotient.IsKept(p) {
		h.ends = at.Add(r.conf.maxHold)
	}
	if slow { // so it is counted as little as it may be
		r.blurred = r.blurred || r.conf.maxHold > 0
		h.t.net = amounts{}
		k.insert(place, item{at: at, took: h.t})
		return h
	}
	if hi.slots(r.conf.atLeastOne) >= 0 {
		h.slots = int(n[0])
	}
	due := amounts{}
	for i := range hi.rules {
		u := unitIndex(hi.rules[i].rate.Unit)
		if o := n[u] - hi.rules[i].size; !hi.rules[i].rate.Aligned {
			due[u] = max(due[u], o)
		}
	}
	k.insert(place, item{at: at, took: h.t})
	if !waited || at.After(w.since) { // else it was admitted before the last change
		w.fleetAdmitted(r, key, h.t, n, due)
	}
	return h
}

// overrides is how often a key was given a limit of its own: one that has had one may be remembered beside
// MaxKeys until it is idle.
func (r *replica) overrides() (n int) {
	for _, k := range r.keys {
		for i := range k.items {
			if k.items[i].setsOwn {
				n++
			}
		}
	}
	return n
}

// slow reports whether a call may be inside a hook.
func (r *replica) slow() bool {
	return slices.ContainsFunc(r.calls, func(c *call) bool { return c.slow })
}

// reap forgets the permits that reading statistics has given back.
func (r *replica) reap() {
	r.kept = slices.DeleteFunc(r.kept, func(h *held) bool { return h.over() })
}

// drain takes up the calls that have returned, and releases their permits.
func (r *replica) drain() {
	for range 1000 {
		r.collect()
		if len(r.kept) == 0 {
			return
		}
		for _, h := range r.kept {
			h.p.Release()
		}
		r.kept = nil
		synctest.Wait()
	}
}
