package quotient_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/bits"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/policy"
)

var onlyProfile = flag.String("judge.profile", "", "play only this profile of TestPropertyEverything")

// TestPropertyEverything plays histories that mix all that a limiter can be asked and told, on a fleet in fake time, and holds bounds 1, 2, 5,
// 6, 7, 8 and 11 after each step by models of its own (judge_model_test.go), counters and queues by counting itself, and that
// no caller waits for ever, and no timer fires without work.
func TestPropertyEverything(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		names := profileNames
		if *onlyProfile != "" {
			names = []string{*onlyProfile}
		}
		profile := among(rt, names, "profile")
		done := watchdog(profile)
		defer done()
		rapid.SyncTest(rt, func(rt *rapid.T) { newWorld(rt, profiles[profile]).play() })
	})
}

// watchdog ends the test when a history takes so long that a timer must be spinning: in fake time nothing else takes long.
func watchdog(profile string) (done func()) {
	const patience = 20 * time.Second
	t := time.AfterFunc(patience, func() {
		buf := make([]byte, 1<<20)
		fmt.Fprintf(os.Stderr, "a history of profile %s takes over %v: a timer fires again and again\n%s\n", profile, patience, buf[:runtime.Stack(buf, true)])
		os.Exit(2)
	})
	return func() { t.Stop() }
}

// op is one kind of step.
type op int

const (
	opAllow op = iota
	opTry
	opUpTo
	opAcquire
	opSleep
	opRelease
	opReport
	opCorrect
	opCorrectRequests
	opExpire
	opLimit
	opOverride
	opDeny
	opDryRun
	opPool
	opPoolFor
	opTell
	opGarbage
	opLie
	opClock
	opCancel
	opJoin
	opLeave
	opSilence
	opForget
	opLook
	opComeBack
	opHook
	numOps
)

// profile is how often each op comes, and what the world is like.
type profile struct {
	weights  [numOps]int
	keys     int
	replicas int // at most
	maxKeys  int // at most
	steps    int
	laws     bool     // also policies that learn
	windows  int      // of ten rates, how many are aligned
	paced    int      // of ten rates, how many are paced
	costs    bool     // asks with costs
	units    []string // of rates
	rates    int      // at most
	pers     []int    // of rates, ms
	slots    int      // of ten limits, how many have slots
	hooks    bool
	holds    bool // MaxHold
}

var general = [numOps]int{
	opAllow: 4, opTry: 10, opUpTo: 6, opAcquire: 10, opSleep: 16, opRelease: 10, opReport: 2, opCorrect: 5, opCorrectRequests: 4, opExpire: 2,
	opLimit: 3, opOverride: 2, opDeny: 1, opDryRun: 1, opPool: 2, opPoolFor: 1, opTell: 3, opGarbage: 1, opLie: 1, opClock: 1,
	opCancel: 3, opJoin: 1, opLeave: 1, opSilence: 1, opForget: 1, opLook: 2, opComeBack: 2, opHook: 1,
}

// with is general with other weights.
func with(w map[op]int) [numOps]int {
	all := general
	for k, v := range w {
		all[k] = v
	}
	return all
}

var (
	mixed, requests = []string{"", "", "tok", "row"}, []string{""}
	fast, slow      = []int{100, 1000, 10_000, 60_000}, []int{5000, 20_000, 60_000}
)

