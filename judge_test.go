package quotient_test

import (
	"flag"
	"fmt"
	"hash/fnv"
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

// TestPropertyEverything plays histories that mix all calls of a limiter, on a fleet in fake time. After each
// step it holds bounds 1, 2, 5, 6, 7, 8 and 11 by models of its own (judge_model_test.go), and counters and
// queues by counting itself. No caller waits for ever, and no timer fires without work.
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

// watchdog ends the test when a history takes so long that a timer must be spinning: in fake time nothing
// else takes long.
func watchdog(profile string) (done func()) {
	const patience = 20 * time.Second
	t := time.AfterFunc(patience, func() {
		buf := make([]byte, 1<<20)
		fmt.Fprintf(os.Stderr, "a history of profile %s takes over %v: a timer fires again and again\n%s\n",
			profile, patience, buf[:runtime.Stack(buf, true)])
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
	opReset
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
	opPlan
	opAll
	opLend
	numOps
)

// profile is how often each op comes, and what the world is like.
type profile struct {
	weights  [numOps]int
	keys     int
	replicas int // at most
	maxKeys  int // at most
	steps    int
	ctrls    bool     // also policies that learn
	windows  int      // of ten rates, how many are aligned
	paced    int      // of ten rates, how many are paced
	costs    bool     // calls with costs
	units    []string // of rates
	rates    int      // at most
	pers     []int    // of rates, ms
	bursts   []int    // of rates; 0: the default
	sleeps   []int    // ms
	priced   int      // of so many calls one has no cost
	slots    int      // of ten limits, how many have slots
	hooks    bool
	holds    bool // MaxHold
	plans    bool // calls of plans
}

var general = [numOps]int{
	opAllow: 4, opTry: 10, opUpTo: 6, opAcquire: 10, opSleep: 16, opRelease: 10, opReport: 2, opCorrect: 5,
	opCorrectRequests: 4, opExpire: 2,
	opLimit: 3, opOverride: 2, opDeny: 1, opReset: 2, opDryRun: 1, opPool: 2, opPoolFor: 1, opTell: 3,
	opGarbage: 1, opLie: 1, opClock: 1,
	opCancel: 3, opJoin: 1, opLeave: 1, opSilence: 1, opForget: 1, opLook: 2, opComeBack: 2, opHook: 1,
	opAll: 3, opLend: 6,
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
	fast, slow      = []int{100, 1000, 10_000, 60_000}, []int{1000, 10_000, 60_000}
	anyBurst        = []int{0, 1, 2, 3, 5, 8, 13, 20}
	anySleep        = []int{0, 1, 7, 50, 100, 333, 1000, 2500, 8000}
)

var profiles = map[string]profile{
	"general": {weights: general, keys: 4, replicas: 4, maxKeys: 6, steps: 60, ctrls: true, windows: 3,
		paced: 2, costs: true, units: mixed, pers: fast, bursts: anyBurst, sleeps: anySleep, priced: 2,
		rates: 3, slots: 5, hooks: true, holds: true},
	"costs": {
		weights: with(map[op]int{
			opTry: 25, opUpTo: 10, opCorrect: 30, opCorrectRequests: 15, opSleep: 20, opExpire: 5,
			opRelease: 8, opAcquire: 3, opTell: 0, opLie: 0, opClock: 0,
			opJoin: 0, opLeave: 0, opSilence: 1, opAllow: 1, opPool: 1, opPoolFor: 0, opLimit: 2,
			opOverride: 1, opDeny: 0, opDryRun: 0, opGarbage: 0, opLook: 0,
		}), keys: 1, replicas: 1, maxKeys: 8, steps: 60, windows: 1, costs: true,
		units: []string{"tok", "tok", "tok", ""}, pers: []int{10_000}, bursts: []int{10},
		sleeps: []int{1, 500, 2000, 7000, 9000}, priced: 9, rates: 1, slots: 2, holds: true,
	},
	"holds": {
		weights: with(map[op]int{
			opTry: 30, opUpTo: 0, opAllow: 0, opCorrect: 20, opCorrectRequests: 0, opSleep: 30, opExpire: 5,
			opRelease: 8, opAcquire: 3, opTell: 0,
			opLie: 0, opClock: 0, opJoin: 0, opLeave: 0, opSilence: 0, opForget: 0, opPool: 0, opPoolFor: 0,
			opLimit: 1, opOverride: 0, opDeny: 0,
			opDryRun: 0, opGarbage: 0, opLook: 0, opHook: 0, opCancel: 1,
		}), keys: 1, replicas: 1, maxKeys: 8, steps: 60, costs: true, units: []string{"tok"}, pers: slow,
		bursts: []int{5, 10},
		sleeps: []int{1, 300, 1000, 2000}, priced: 9, rates: 1, slots: 2, holds: true,
	},
	"limits": {
		weights: with(map[op]int{opAcquire: 30, opCancel: 15, opLimit: 12, opOverride: 6, opDeny: 1,
			opHook: 12, opSleep: 20, opTell: 0, opLie: 0, opSilence: 0, opDryRun: 0, opGarbage: 0,
			opForget: 0, opAllow: 1, opJoin: 0, opClock: 0}),
		keys: 1, replicas: 1, maxKeys: 8, steps: 50, windows: 2, paced: 2,
		units: []string{"", "", "", "tok"}, costs: true, pers: []int{1000, 60_000}, bursts: []int{1, 10},
		sleeps: []int{1, 50, 333, 1000}, priced: 2, rates: 1, slots: 7, hooks: true,
	},
	"clocks": {
		weights: with(map[op]int{opClock: 12, opSleep: 30, opAllow: 10, opTry: 15, opAcquire: 12, opTell: 1,
			opPool: 3, opLie: 0, opUpTo: 8}),
		keys: 1, replicas: 3, maxKeys: 8, steps: 60, windows: 8, paced: 3, costs: true, units: mixed,
		pers: fast, bursts: anyBurst, sleeps: anySleep, priced: 2, rates: 3, slots: 2,
	},
	"hints": {
		weights: with(map[op]int{opTell: 25, opSilence: 10, opJoin: 5, opLeave: 5, opGarbage: 4, opLie: 3,
			opPool: 1, opSleep: 25, opTry: 20, opRelease: 15, opCorrect: 0}),
		keys: 1, replicas: 6, maxKeys: 8, steps: 70, units: requests, pers: fast, bursts: anyBurst,
		sleeps: anySleep, priced: 2, rates: 2, slots: 9, ctrls: true,
	},
	"keys": {
		weights: with(map[op]int{opTry: 25, opAcquire: 12, opOverride: 5, opDeny: 3, opForget: 2, opSleep: 20,
			opLook: 5, opTell: 0}),
		keys: 6, replicas: 1, maxKeys: 3, steps: 70, windows: 2, paced: 1, costs: true, units: mixed,
		pers: fast, bursts: anyBurst, sleeps: anySleep, priced: 2, rates: 3, slots: 5, ctrls: true,
	},
}

var profileNames = []string{"general", "costs", "holds", "limits", "clocks", "hints", "keys", "plans"}

// planNames are those of a profile with plans; "" is the limiter's own limit. A limit of a key's own begins
// with what is left of the plan that the key is in, which the models do not follow.
var planNames = []string{"", "gold", "tin"}

func init() {
	profiles["plans"] = profile{
		weights: with(map[op]int{opPlan: 8, opOverride: 0, opDeny: 0, opTry: 25, opAcquire: 20, opTell: 5,
			opLie: 1, opJoin: 2, opLeave: 2, opAll: 6}),
		plans: true, keys: 3, replicas: 3, maxKeys: 6, steps: 70, windows: 3, paced: 1, costs: true,
		units: mixed, pers: fast, bursts: anyBurst, sleeps: anySleep, priced: 2, rates: 2, slots: 4,
		ctrls: true, holds: true, hooks: true,
	}
}

// world is a fleet, and what the judge knows of it.
type world struct {
	*rapid.T
	profile
	fleet   []*replica
	born    int
	seq     int
	fixed   bool // ordinals are fixed by construction
	heavy   int  // the largest weight
	lied    bool // of ordinals
	lends   bool // replicas borrow, and so the fleet's bounds are others
	changed int  // seq of the last change of a belief or of a limit
	fleetwide
	story []string
	mu    sync.Mutex
}

// fleetwide holds the fleet's bound for one key: admissions since all replicas were last right about the pool
// and of one mind about the limit.
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

func newWorld(t *rapid.T, p profile) *world {
	w := &world{T: t, profile: p, fixed: coin(t, "fixed ordinals"), heavy: 1}
	w.since = time.Now()
	if coin(t, "weights") {
		w.heavy = 3
	}
	weights, n := make([]int, pick(t, 1, p.replicas, "replicas")), 0
	for i := range weights {
		weights[i] = pick(t, 1, w.heavy, "weight of a replica")
		n += weights[i]
	}
	w.lends = w.chance(3, "lends")
	limit := w.drawLimit("limit")
	c := w.drawConfig()
	before := 0
	for _, weight := range weights {
		w.start(limit, c, quotient.Pool{Replicas: n, Ordinal: before + 1, Fixed: w.fixed,
			Weight: plain(weight)}, false)
		before += weight
	}
	return w
}

// plain is a weight as a pool has it: 0 stands for 1.
func plain(weight int) int {
	if weight == 1 {
		return 0
	}
	return weight
}

// total is how many replicas there are, each counted by its weight.
func (w *world) total() (n int) {
	for _, r := range w.fleet {
		n += r.weight
	}
	return n
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
	if w.holds && (w.priced == 9 && w.keys == 1 || pick(t, 0, 2, "holds") == 0) {
		c.maxHold = time.Duration(pick(t, 1, 6, "max hold")) * time.Second
	}
	if pick(t, 0, 3, "ages") == 0 {
		c.hintMaxAge = time.Duration(pick(t, 2, 20, "hint max age"))*time.Second + 7*time.Nanosecond
	}
	c.atLeastOne = pick(t, 0, 3, "at least one") == 0
	c.learns = w.ctrls && pick(t, 0, 2, "learns") == 0
	c.ceiling = c.learns && pick(t, 0, 2, "ceiling") == 0
	c.hooked = w.hooks && (w.keys == 1 || coin(t, "hooked"))
	c.awaits = c.hintMaxAge > 0 && coin(t, "awaits")
	c.stops = c.awaits && !c.ceiling && coin(t, "stops")
	return c
}

// lie is a controller that answers anything, the same to the same seed.
type lie struct{ seed uint64 }

type lieController struct{ x uint64 }

// New starts at five a second.
func (l lie) New(seed uint64) policy.Controller { return &lieController{seed ^ l.seed} }

func (l *lieController) Next(s policy.Sample, b policy.Bounds) policy.Pace {
	l.x = l.x*6364136223846793005 + 1442695040888963407
	pace := policy.Pace{Rate: float64(l.x>>40%1000) / 20}
	switch l.x >> 33 % 9 {
	case 0:
		pace.NotBefore = s.Now + time.Duration(l.x>>20%3000)*time.Millisecond
	case 1:
		pace.Rate = -1
	case 2:
		pace.Until = s.Now + time.Duration(l.x>>20%3000)*time.Millisecond
	case 3, 4:
		pace.NotBefore = s.Now + time.Duration(l.x>>20%3000)*time.Millisecond
		pace = pace.Probing(time.Duration(l.x>>30%9000) * time.Millisecond)
	case 5:
		pace = pace.Probing(time.Duration(l.x>>30%100-20) * time.Second)
	}
	return pace
}

func (w *world) drawPolicy() policy.Policy {
	ramp := policy.Ramp{Mode: policy.RampMode(pick(w.T, 0, 3, "ramp")), Start: .2, Over: 5 * time.Second,
		CoolDown: 2 * time.Second}
	return among(w.T, []policy.Policy{policy.AIMD{}, policy.Tracking{},
		policy.Tracking{Spend: policy.SpendEvenly}, ramp, lie{7}, lie{8}}, "policy")
}

// start adds a replica to the fleet.
func (w *world) start(limit quotient.Limit, c config, p quotient.Pool, joins bool) *replica {
	c.joins = joins || pick(w.T, 0, 3, "joins") == 0
	r := &replica{w: w, id: w.born, conf: c, keys: map[string]*keyState{}, pool: p, weight: max(1, p.Weight),
		first: p.Ordinal, awaiting: c.awaits, limit: limit, done: make(chan *call, 1000), exact: !c.learns}
	w.born++
	opts := []quotient.Option{
		quotient.MaxKeys(c.maxKeys), quotient.MaxWait(c.maxWait), quotient.MaxWaiting(c.perKey, c.total),
		quotient.MaxHold(c.maxHold),
		quotient.HoldDown(c.holdDown), quotient.HintMaxAge(c.hintMaxAge), quotient.WithPhase(3),
		quotient.WithHash(judgeHash),
		quotient.WithWallClock(r.clock.at),
		quotient.Logger(slog.New(listener{slog.DiscardHandler, r})),
	}
	if !c.stops {
		opts = append(opts, quotient.StartPool(p))
	}
	if w.plans {
		r.plans = map[string]quotient.Limit{}
		for _, name := range planNames[1:] {
			r.plans[name] = w.drawLimit(name)
		}
		opts = append(opts, quotient.Plans(r.plans))
	}
	if c.joins {
		opts = append(opts, quotient.StartEmpty())
	}
	if c.awaits {
		opts = append(opts, quotient.AwaitPool())
	}
	if c.atLeastOne {
		opts = append(opts, quotient.AtLeastOne())
	}
	if c.learns {
		opts = append(opts, quotient.Policy(w.drawPolicy()))
		if c.ceiling {
			opts = append(opts, quotient.BeyondShare())
		}
	}
	if c.hooked {
		opts = append(opts, quotient.OnWait(r.onWait), quotient.OnAdmit(r.onAdmit))
	}
	l, err := quotient.New(limit, opts...)
	if err != nil {
		w.Fatal(err)
	}
	r.l, r.judged = l, time.Now()
	r.learn(limit)
	for _, plan := range r.plans {
		r.learn(plan)
	}
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
	if l.Deny {
		return "deny"
	}
	return fmt.Sprintf("%+v in flight %d", l.Rates, l.InFlight)
}

// changes notes that the belief of a replica has changed.
func (w *world) changes() {
	w.seq++
	w.changed = w.seq
	w.since, w.events = time.Now(), nil
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
	for plan, limit := range r.plans {
		r.note(item{at: time.Now(), base: &limit, plan: plan})
	}
}

func (w *world) close() {
	for _, r := range w.fleet {
		for _, c := range r.calls {
			c.cancel()
		}
		if r.source != nil {
			r.source.cancel()
		}
		_ = r.l.SetPool(quotient.Pool{Replicas: 1}, 0) // ends the timer of a ttl
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
		burst = max(1, rate.Events)
	}
	burst = max(burst, float64(w.total()))
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
			time.Sleep(r.conf.hintMaxAge)
			synctest.Wait()
		}
		w.setPool(r, quotient.Pool{Replicas: w.total(), Ordinal: 0})
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
			e := r.l.Explain(nameOf(c.key))
			w.broken("bound 7: replica %d %s: %d wait for ever, the first for %v: %s", r.id, c.key,
				len(r.calls), c.n, strings.ReplaceAll(e.String(), "\n", " "))
		}
		r.fired = quotient.CountsOf(r.l).Fired
		w.setLimit(r, quotient.Limit{})
		for plan := range r.plans {
			w.setPlan(r, plan, quotient.Limit{})
		}
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

// Draws that are uniform, since rapid's own prefer small numbers: in histories of many kinds of steps the
// last kinds would hardly come.

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

// judgeHash is a hash of keys that is the same in each run (FNV-1a), so that a history can be replayed.
func judgeHash(key string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(key))
	return h.Sum64()
}
