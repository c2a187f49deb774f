package judge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"slices"
	"strings"
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
	plans    map[string]quotient.Limit
	weight   int // as how many replicas it truly counts
	first    int // its first ordinal, where ordinals are fixed
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
	endings  map[string][]ending               // by key
	ofPlans  map[string][wasInvalid + 1]uint64 // calls by plan and end
	seen     []report
	hooks    atomic.Pointer[hook]
	fired    uint64 // timers, until judged
	judged   time.Time
	served   int // calls, since
	poolings int
	attends  map[window]*attendance
	owned    map[string]quotient.KeyLimit // the limits that keys have for themselves
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
	told    time.Time // some time after the latest instant that a refused caller was told
	items   []item
	hi, lo  model
	fed     int // items that hi has played
	fedLo   int
	start   model
	startLo model
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

// source is what a limiter follows. It says what a test wants, and carries reports if it has a line.
type source struct {
	report func(quotient.Pool, error)
	cancel context.CancelFunc
	line   *line
}

// following returns a source that a limiter follows until it is cancelled.
func following(l *quotient.Limiter, n *line) *source {
	ctx, cancel := context.WithCancel(context.Background())
	s := &source{cancel: cancel, line: n}
	go func() { _ = l.Follow(ctx, s) }()
	synctest.Wait()
	return s
}

// Watch is quotient.Source's.
func (s *source) Watch(ctx context.Context, report func(quotient.Pool, error)) error {
	s.report = report
	<-ctx.Done()
	return ctx.Err()
}

// says reports a pool of n.
func (s *source) says(n int) {
	s.report(quotient.Pool{Replicas: n}, nil)
	synctest.Wait()
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
	var p quotient.Pool
	rec.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "replicas":
			p.Replicas = int(a.Value.Int64())
		case "ordinal":
			p.Ordinal = int(a.Value.Int64())
		case "weight":
			p.Weight = int(a.Value.Int64())
		case "fixed":
			p.Fixed = a.Value.Bool()
		}
		return true
	})
	switch rec.Message {
	case "pool changed", "pool known: calls are admitted again":
		h.r.pooled(p, false)
	case "pool not known: nothing is admitted":
		h.r.w.mu.Lock()
		last, already := h.r.pool, h.r.awaiting
		h.r.w.mu.Unlock()
		if !already { // else it says now that it has awaited the pool from the start on
			h.r.pooled(last, true)
		}
	}
	return nil
}

// pooled notes a pool that has come into force.
func (r *replica) pooled(p quotient.Pool, awaiting bool) {
	r.w.tell("replica %d believes %+v", r.id, p)
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	r.pool, r.awaiting = p, awaiting
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

// hookedContext runs the replica's hook before the first wait of a call.
type hookedContext struct {
	context.Context
	r    *replica
	over bool
}

func (c *hookedContext) Done() <-chan struct{} {
	if !c.over {
		c.over = true
		h := c.r.hook()
		if h.panicOnWait {
			panic("wait")
		}
		time.Sleep(h.sleepOnWait)
	}
	return c.Context.Done()
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
	case c.panic == "wait":
		r.ends(c.key, wasGivenUp, c.at, c.slow)
	case c.panic != nil:
		r.admitted(c.key, c.n, quotient.Permit{}, c.date(), true, c.slow)
		r.inOrder(c)
	case c.err == nil:
		h := r.admitted(c.key, c.n, c.permit, c.date(), true, c.slow)
		r.inOrder(c)
		if c.permit != (quotient.Permit{}) && !isDry(c.permit) {
			r.kept = append(r.kept, h)
		}
	case errors.Is(c.err, quotient.ErrLimited):
		if r.ends(c.key, wasRefused, c.at, c.slow); c.at.Equal(time.Now()) {
			r.refused(c.key, c.n, c.err)
		}
	case errors.Is(c.err, context.Canceled), errors.Is(c.err, context.DeadlineExceeded):
		r.ends(c.key, wasGivenUp, c.at, c.slow)
		if c.slow { // it may have been admitted, at any instant since, and have come back only in part
			r.exact = false
		}
	default:
		r.ends(c.key, wasInvalid, c.at, c.slow)
	}
}