var profiles = map[string]profile{
	"general": {weights: general, keys: 4, replicas: 4, maxKeys: 6, steps: 60, laws: true, windows: 3, paced: 2, costs: true, units: mixed, pers: fast, rates: 3, slots: 5, hooks: true, holds: true},
	"costs": {
		weights: with(map[op]int{
			opTry: 25, opUpTo: 10, opCorrect: 30, opCorrectRequests: 15, opSleep: 20, opExpire: 5, opRelease: 8, opAcquire: 3, opTell: 0, opLie: 0, opClock: 0,
			opJoin: 0, opLeave: 0, opSilence: 1, opAllow: 1, opPool: 1, opPoolFor: 0, opLimit: 2, opOverride: 1, opDeny: 0, opDryRun: 0, opGarbage: 0, opLook: 0,
		}), keys: 1, replicas: 1, maxKeys: 8, steps: 60, windows: 1, costs: true, units: []string{"tok", "tok", "tok", ""}, pers: slow, rates: 1, slots: 2, holds: true,
	},
	"limits": {
		weights: with(map[op]int{opAcquire: 30, opCancel: 15, opLimit: 12, opOverride: 6, opDeny: 1, opHook: 12, opSleep: 20, opTell: 0, opLie: 0, opSilence: 0, opDryRun: 0, opGarbage: 0, opForget: 0, opAllow: 1, opJoin: 0, opClock: 0}),
		keys:    1, replicas: 1, maxKeys: 8, steps: 50, windows: 2, paced: 2, costs: true, units: mixed, pers: []int{1000, 20_000, 60_000}, rates: 2, slots: 7, hooks: true,
	},
	"clocks": {
		weights: with(map[op]int{opClock: 12, opSleep: 30, opAllow: 10, opTry: 15, opAcquire: 12, opTell: 1, opPool: 3, opLie: 0, opUpTo: 8}),
		keys:    1, replicas: 3, maxKeys: 8, steps: 60, windows: 8, paced: 3, costs: true, units: mixed, pers: fast, rates: 3, slots: 2,
	},
	"hints": {
		weights: with(map[op]int{opTell: 25, opSilence: 10, opJoin: 5, opLeave: 5, opGarbage: 4, opLie: 3, opPool: 1, opSleep: 25, opTry: 20, opRelease: 15, opCorrect: 0}),
		keys:    1, replicas: 6, maxKeys: 8, steps: 70, units: requests, pers: fast, rates: 2, slots: 9, laws: true,
	},
	"keys": {
		weights: with(map[op]int{opTry: 25, opAcquire: 12, opOverride: 5, opDeny: 3, opForget: 2, opSleep: 20, opLook: 5, opTell: 0}),
		keys:    6, replicas: 1, maxKeys: 3, steps: 70, windows: 2, paced: 1, costs: true, units: mixed, pers: fast, rates: 3, slots: 5, laws: true,
	},
}

var profileNames = []string{"general", "costs", "limits", "clocks", "hints", "keys"}

// world is a fleet, and what the judge knows of it.
type world struct {
	*rapid.T
	profile
	fleet   []*replica
	born    int
	seq     int
	fixed   bool // ordinals are fixed by construction
	lied    bool // of ordinals
	changed int  // seq of the last change of what anybody believes, or of a limit
	fleetwide
	story []string
	mu    sync.Mutex
}

// fleetwide holds the fleet's bound for one key: admissions since all replicas were last right about the pool and of one mind about the limit.
type fleetwide struct {
	since  time.Time
	events []fleetEvent
}

type fleetEvent struct {
	key string
	by  *replica
	t   *taking
	n   amounts // at most what was asked for
	due amounts // of it: above the replica's bucket, and owed
}

// replica is one limiter and what the judge knows of it.
type replica struct {
	l        *quotient.Limiter
	w        *world
	id       int
	conf     config
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
	hook     hook
	fired    uint64
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

// set sets the clock by so much, and returns how far it is off then. It takes a nanosecond, so that no instant has two readings.
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
	key    string
	p      quotient.Permit
	t      *taking
	extra  []*taking // corrections upwards, the last at the end
	told   amounts
	weight int
	slots  int
	seq    int
	ends   time.Time // zero: never
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

func newWorld(t *rapid.T, p profile) *world {
	w := &world{T: t, profile: p, fixed: coin(t, "fixed ordinals")}
	w.since = time.Now()
	n := pick(t, 1, p.replicas, "replicas")
	limit := w.drawLimit("limit")
	c := w.drawConfig()
	for i := range n {
		w.start(limit, c, quotient.Pool{Replicas: n, Ordinal: i + 1, Fixed: w.fixed}, false)
	}
	return w
}

func (w *world) tell(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.story = append(w.story, time.Now().Format("15:04:05.000000000 ")+fmt.Sprintf(format, args...))
}

// broken ends the history.
func (w *world) broken(format string, args ...any) {
	w.Helper()
	w.mu.Lock()
	for _, line := range w.story {
		w.Log(line)
	}
	w.mu.Unlock()
	w.Fatalf(format, args...)
}

func (w *world) drawConfig() config {
	t := w.T
	c := config{
		maxKeys: pick(t, 1, w.maxKeys, "max keys"), perKey: 1000, total: 1000,
		holdDown: time.Duration(pick(t, 1, 5, "hold-down"))*time.Second + 13*time.Nanosecond,
	}
	if pick(t, 0, 3, "bounded queue") == 0 {
		c.perKey, c.total = pick(t, 0, 4, "per key"), pick(t, 1, 6, "total")
	}
	if pick(t, 0, 3, "patience") == 0 {
		c.maxWait = time.Duration(pick(t, 1, 9, "max wait")) * time.Second
	}
	if w.holds && pick(t, 0, 2, "holds") == 0 {
		c.maxHold = time.Duration(pick(t, 1, 6, "max hold")) * time.Second
	}
	if pick(t, 0, 3, "ages") == 0 {
		c.hintMaxAge = time.Duration(pick(t, 2, 20, "hint max age"))*time.Second + 7*time.Nanosecond
	}
	c.atLeastOne = pick(t, 0, 3, "at least one") == 0
	c.learns = w.laws && pick(t, 0, 2, "learns") == 0
	c.ceiling = c.learns && pick(t, 0, 2, "ceiling") == 0
	c.hooked = w.hooks && (w.keys == 1 || coin(t, "hooked"))
	c.awaits = c.hintMaxAge > 0 && pick(t, 0, 2, "awaits") == 0
	return c
}

// lie is a law that answers anything, the same to the same seed.
type lie struct{ seed uint64 }

type lieLaw struct{ x uint64 }

// New starts at five a second.
func (l lie) New(seed uint64) policy.Law { return &lieLaw{seed ^ l.seed} }

func (l *lieLaw) Next(s policy.Sample, b policy.Bounds) policy.Pace {
	l.x = l.x*6364136223846793005 + 1442695040888963407
	pace := policy.Pace{Rate: float64(l.x>>40%1000) / 20}
	switch l.x >> 33 % 9 {
	case 0:
		pace.NotBefore = s.Now + time.Duration(l.x>>20%3000)*time.Millisecond
	case 1:
		pace.Rate = -1
	case 2:
		pace.Until = s.Now + time.Duration(l.x>>20%3000)*time.Millisecond
	}
	return pace
}

func (w *world) drawPolicy() policy.Policy {
	ramp := policy.Ramp{Mode: policy.RampMode(pick(w.T, 0, 3, "ramp")), Start: .2, Over: 5 * time.Second, CoolDown: 2 * time.Second}
	return among(w.T, []policy.Policy{policy.AIMD{}, policy.Tracking{}, ramp, lie{7}, lie{8}}, "policy")
}

// start adds a replica to the fleet.
func (w *world) start(limit quotient.Limit, c config, p quotient.Pool, joins bool) *replica {
	c.joins = joins || pick(w.T, 0, 3, "joins") == 0
	r := &replica{w: w, id: w.born, conf: c, keys: map[string]*keyState{}, pool: p, awaiting: c.awaits, limit: limit, done: make(chan *call, 1000), exact: !c.learns}
	w.born++
	opts := []quotient.Option{
		quotient.MaxKeys(c.maxKeys), quotient.MaxWait(c.maxWait), quotient.MaxWaiting(c.perKey, c.total), quotient.MaxHold(c.maxHold),
		quotient.HoldDown(c.holdDown), quotient.HintMaxAge(c.hintMaxAge), quotient.WithPhase(3), quotient.WithWallClock(r.clock.at),
		quotient.Logger(slog.New(listener{slog.DiscardHandler, r})),
	}
	if c.joins {
		opts = append(opts, quotient.JoinPool(p))
	} else {
		opts = append(opts, quotient.StartPool(p))
	}
	if c.awaits {
		opts = append(opts, quotient.AwaitPool())
	}
	if c.atLeastOne {
		opts = append(opts, quotient.AtLeastOne())
	}
	if c.learns {
		ceiling := quotient.CeilingShare
		if c.ceiling {
			ceiling = quotient.CeilingLimit
		}
		opts = append(opts, quotient.Policy(w.drawPolicy(), ceiling))
	}
	if c.hooked {
		opts = append(opts, quotient.OnWait(r.onWait), quotient.OnAdmit(r.onAdmit))
	}
	l, err := quotient.New(limit, opts...)
	if err != nil {
		w.Fatal(err)
	}
	r.l = l
	r.learn(limit)
	w.fleet = append(w.fleet, r)
	w.tell("replica %d starts: %v, %+v, limit %s", r.id, p, c, describe(limit))
	w.changes()
	return r
}

// learn notes the units of a limit, and reports whether all were known.
func (r *replica) learn(l quotient.Limit) (all bool) {
	all = true
	for _, rate := range l.Rates {
		u := unitIndex(rate.Unit)
		all = all && (u == 0 || r.known[u])
		r.known[u] = true
	}
	return all
}

func describe(l quotient.Limit) string {
	if l.Denies() {
		return "deny"
	}
	return fmt.Sprintf("%+v in flight %d", l.Rates, l.InFlight)
}

// changes notes that what somebody believes has changed.
func (w *world) changes() {
	w.seq++
	w.changed = w.seq
	w.since, w.events = time.Now(), nil
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
	if rec.Message != "pool changed" {
		return nil
	}
	rec.Attrs(func(a slog.Attr) bool {
		if a.Key == "new" {
			h.r.pooled(a.Value.Any().(quotient.Pool))
		}
		return true
	})
	return nil
}

// pooled is told of a pool that has come into force.
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
			*m = model{joins: r.conf.joins || r.conf.awaits, learns: r.conf.ceiling, phase: 3}
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

// again has the generous model play the whole history anew: something that was taken is less now.
func (k *keyState) again() { k.hi, k.fed = k.start, 0; k.hi.rules = nil }

func (r *replica) onWait(string, time.Duration) {
	h := r.hook
	if h.panicOnWait {
		panic("OnWait")
	}
	time.Sleep(h.sleepOnWait)
}

func (r *replica) onAdmit(string, time.Duration, time.Duration) {
	h := r.hook
	if h.panicOnAdmit {
		panic("OnAdmit")
	}
}

// play plays a history, and the end of it.
func (w *world) play() {
	defer w.close()
	sum := 0
	for _, n := range w.weights {
		sum += n
	}
	for _, r := range w.fleet {
		w.begin(r)
	}
	for range pick(w.T, 1, w.steps, "steps") {
		x := pick(w.T, 0, sum-1, "op")
		for o, n := range w.weights {
			if x -= n; x < 0 {
				w.step(op(o))
				break
			}
		}
		synctest.Wait()
		w.judge()
	}
	w.finish()
}

// begin plays the start of a replica, which was noted before its models.
func (w *world) begin(r *replica) {
	base, pool := r.limit, r.pool
	r.note(item{at: time.Now(), pool: &pool, awaiting: r.awaiting})
	r.note(item{at: time.Now(), base: &base})
}

func (w *world) close() {
	for _, r := range w.fleet {
		for _, c := range r.calls {
			c.cancel()
		}
		if r.source != nil {
			r.source.cancel()
		}
		_ = r.l.SetPool(quotient.Pool{Replicas: 1}) // ends the timer of a SetPoolFor
	}
	time.Sleep(10 * time.Second) // for whom a hook holds up
	synctest.Wait()
}

// judge takes up what has happened since the last step, and holds it against the models.
func (w *world) judge() {
	for _, r := range w.fleet {
		r.collect()
	}
	for _, r := range w.fleet {
		r.waitingIsRight()
		r.believesIsRight()
		r.slotsAreRight()
		r.spinsNot()
	}
	w.slotsOfTheFleet()
	if pick(w.T, 0, 3, "count") == 0 {
		for _, r := range w.fleet {
			r.countsAreRight()
		}
	}
}

// collect takes up the calls that have returned.
func (r *replica) collect() {
	var ended []*call
	for range len(r.done) {
		ended = append(ended, <-r.done)
	}
	slices.SortStableFunc(ended, func(a, b *call) int { return a.at.Compare(b.at) })
	r.calls = slices.DeleteFunc(r.calls, func(c *call) bool { return slices.Contains(ended, c) })
	for _, c := range ended {
		r.returned(c)
	}
}

// returned judges a call that has ended.
func (r *replica) returned(c *call) {
	w := r.w
	w.tell("replica %d %s: Acquire of %v in class %v ends: %v %v", r.id, c.key, c.n, c.class, c.err, c.panic)
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
			r.refused(c.key, c.n, c.class, c.err)
		}
	case errors.Is(c.err, context.Canceled), errors.Is(c.err, context.DeadlineExceeded):
		r.counts.cancelled++
		if c.slow { // it may have been admitted, and have come back only in part
			_, place := r.key(c.key).when(c.at)
			r.key(c.key).insert(place, item{at: c.at, took: &taking{at: c.at, gross: c.n}})
		}
	default:
		r.counts.refused++
	}
}