// admitted judges an admission, and notes it.
func (r *replica) admitted(key string, n amounts, p quotient.Permit, at time.Time, waited, slow bool) *held {
	h := &held{key: key, p: p, weight: int(n[0]), charged: n}
	r.w.seq++
	if h.seq = r.w.seq; waited && !at.After(r.w.since) {
		h.seq = 0 // it was admitted before the last change, or may have been, and returned after it
	}
	if isDry(p) {
		r.ends(key, wasSpared, at, slow)
		return h
	}
	r.ends(key, wasAdmitted, at, slow)
	k, w := r.key(key), r.w
	if slow { // it may have been admitted at any instant since the call
		r.exact = false
	}
	hi, place := k.when(at)
	why := r.forbids(hi, key, n, at)
	if w.counts { // what is left of each plan and limit of its own is not followed
		why = ""
	}
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
	if r.conf.maxHold > 0 && isKept(p) {
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
		if o := n[u] - hi.rules[i].size; !windowed(hi.rules[i].rate) {
			due[u] = max(due[u], o)
		}
	}
	k.insert(place, item{at: at, took: h.t})
	if w.counts {
		w.countedRight(r, key, hi.limit(), h.t)
	}
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

// Checks of one replica.

// inOrder holds bound 8: no older waiter of the same class is left behind.
func (r *replica) inOrder(c *call) {
	if isDry(c.permit) || r.conf.hooked {
		return
	}
	for _, o := range r.calls {
		if nameOf(o.key) == nameOf(c.key) && o.class == c.class && o.seq < c.seq {
			r.w.broken("bound 8: replica %d %s: call %d was admitted before call %d of its class, "+
				"which came first", r.id, c.key, c.seq, o.seq)
		}
	}
}

// forbids is why n must not be admitted; "" when nothing forbids it.
func (r *replica) forbids(m *model, key string, n amounts, at time.Time) string {
	limit := m.limit()
	if limit.Deny || m.awaiting && (len(limit.Rates) > 0 || limit.InFlight > 0) {
		return fmt.Sprintf("replica %d %s: admitted, but the limit is %s and the pool awaited is %v", r.id,
			key, describe(limit), m.awaiting)
	}
	if rule := m.lacks(n); rule != "" {
		return fmt.Sprintf("bound 1: replica %d %s: %v admitted, but %s has no room: %+v", r.id, key, n,
			rule, m.rules)
	}
	if s, used := r.mostSlots(m, key, at), r.used(key, at); s >= 0 && used+int(n[0]) > s {
		return fmt.Sprintf("bound 5: replica %d %s: %v slots taken beside %d, of %d", r.id, key,
			n[0], used, s)
	}
	return ""
}

// mostSlots is the slots that a key has in the model; -1 without a bound. If callers have gone at that instant in
// other plans of the key, any may be the first: then it is the most of theirs.
func (r *replica) mostSlots(m *model, key string, at time.Time) int {
	most := m.slots(r.conf.atLeastOne)
	for _, h := range r.kept {
		if most < 0 || nameOf(h.key) != nameOf(key) || h.key == key || h.t == nil || !h.t.at.Equal(at) {
			continue
		}
		k := r.key(h.key)
		s := k.before(len(k.items)).slots(r.conf.atLeastOne)
		if most = max(most, s); s < 0 {
			most = -1
		}
	}
	return most
}

// used is the slots of a key that are held by permits whose time is not over.
func (r *replica) used(key string, at time.Time) int {
	n := 0
	for _, h := range r.kept {
		if nameOf(h.key) == nameOf(key) && !h.overAt(at) {
			n += h.slots
		}
	}
	return n
}

func (h *held) over() bool { return h.overAt(time.Now()) }

func (h *held) overAt(at time.Time) bool { return !h.ends.IsZero() && !h.ends.After(at) }

// refused judges a refusal, and one that makes a caller wait. With no waiter before it a rule must have no
// room, also if nothing had ever come back.
func (r *replica) refused(key string, n amounts, err error) {
	var limited *quotient.LimitedError
	if !errors.As(err, &limited) {
		return
	}
	r.promised(key, limited.RetryAfter)
	switch limited.Reason {
	case quotient.ReasonTooLarge, quotient.ReasonShare, quotient.ReasonDenied, quotient.ReasonPool,
		quotient.ReasonBadRequest:
		return
	}
	for _, c := range r.calls {
		if nameOf(c.key) == nameOf(key) {
			return
		}
	}
	if r.certain(key, n) {
		r.w.broken("replica %d %s: %v refused though there is room: %v: %+v", r.id, key, n, err,
			r.key(key).lo.rules)
	}
}

// promised notes what a refused caller was told, whatever the plan.
func (r *replica) promised(key string, in time.Duration) {
	if k := r.key(nameOf(key)); in > 0 {
		k.told = time.Now().Add(in + time.Minute)
	}
}

// inOtherPlans reports whether something was taken for a key in another plan since it was last reset, or may
// count as used. A counted window has one count in all plans, which may begin with what a rule of any of them
// misses. The models follow each plan alone, so that where another plan counts no room is certain.
func (r *replica) inOtherPlans(key string) bool {
	r.key(nameOf(key)) // in which it begins
	for name, k := range r.keys {
		if nameOf(name) != nameOf(key) || name == key {
			continue
		}
		_, lo := k.upToNow()
		took := slices.ContainsFunc(lo.rules, func(x ruleLevel) bool { return x.rate.Kind == quotient.CountedWindow })
		for i := range k.items {
			took = took && k.items[i].never == nil || k.items[i].took != nil
		}
		if took {
			return true
		}
	}
	return false
}

// certain reports whether there is room for n for certain.
func (r *replica) certain(key string, n amounts) bool {
	if n := countsOf(r.l); !r.exact || r.stepped || r.dry || r.awaiting ||
		n.Overflowed+n.Expired > 0 {
		return false
	}
	if r.inOtherPlans(key) {
		return false
	}
	_, lo := r.key(key).upToNow()
	limit := lo.limit()
	if limit.Deny || lo.turns() || lo.lacks(n) != "" {
		return false
	}
	for _, rate := range limit.Rates {
		most := burstOf(rate)
		if windowed(rate) {
			most = rate.Events
		}
		if n[unitIndex(rate.Unit)] > most-1e-9 && n[unitIndex(rate.Unit)] != most {
			return false
		}
	}
	s := lo.slots(r.conf.atLeastOne)
	return s < 0 || r.used(key, time.Now())+int(n[0]) <= s
}

// waitingIsRight checks that no caller waits while the next of its key could be admitted.
func (r *replica) waitingIsRight() {
	byKey := map[string][]*call{}
	for _, c := range r.calls {
		if c.slow {
			return // it may not have looked yet
		}
		byKey[nameOf(c.key)] = append(byKey[nameOf(c.key)], c)
	}
	for key, calls := range byKey {
		all := true
		for _, c := range calls {
			all = all && r.certain(c.key, c.n)
		}
		if all {
			r.w.broken("bound 7: replica %d %s: %d wait though there is room for each: %v: %+v", r.id, key,
				len(calls), calls[0].n, r.key(key).lo.rules)
		}
	}
}

// believesIsRight holds what is in force against the reports.
func (r *replica) believesIsRight() {
	p := r.l.Stats().Pool.Pool
	if !r.awaiting && p != r.pool {
		r.w.broken("replica %d believes %+v, and has logged %+v", r.id, p, r.pool)
	}
	now, parts := time.Now(), 0.0
	if r.conf.stops && !r.words {
		old := len(r.seen) == 0 || now.Sub(r.seen[len(r.seen)-1].at) >= r.conf.hintMaxAge
		if old != r.awaiting {
			r.w.broken("replica %d awaits the pool: %v, and its hints have grown old: %v: %+v", r.id,
				r.awaiting, old, r.seen)
		}
	}
	if r.words || len(r.seen) == 0 || r.conf.hintMaxAge > 0 {
		return
	}
	for i, s := range r.seen {
		if i+1 == len(r.seen) || now.Sub(r.seen[i+1].at) < r.conf.holdDown {
			parts = max(parts, shares(s.p))
		}
	}
	last := r.seen[len(r.seen)-1].p
	if most := int(math.Ceil(parts*float64(max(1, last.Weight)) - 1e-9)); p.Replicas != most ||
		p.Weight != last.Weight {
		r.w.broken("replica %d believes in %+v, and the smallest share within the hold-down is that of "+
			"one in %d: %+v", r.id, p, most, r.seen)
	}
	silent := now.Sub(r.seen[len(r.seen)-1].at) >= r.conf.holdDown
	if p.Ordinal > 0 && !last.Fixed && silent {
		r.w.broken("bound 11: replica %d goes by ordinal %d, which was not reported for one hold-down: %+v", r.id,
			p.Ordinal, r.seen)
	}
	if want := r.ordinal(now, shares(last) < parts-1e-9); p.Fixed && want == 0 {
		r.w.broken("bound 5: replica %d holds ordinal %d for fixed, which was not reported again and again "+
			"for one hold-down: %+v", r.id, p.Ordinal, r.seen)
	}
}

// shares is how many shares of a replica's size its pool has.
func shares(p quotient.Pool) float64 { return float64(p.Replicas) / float64(max(1, p.Weight)) }

// ordinal is the one that may count for slots: said to be fixed, or said again and again for one hold-down
// and nothing else meanwhile. It does not count while the share of another pool does.
func (r *replica) ordinal(now time.Time, other bool) int {
	last := r.seen[len(r.seen)-1]
	if last.p.Fixed {
		return last.p.Ordinal
	}
	if other || now.Sub(last.at) >= r.conf.holdDown {
		return 0
	}
	first := last.at
	for i := len(r.seen) - 2; i >= 0; i-- {
		s := r.seen[i]
		if s.p != last.p || first.Sub(s.at) >= r.conf.holdDown {
			break
		}
		first = s.at
	}
	if last.at.Sub(first) < r.conf.holdDown {
		return 0
	}
	return last.p.Ordinal
}

// spinsNot checks that timers fire for something: for a waiter, and else now and then, since the windows of
// a sparse rate are looked at some at a time. Controllers want to be called as often as every millisecond.
func (r *replica) spinsNot() {
	n := countsOf(r.l).Fired
	passed := time.Since(r.judged)
	most := 64 + 8*uint64(r.served+len(r.calls)) + uint64(passed/time.Second)
	if r.conf.learns {
		most += uint64(passed / time.Millisecond)
	}
	if n-r.fired > most {
		r.w.broken("replica %d: timers have fired %d times in %v, in which %d calls ended", r.id, n-r.fired,
			passed, r.served)
	}
	r.fired, r.judged, r.served = n, time.Now(), 0
}

// countsAreRight counts for itself.
func (r *replica) countsAreRight() {
	r.l.Stats() // gives back what was held for too long, so that others may go
	synctest.Wait()
	r.collect()
	s := r.l.Stats()
	r.reap()
	refused := uint64(0)
	for _, n := range s.Refused {
		refused += n
	}
	dry := uint64(0)
	for _, n := range s.DryRunAdmitted {
		dry += n
	}
	inFlight := 0
	for _, h := range r.kept {
		inFlight += h.weight
	}
	got := fmt.Sprint(s.Admitted, refused+s.Cancelled, dry, s.InFlight)
	want := fmt.Sprint(r.counts.admitted, r.counts.refused+r.counts.cancelled, r.counts.dry, inFlight)
	if !r.slow() && !r.blurred && got != want {
		r.w.broken("replica %d: counts admitted, refused or cancelled, admitted in a dry run, in flight: "+
			"%s, want %s", r.id, got, want)
	}
	if !r.slow() && s.Waiting != len(r.calls) {
		r.w.broken("replica %d: counts %d waiting, and %d wait", r.id, s.Waiting, len(r.calls))
	}
	if own := r.l.Overrides(); !reflect.DeepEqual(own, r.owned) || s.Overrides != len(own) {
		r.w.broken("replica %d: keys with a limit of their own: %+v, %d of them, want %+v", r.id, own, s.Overrides,
			r.owned)
	}
	r.whoIsRefusedIsRight(s)
	if most := r.conf.maxKeys + s.Overrides; s.Keys > most && s.Overrides == 0 && r.overrides() == 0 {
		r.w.broken("replica %d: remembers %d keys of %d", r.id, s.Keys, most)
	}
}

// Checks of the fleet as a whole.

// collect takes up the calls that have returned.
func (w *world) collect() {
	synctest.Wait()
	for _, r := range w.fleet {
		r.collect()
	}
}

// judge takes up what has happened since the last step, and holds it against the models.
func (w *world) judge() {
	w.collect()
	for _, r := range w.fleet {
		r.waitingIsRight()
		r.believesIsRight()
		r.spinsNot()
	}
	w.slotsOfTheFleet()
	if pick(w.T, 0, 3, "count") == 0 {
		for _, r := range w.fleet {
			r.countsAreRight()
		}
	}
}

// slotsOfTheFleet is bound 5. While no replica believes in fewer replicas than there are, the parts of the
// slots add up to the limit at most. The slots held by permits that are younger than the last change do too.
func (w *world) slotsOfTheFleet() {
	limit := w.fleet[0].limit
	if w.lied || w.plans || limit.Deny || limit.InFlight == 0 || !w.agrees() {
		return
	}
	sum, atLeastOne := 0, false
	for _, r := range w.fleet {
		m := model{pool: r.pool, awaiting: r.awaiting, base: limit}
		sum += m.slots(false)
		atLeastOne = atLeastOne || r.conf.atLeastOne
	}
	if sum > limit.InFlight {
		pools := ""
		for _, r := range w.fleet {
			pools += fmt.Sprintf(" %d: %+v", r.id, r.pool)
		}
		w.broken("bound 5: %d replicas have %d slots of %d:%s", len(w.fleet), sum, limit.InFlight, pools)
	}
	bound := limit.InFlight
	if atLeastOne {
		bound = max(bound, w.total())
	}
	held := map[string]int{}
	for _, r := range w.fleet {
		if r.overrides() > 0 {
			return
		}
		for _, h := range r.kept {
			if h.over() {
				continue
			}
			if h.seq < w.changed {
				return
			}
			held[h.key] += h.slots
		}
	}
	for key, n := range held {
		if n > bound {
			w.broken("bound 5: %s: %d in flight over the fleet, of %d", key, n, limit.InFlight)
		}
	}
}

// agrees reports whether all replicas have one limit, bounded by their share, and none believes in fewer than
// there are, or that it counts as more than it does.
func (w *world) agrees() bool {
	if w.lends {
		return false
	}
	for _, r := range w.fleet {
		if r.conf.ceiling || describe(r.limit) != describe(w.fleet[0].limit) ||
			!r.awaiting && (r.pool.Replicas < w.total() || r.pool.Weight > r.weight) {
			return false
		}
	}
	return true
}

// fleetAdmitted is bound 2, and holds while no replica believes in fewer than there are. The fleet then
// admits in any window at most the rate times the window and max(burst, replicas). The debt of single calls
// that were larger than a replica's bucket comes on top.
func (w *world) fleetAdmitted(r *replica, key string, t *taking, n, due amounts) {
	limit := r.limit
	if w.plans || !w.agrees() || r.dry || r.overrides() > 0 {
		w.events = nil
		return
	}
	e := fleetEvent{key, r, t, n, due}
	place := len(w.events)
	for place > 0 && w.events[place-1].t.at.After(t.at) {
		place-- // calls that waited are taken up replica by replica
	}
	w.events = slices.Insert(w.events, place, e)
	for _, rate := range limit.Rates {
		if !windowed(rate) {
			w.holdFleet(key, rate, place)
		}
	}
}

// holdFleet holds every window that the event at a place is in.
func (w *world) holdFleet(key string, rate quotient.Rate, place int) {
	u := unitIndex(rate.Unit)
	perSecond := rate.Events / rate.Per.Seconds()
	burst := max(burstOf(rate), float64(w.total()))
	for last := place; last < len(w.events); last++ {
		sum, owed := 0.0, map[*replica]float64{}
		for i := last; i >= 0; i-- {
			e := &w.events[i]
			if e.key != key {
				continue
			}
			sum += min(e.n[u], e.t.net[u])
			owed[e.by] = max(owed[e.by], e.due[u])
			debt := .1 * float64(len(w.fleet))
			for _, d := range owed {
				debt += d
			}
			passed := w.events[last].t.at.Sub(e.t.at)
			if most := perSecond*passed.Seconds() + burst + debt + slack; i <= place && sum > most {
				w.broken("bound 2: %s, %+v: the fleet has admitted %.3f in %v, of %.3f", key, rate, sum,
					passed, most)
			}
		}
	}
}

// finish checks that no caller waits for ever.
func (w *world) finish() {
	w.tell("the end")
	for _, r := range w.fleet {
		r.hang(hook{})
		if r.dry {
			r.l.SetDryRun(false)
			r.dry = false
		}
		synctest.Wait()
		r.drain()
		if r.conf.stops && r.source != nil { // else its hints grow old after SetPool
			r.source.cancel()
			w.pass(r.conf.hintMaxAge)
			synctest.Wait()
		}
		w.setPool(r, quotient.Pool{Replicas: w.total(), Ordinal: 0})
	}
	w.pass(time.Minute)
	synctest.Wait()
	for _, r := range w.fleet {
		r.drain()
	}
	hour := time.Hour
	if w.zone != "" {
		hour *= 24 * 60 // a window may be as much longer than a minute
	}
	for range 40 {
		for _, r := range w.fleet {
			r.drain()
		}
		time.Sleep(hour)
		synctest.Wait()
	}
	for _, r := range w.fleet {
		r.drain()
		if len(r.calls) > 0 {
			c := r.calls[0]
			e := r.l.Explain(nameOf(c.key))
			w.broken("bound 7: replica %d %s: %d wait for ever, the first for %v: %s", r.id, c.key,
				len(r.calls), c.n, strings.ReplaceAll(e.String(), "\n", " "))
		}
		for k := range r.l.Keys() {
			if slices.ContainsFunc(k.Rules, func(x quotient.RuleState) bool { return x.ForgottenIn != 0 }) {
				w.broken("replica %d %s: what was learned hours ago is not forgotten: %+v", r.id, k.Key, k.Rules)
			}
		}
		r.fired = countsOf(r.l).Fired
		w.setLimit(r, quotient.Limit{})
		for plan := range r.plans {
			w.setPlan(r, plan, quotient.Limit{})
		}
		for k := range r.l.Keys() {
			if err := r.l.Override(k.Key, nil, 0); err != nil {
				w.Fatal(err)
			}
		}
		if n := r.l.Stats().Overrides; n != 0 {
			w.broken("replica %d: %d overrides are left", r.id, n)
		}
		synctest.Wait()
		r.drain()
		if len(r.calls) > 0 {
			w.broken("bound 7: replica %d: %d wait under no limit", r.id, len(r.calls))
		}
	}
}