// inOrder holds bound 8: no older waiter of the same class is left behind.
func (r *replica) inOrder(c *call) {
	if quotient.IsDry(c.permit) || r.conf.hooked {
		return
	}
	for _, o := range r.calls {
		if o.key == c.key && o.class == c.class && o.seq < c.seq {
			r.w.broken("bound 8: replica %d %s: call %d was admitted before call %d of its class, which came first", r.id, c.key, c.seq, o.seq)
		}
	}
}

// admitted judges an admission, and notes it.
func (r *replica) admitted(key string, n amounts, p quotient.Permit, at time.Time, waited, slow bool) *held {
	r.counts.admitted++
	h := &held{key: key, p: p, weight: int(n[0]), told: n}
	r.w.seq++
	h.seq = r.w.seq
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
	w.fleetAdmitted(r, key, h.t, n, due)
	return h
}

// forbids is why n must not be admitted; "" when nothing forbids it.
func (r *replica) forbids(m *model, key string, n amounts, at time.Time) string {
	limit := m.limit()
	if limit.Denies() || m.awaiting && (len(limit.Rates) > 0 || limit.InFlight > 0) {
		return fmt.Sprintf("replica %d %s: admitted, but the limit is %s and the pool awaited is %v", r.id, key, describe(limit), m.awaiting)
	}
	if rule := m.lacks(n); rule != "" {
		return fmt.Sprintf("bound 1: replica %d %s: %v admitted, but %s has no room: %+v", r.id, key, n, rule, m.rules)
	}
	if s, used := m.slots(r.conf.atLeastOne), r.used(key, at); s >= 0 && used+int(n[0]) > s {
		return fmt.Sprintf("bound 5: replica %d %s: %v slots taken beside %d, of %d", r.id, key, n[0], used, s)
	}
	return ""
}

// used is the slots of a key that are held by permits whose time is not over.
func (r *replica) used(key string, at time.Time) int {
	n := 0
	for _, h := range r.kept {
		if h.key == key && !h.overAt(at) {
			n += h.slots
		}
	}
	return n
}

func (h *held) over() bool { return h.overAt(time.Now()) }

func (h *held) overAt(at time.Time) bool { return !h.ends.IsZero() && !h.ends.After(at) }

// refused judges a refusal that was told, and one that makes a caller wait: with nobody before it there must be something that has
// no room, also if nothing had ever come back.
func (r *replica) refused(key string, n amounts, class quotient.Priority, err error) {
	var limited *quotient.LimitedError
	if !errors.As(err, &limited) {
		return
	}
	switch limited.Reason {
	case quotient.ReasonTooLarge, quotient.ReasonShare, quotient.ReasonDenied, quotient.ReasonPool, quotient.ReasonAsk:
		return
	}
	for _, c := range r.calls {
		if c.key == key {
			return
		}
	}
	if r.certain(key, n) {
		r.w.broken("replica %d %s: %v refused though there is room: %v: %+v", r.id, key, n, err, r.key(key).lo.rules)
	}
}

// certain reports whether there is room for n for certain.
func (r *replica) certain(key string, n amounts) bool {
	if n := quotient.CountsOf(r.l); !r.exact || r.stepped || r.dry || r.awaiting || n.Overflowed+n.Expired > 0 {
		return false
	}
	_, lo := r.key(key).upToNow()
	limit := lo.limit()
	if limit.Denies() || lo.turns() || lo.lacks(n) != "" {
		return false
	}
	for _, rate := range limit.Rates {
		most := float64(rate.Burst)
		if rate.Burst == 0 {
			most = max(1, rate.Events/rate.Per.Seconds())
		}
		if rate.Aligned {
			most = rate.Events
		}
		if n[unitIndex(rate.Unit)] > most-1e-9 && n[unitIndex(rate.Unit)] != most {
			return false
		}
	}
	s := lo.slots(r.conf.atLeastOne)
	return s < 0 || r.used(key, time.Now())+int(n[0]) <= s
}

// waitingIsRight holds that no caller waits while the next of its key could be admitted.
func (r *replica) waitingIsRight() {
	byKey := map[string][]*call{}
	for _, c := range r.calls {
		if c.slow {
			return // it may not have looked yet
		}
		byKey[c.key] = append(byKey[c.key], c)
	}
	for key, calls := range byKey {
		all := true
		for _, c := range calls {
			all = all && r.certain(key, c.n)
		}
		if all {
			r.w.broken("bound 7: replica %d %s: %d wait though there is room for each: %v: %+v", r.id, key, len(calls), calls[0].n, r.key(key).lo.rules)
		}
	}
}

// believesIsRight holds what is in force against what was said.
func (r *replica) believesIsRight() {
	p := r.l.Pool()
	if !r.awaiting && p != r.pool {
		r.w.broken("replica %d believes %+v, and has logged %+v", r.id, p, r.pool)
	}
	if r.words || len(r.seen) == 0 || r.conf.hintMaxAge > 0 {
		return
	}
	now, most := time.Now(), 0
	for i, s := range r.seen {
		if i+1 == len(r.seen) || now.Sub(r.seen[i+1].at) < r.conf.holdDown {
			most = max(most, s.p.Replicas)
		}
	}
	if p.Replicas != most {
		r.w.broken("replica %d believes in %d, and was told of %d within the hold-down: %+v", r.id, p.Replicas, most, r.seen)
	}
	if want := r.ordinal(now, most); p.Fixed && want == 0 {
		r.w.broken("bound 5: replica %d holds ordinal %d for fixed, which was not said again and again for one hold-down: %+v", r.id, p.Ordinal, r.seen)
	}
}

// ordinal is the one that may count for slots: said to be fixed, or said again and again for one hold-down and nothing else meanwhile.
func (r *replica) ordinal(now time.Time, most int) int {
	last := r.seen[len(r.seen)-1]
	if last.p.Fixed {
		return last.p.Ordinal
	}
	if last.p.Replicas != most || now.Sub(last.at) >= r.conf.holdDown {
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

// slotsAreRight is bound 5 for the pool that is believed.
func (r *replica) slotsAreRight() {}

// spinsNot holds that timers fire for something.
func (r *replica) spinsNot() {
	n := quotient.CountsOf(r.l).Fired
	if n-r.fired > 20_000 {
		r.w.broken("replica %d: timers have fired %d times in one step", r.id, n-r.fired)
	}
	r.fired = n
}

// slotsOfTheFleet is bound 5: while nobody believes in fewer replicas than there are, the parts of the slots add up to the limit at most, and
// so does what is held of them by permits that are younger than the last change.
func (w *world) slotsOfTheFleet() {
	limit := w.fleet[0].limit
	if w.lied || limit.Denies() || limit.InFlight == 0 || !w.agrees() {
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
		bound = max(bound, len(w.fleet))
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

// agrees reports whether all replicas have one limit, bounded by their share, and none believes in fewer than there are.
func (w *world) agrees() bool {
	for _, r := range w.fleet {
		if r.conf.ceiling || describe(r.limit) != describe(w.fleet[0].limit) || !r.awaiting && r.pool.Replicas < len(w.fleet) {
			return false
		}
	}
	return true
}

// fleetAdmitted is bound 2: while no replica believes in fewer than there are, what the fleet admits in any window is at most
// the rate times the window and max(burst, replicas), and what is owed of single asks that were larger than a replica's bucket.
func (w *world) fleetAdmitted(r *replica, key string, t *taking, n, due amounts) {
	limit := r.limit
	if !w.agrees() || r.dry || r.overrides() > 0 {
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
		if !rate.Aligned {
			w.holdFleet(key, rate, place)
		}
	}
}

// holdFleet holds every window that the event at a place is in.
func (w *world) holdFleet(key string, rate quotient.Rate, place int) {
	u := unitIndex(rate.Unit)
	perSecond := rate.Events / rate.Per.Seconds()
	burst := float64(rate.Burst)
	if rate.Burst == 0 {
		burst = max(1, perSecond)
	}
	burst = max(burst, float64(len(w.fleet)))
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
				w.broken("bound 2: %s, %s: the fleet has admitted %.3f in %v, of %.3f", key, rate, sum, passed, most)
			}
		}
	}
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
		r.w.broken("replica %d: counts admitted, refused or cancelled, admitted in a dry run, in flight: %s, want %s", r.id, got, want)
	}
	if !r.slow() && s.Waiting != len(r.calls) {
		r.w.broken("replica %d: counts %d waiting, and %d wait", r.id, s.Waiting, len(r.calls))
	}
	if most := r.conf.maxKeys + s.Overrides; s.Keys > most && s.Overrides == 0 && r.overrides() == 0 {
		r.w.broken("replica %d: remembers %d keys of %d", r.id, s.Keys, most)
	}
}

// overrides is how often a key was given a limit of its own: one that has had one may be remembered beside MaxKeys until it is idle.
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

// finish holds that no caller waits for ever.
func (w *world) finish() {
	w.tell("the end")
	for _, r := range w.fleet {
		r.hook = hook{}
		if r.dry {
			r.l.SetDryRun(false)
			r.dry = false
		}
		synctest.Wait()
		r.drain()
		w.setPool(r, quotient.Pool{Replicas: len(w.fleet), Ordinal: 0})
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	for _, r := range w.fleet {
		r.drain()
	}
	for range 40 {
		for _, r := range w.fleet {
			r.drain()
		}
		time.Sleep(time.Hour)
		synctest.Wait()
	}
	for _, r := range w.fleet {
		r.drain()
		if !r.conf.learns && len(r.calls) > 0 {
			c := r.calls[0]
			e := r.l.Explain(c.key)
			w.broken("bound 7: replica %d %s: %d wait for ever, the first for %v: %s", r.id, c.key, len(r.calls), c.n, strings.ReplaceAll(e.String(), "\n", " "))
		}
		r.fired = quotient.CountsOf(r.l).Fired
		w.setLimit(r, quotient.Limit{})
		for key := range r.l.Overrides() {
			if err := r.l.Override(key, nil); err != nil {
				w.Fatal(err)
			}
		}
		synctest.Wait()
		r.drain()
		if len(r.calls) > 0 {
			w.broken("bound 7: replica %d: %d wait under no limit", r.id, len(r.calls))
		}
	}
}

// drain takes up who has returned, and releases their permits.
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

var _ = testing.Short

// Draws that are uniform, since rapid's own prefer small numbers: in histories of many kinds of steps the last kinds would hardly come.

var uniform sync.Map // of generators, by how many numbers they have to choose from

func uniformly(t *rapid.T, n int, label string) int {
	g, ok := uniform.Load(n)
	if !ok {
		bit := rapid.Bool()
		g, _ = uniform.LoadOrStore(n, rapid.Custom(func(t *rapid.T) int {
			x := 0
			for range bits.Len(uint(n)) + 3 {
				if x *= 2; bit.Draw(t, "bit") {
					x++
				}
			}
			return x % n
		}))
	}
	return g.(*rapid.Generator[int]).Draw(t, label)
}

// pick is a number of least to most.
func pick(t *rapid.T, least, most int, label string) int {
	return least + uniformly(t, most-least+1, label)
}

// among is one of a list.
func among[T any](t *rapid.T, list []T, label string) T { return list[uniformly(t, len(list), label)] }

func coin(t *rapid.T, label string) bool { return uniformly(t, 2, label) == 1 }
