package judge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/policy"
)

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
	opRefund
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
	opSilence // for seconds
	opForget  // for minutes
	opLook
	opComeBack
	opHook
	opPlan
	opAll
	opLend
	opCount
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
	counted  int      // of ten aligned rates, how many are counted
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
	counts   bool // the replicas count together
}

var general = [numOps]int{
	opAllow: 4, opTry: 10, opUpTo: 6, opAcquire: 10, opSleep: 16, opRelease: 10, opReport: 2, opCorrect: 5,
	opCorrectRequests: 4, opRefund: 4, opExpire: 2,
	opLimit: 3, opOverride: 2, opDeny: 1, opReset: 2, opDryRun: 1, opPool: 2, opPoolFor: 1, opTell: 3,
	opGarbage: 1, opLie: 1, opClock: 1,
	opCancel: 3, opJoin: 1, opLeave: 1, opSilence: 1, opForget: 1, opLook: 2, opComeBack: 2, opHook: 1,
	opAll: 3, opLend: 6, opCount: 3,
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
		counted: 4, paced: 2, costs: true, units: mixed, pers: fast, bursts: anyBurst, sleeps: anySleep,
		priced: 2, rates: 3, slots: 5, hooks: true, holds: true},
	"costs": {
		weights: with(map[op]int{
			opTry: 25, opUpTo: 10, opCorrect: 30, opCorrectRequests: 15, opRefund: 10, opSleep: 20, opExpire: 5,
			opRelease: 8, opAcquire: 3, opTell: 0, opLie: 0, opClock: 0,
			opJoin: 0, opLeave: 0, opSilence: 1, opAllow: 1, opPool: 1, opPoolFor: 0, opLimit: 2,
			opOverride: 1, opDeny: 0, opDryRun: 0, opGarbage: 0, opLook: 0,
		}), keys: 1, replicas: 1, maxKeys: 8, steps: 60, windows: 1, costs: true,
		units: []string{"tok", "tok", "tok", ""}, pers: []int{10_000}, bursts: []int{10},
		sleeps: []int{1, 500, 2000, 7000, 9000}, priced: 9, rates: 1, slots: 2, holds: true,
	},
	"holds": {
		weights: with(map[op]int{
			opTry: 30, opUpTo: 0, opAllow: 0, opCorrect: 20, opCorrectRequests: 0, opRefund: 0, opSleep: 30,
			opExpire:  5,
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
		keys: 1, replicas: 1, maxKeys: 8, steps: 50, windows: 2, counted: 4, paced: 2,
		units: []string{"", "", "", "tok"}, costs: true, pers: []int{1000, 60_000}, bursts: []int{1, 10},
		sleeps: []int{1, 50, 333, 1000}, priced: 2, rates: 1, slots: 7, hooks: true,
	},
	"clocks": {
		weights: with(map[op]int{opClock: 12, opSleep: 30, opAllow: 10, opTry: 15, opAcquire: 12, opTell: 1,
			opPool: 3, opLie: 0, opUpTo: 8}),
		keys: 1, replicas: 3, maxKeys: 8, steps: 60, windows: 8, counted: 4, paced: 3, costs: true,
		units: mixed, pers: fast, bursts: anyBurst, sleeps: anySleep, priced: 2, rates: 3, slots: 2,
	},
	"hints": {
		weights: with(map[op]int{opTell: 25, opSilence: 10, opJoin: 5, opLeave: 5, opGarbage: 4, opLie: 3,
			opPool: 1, opSleep: 25, opTry: 20, opRelease: 15, opCorrect: 0}),
		keys: 1, replicas: 6, maxKeys: 8, steps: 70, units: requests, pers: fast, bursts: anyBurst,
		sleeps: anySleep, priced: 2, rates: 2, slots: 9, ctrls: true,
	},
	"counted": {
		weights: with(map[op]int{
			opCount: 20, opTry: 30, opUpTo: 10, opAcquire: 8, opCorrect: 20, opCorrectRequests: 10, opRefund: 10,
			opSleep: 30, opRelease: 4, opExpire: 0, opLimit: 4, opPool: 2,
			opPoolFor: 0, opOverride: 1, opDeny: 0, opDryRun: 0, opGarbage: 0, opLook: 1, opJoin: 0,
			opLeave: 0, opTell: 1, opLie: 0, opClock: 0, opForget: 0,
		}), keys: 2, replicas: 2, maxKeys: 2, steps: 60, windows: 10, counted: 7, costs: true,
		units: []string{"", "", "tok"}, sleeps: []int{1, 100, 333, 1000, 2500, 6000}, priced: 3, rates: 2,
		slots: 1,
	},
	"keys": {
		weights: with(map[op]int{opTry: 25, opAcquire: 12, opOverride: 5, opDeny: 3, opForget: 2, opSleep: 20,
			opLook: 5, opTell: 0}),
		keys: 6, replicas: 1, maxKeys: 3, steps: 70, windows: 2, counted: 4, paced: 1, costs: true,
		units: mixed, pers: fast, bursts: anyBurst, sleeps: anySleep, priced: 2, rates: 3, slots: 5,
		ctrls: true,
	},
	// A limit of a key's own begins with what is left of the plan that the key is in, which the models do not
	// follow.
	"plans": {
		weights: with(map[op]int{opPlan: 8, opOverride: 0, opDeny: 0, opTry: 25, opAcquire: 20, opCount: 12, opTell: 5,
			opLie: 1, opJoin: 2, opLeave: 2, opAll: 6}),
		plans: true, keys: 3, replicas: 3, maxKeys: 6, steps: 70, windows: 3, counted: 4, paced: 1,
		costs: true, units: mixed, pers: fast, bursts: anyBurst, sleeps: anySleep, priced: 2, rates: 2,
		slots: 4, ctrls: true, holds: true, hooks: true,
	},
	"together": {
		weights: [numOps]int{
			opAllow: 1, opTry: 40, opUpTo: 4, opAcquire: 4, opSleep: 40, opRelease: 3, opCorrect: 4,
			opCorrectRequests: 2, opRefund: 2, opOverride: 4, opDeny: 1, opReset: 1, opPlan: 1, opLimit: 1, opAll: 1,
			opCancel: 1, opLook: 1,
		},
		plans: true, counts: true, keys: 2, replicas: 4, maxKeys: 8, steps: 70, windows: 10, counted: 10,
		costs: true, units: []string{"", "", "tok"}, sleeps: []int{1, 100, 1000, 2500, 6000}, priced: 3, rates: 2,
	},
}

var profileNames = []string{
	"general", "costs", "holds", "limits", "clocks", "hints", "keys", "plans", "counted", "together",
}

// planNames are those of a profile with plans; "" is the limiter's own limit.
var planNames = []string{"", "gold", "tin"}

// The steps of TestPropertyEverything.

func (w *world) one() *replica {
	return w.fleet[pick(w.T, 0, len(w.fleet)-1, "replica")]
}

func (w *world) chance(in int, label string) bool {
	return pick(w.T, 0, in-1, label) == 0
}

// drawKey is a key, and in a profile with plans the plan in which it is asked for behind a slash.
func (w *world) drawKey() string {
	key := fmt.Sprint("k", pick(w.T, 0, w.keys-1, "key"))
	if w.plans {
		if plan := among(w.T, planNames, "plan"); plan != "" {
			return key + "/" + plan
		}
	}
	return key
}

// nameOf is a key without its plan.
func nameOf(key string) string { name, _, _ := strings.Cut(key, "/"); return name }

// planOf is the plan of a key.
func planOf(key string) string { _, plan, _ := strings.Cut(key, "/"); return plan }

// inPlan adds the plan of a key to calls.
func inPlan(key string, opts []quotient.CallOption) []quotient.CallOption {
	return append(slices.Clip(opts), quotient.Plan(planOf(key)))
}

// drawAsks draws the options of a call, and their sum.
func (w *world) drawAsks(r *replica) (opts []quotient.CallOption, n amounts, class quotient.Priority) {
	n[0] = 1
	if w.chance(3, "weighted") {
		weight := pick(w.T, 1, 7, "weight")
		opts, n[0] = append(opts, quotient.Weight(weight)), float64(weight)
	}
	if w.costs && !w.chance(w.priced, "unpriced") {
		i := w.drawUnit()
		cost := pick(w.T, 0, 9, "cost")
		if w.chance(8, "dear") {
			cost *= 3
		}
		opts, n[i] = append(opts, quotient.Cost(units[i], cost)), float64(cost)
	}
	if w.chance(4, "refundable") {
		opts = append(opts, quotient.Refundable())
	}
	if w.chance(4, "classed") {
		class = quotient.Priority(pick(w.T, -1, 2, "class"))
		opts = append(opts, class.Option())
	}
	return opts, n, class
}

// steps are those that need to know nothing but a replica.
var steps = map[op]func(*world, *replica){
	opAllow: (*world).allow, opTry: (*world).try, opUpTo: (*world).upTo, opAcquire: (*world).acquire,
	opLimit: (*world).limit, opReset: (*world).reset, opClock: (*world).stepClock, opLook: (*world).look,
	opComeBack: (*world).comeBack, opHook: (*world).setHook, opAll: (*world).all, opLend: (*world).lend,
	opCount: (*world).count,
}

func (w *world) step(o op) {
	r := w.one()
	switch o {
	case opSleep:
		w.sleep(time.Duration(among(w.T, w.sleeps, "ms")) * time.Millisecond)
	case opSilence:
		w.sleep(time.Duration(pick(w.T, 1, 20, "seconds")) * time.Second)
	case opForget:
		w.sleep(time.Duration(pick(w.T, 1, 11, "minutes")) * time.Minute)
	case opRelease, opReport, opCorrect, opCorrectRequests, opRefund, opExpire:
		if len(r.kept) > 0 {
			w.permit(o, r, pick(w.T, 0, len(r.kept)-1, "which"))
		}
	case opOverride, opDeny:
		w.override(o, r)
	case opDryRun:
		r.dry = !r.dry
		r.hang(hook{})
		w.tell("replica %d: dry run %v", r.id, r.dry)
		r.l.SetDryRun(r.dry)
		w.changes()
	case opPool, opPoolFor:
		w.pool(o, r)
	case opTell, opGarbage, opLie:
		w.hint(o, r)
	case opCancel:
		if len(r.calls) > 0 {
			c := r.calls[pick(w.T, 0, len(r.calls)-1, "call")]
			w.tell("replica %d %s: call %d is given up", r.id, c.key, c.seq)
			c.cancel()
		}
	case opJoin, opLeave:
		w.membership(o, r)
	case opPlan:
		w.rename(r)
		w.collect() // those that this lets go hold no slots of the next limit
		w.setPlan(r, among(w.T, planNames[1:], "plan"), w.drawLimit("plan"))
	default:
		steps[o](w, r)
	}
}

func (w *world) sleep(d time.Duration) {
	d += time.Duration(pick(w.T, 0, 999, "ns"))
	w.tell("sleep %v", d)
	for end := time.Now().Add(d); w.counts && w.reports.Before(end); d = time.Until(end) {
		w.pass(time.Until(w.reports))
		w.collect()
		w.exchange()
		w.collect()
		w.reports = time.Now().Add(reported)
	}
	w.pass(d)
}

// pass lets time pass, over the ends of limits that keys have for themselves.
func (w *world) pass(d time.Duration) {
	for end := time.Now().Add(d); ; {
		next, of, key := end, (*replica)(nil), ""
		for _, r := range w.fleet {
			for _, name := range slices.Sorted(maps.Keys(r.owned)) {
				if at := r.owned[name].Until; !at.IsZero() && !at.After(next) {
					next, of, key = at, r, name
				}
			}
		}
		if time.Sleep(time.Until(next)); of == nil {
			return
		}
		synctest.Wait() // before anything else that comes at that instant
		of.owns(key, of.owned[key].Then, 0)
		w.tell("replica %d %s: its own limit has ended", of.id, key) // last, as what comes in a sleep takes its lock
	}
}

// guarded calls f, and reports whether a hook has panicked in it.
func guarded(f func()) (p any) {
	defer func() {
		if p = recover(); p != nil && p != "OnAdmit" && p != "wait" {
			panic(p)
		}
	}()
	f()
	return nil
}

func (w *world) allow(r *replica) {
	key := nameOf(w.drawKey())
	dry, ok := countsOf(r.l).Dry, false
	p := guarded(func() { ok = r.l.Allow(key) })
	w.tell("replica %d %s: Allow: %v %v", r.id, key, ok, p)
	switch {
	case !ok && p == nil:
		r.ends(key, wasRefused, time.Now(), false)
		r.refused(key, amounts{1},
			&quotient.LimitedError{Decision: quotient.Decision{Reason: quotient.ReasonRate}})
	case r.dry && countsOf(r.l).Dry > dry:
		r.ends(key, wasSpared, time.Now(), false)
	default:
		r.admitted(key, amounts{1}, quotient.Permit{}, time.Now(), false, false)
	}
}

func (w *world) try(r *replica) {
	key := w.drawKey()
	opts, n, class := w.drawAsks(r)
	times := 1
	if w.chance(3, "all there is") {
		times = 30
	}
	for ; times > 0 && w.tryFor(r, key, opts, n, class).OK; times-- {
	}
}

func (w *world) tryFor(r *replica, key string, opts []quotient.CallOption, n amounts,
	class quotient.Priority) quotient.Decision {
	var p quotient.Permit
	var d quotient.Decision
	before, opts := countsOf(r.l).Dry, inPlan(key, opts)
	var looks []quotient.Decision
	var fresh quotient.Decision // for a key that stands so may be dropped, with all that its callers were promised
	if !r.conf.learns && !r.dry && w.chance(4, "look first") {
		check, next := r.l.Check(nameOf(key), opts...), r.l.Explain(nameOf(key), opts...).Next
		fresh = r.l.Explain("nobody", opts...).Next
		if next.RetryAfter > 0 { // it knows of no promises
			next.RetryAfter = max(next.RetryAfter, check.RetryAfter)
		}
		looks = append(looks, check, next)
	}
	said := []quotient.RuleState{{Rule: quotient.Rule{Name: "nothing yet"}}}
	// What makes room serves waiters too.
	if !w.plans && len(r.calls) == 0 && w.chance(4, "state") {
		opts = append(opts, quotient.StateInto(&said))
	}
	panicked := guarded(func() { p, d = r.l.TryAcquire(nameOf(key), opts...) })
	w.tell("replica %d %s: TryAcquire %v class %v: %v %v", r.id, key, n, class, d, panicked)
	if told := len(said) == 0 || said[0].Name != "nothing yet"; told && panicked == nil &&
		r.hook() == (hook{}) {
		if now := r.state(key); !slices.Equal(now, said) {
			w.broken("replica %d %s: StateInto said %+v, and a look %+v", r.id, key, said, now)
		}
	}
	for _, look := range looks {
		if panicked == nil && look.String() != d.String() && fresh.String() != d.String() &&
			countsOf(r.l).Overflowed == 0 {
			w.broken("replica %d %s: TryAcquire %v, and a look before it %v", r.id, key, d, look)
		}
	}
	switch {
	case panicked != nil && r.dry && countsOf(r.l).Dry > before:
		r.ends(key, wasSpared, time.Now(), false)
	case panicked != nil:
		r.admitted(key, n, p, time.Now(), false, false)
	case d.OK:
		r.keep(r.admitted(key, n, p, time.Now(), false, false))
	default:
		r.ends(key, refusedFor(d), time.Now(), false)
		r.returns(key, n, d)
		r.tells(key, n, d)
		r.refused(key, n, &quotient.LimitedError{Key: key, Decision: d})
	}
	return d
}

// state looks at where a key stands under each rule.
func (r *replica) state(key string) (rules []quotient.RuleState) {
	r.l.Check(nameOf(key), quotient.StateInto(&rules))
	return rules
}

// returns holds what a controller gives as the time to come back. That is the rest of its pause and what is
// missing at its pace, and never the time between two probes. Behind others that have been told a time it may be more.
func (r *replica) returns(key string, n amounts, d quotient.Decision) {
	if d.Rule.Name != "adaptive" || d.Reason != quotient.ReasonRate || len(r.calls) > 0 || planOf(key) != "" ||
		time.Now().Before(r.key(key).told) {
		return
	}
	for _, x := range r.state(key) {
		if x.Name != d.Rule.Name || x.Unit != d.Unit || x.Pace == 0 {
			continue
		}
		owed := n[unitIndex(x.Unit)] + 40 // the most that one call takes
		if most := x.Reset.Seconds() + owed/x.Pace + 1e-6; d.RetryAfter.Seconds() > most {
			r.w.broken("replica %d %s: a rate of %v a second that pauses for %v gives %v", r.id, key, x.Pace,
				x.Reset, d.RetryAfter)
		}
	}
}

// tells holds bound 15: who is refused is told an instant at which there is room if nothing else is taken, and that
// is at most a hundred calls like its own, and a turn, behind an instant at which there is.
func (r *replica) tells(key string, n amounts, d quotient.Decision) {
	if !r.exact || r.stepped || r.dry || d.Reason != quotient.ReasonRate || d.RetryAfter <= 0 ||
		len(r.calls) > 0 || countsOf(r.l).Overflowed > 0 || r.inOtherPlans(key) {
		return
	}
	hi, lo := r.key(key).upToNow()
	if hi.lent || hi.counts() || lo.turns() {
		return // the next windows may be its own alone, and of turns the models know nothing
	}
	at := func(m *model, in time.Duration) string {
		then := *m
		then.rules = slices.Clone(m.rules)
		then.advance(time.Now().Add(in))
		return then.lacks(n)
	}
	if rule := at(hi, d.RetryAfter); rule != "" {
		r.w.broken("bound 15: replica %d %s: %v told %v, and %s has no room then: %+v", r.id, key, n, d, rule, hi.rules)
	}
	calls, turn := 0.0, 0.0
	for i := range lo.rules {
		x := &lo.rules[i]
		each := n[unitIndex(x.rate.Unit)] / x.perSecond
		calls, turn = max(calls, 100*each), max(turn, x.rate.Per.Seconds()*(2+x.n), each)
	}
	if in := d.RetryAfter - time.Duration((calls+turn)*1e9); in > 0 && at(lo, in) == "" {
		r.w.broken("bound 15: replica %d %s: %v told %v, and there is room after %v: %+v", r.id, key, n, d, in,
			lo.rules)
	}
}

// keep keeps the permit if there is anything to give back.
func (r *replica) keep(h *held) {
	if isKept(h.p) {
		r.kept = append(r.kept, h)
	}
}

func (w *world) upTo(r *replica) {
	key, most := w.drawKey(), among(w.T, []int{1, 3, 7, 40}, "up to")
	h := r.hook()
	h.panicOnAdmit = false
	r.hang(h)
	p, n := r.l.TryAcquireUpTo(nameOf(key), most, inPlan(key, nil)...)
	w.tell("replica %d %s: TryAcquireUpTo %d: %d", r.id, key, most, n)
	if n == 0 {
		r.ends(key, wasRefused, time.Now(), false)
		r.refused(key, amounts{1},
			&quotient.LimitedError{Decision: quotient.Decision{Reason: quotient.ReasonRate}})
		return
	}
	r.keep(r.admitted(key, amounts{float64(n)}, p, time.Now(), false, false))
}

func (w *world) acquire(r *replica) {
	key := w.drawKey()
	opts, n, class := w.drawAsks(r)
	ctx, cancel := context.WithCancel(context.Background())
	if w.chance(3, "deadline") {
		ctx, cancel = context.WithTimeout(ctx,
			time.Duration(pick(w.T, 1, 9000, "deadline ms"))*time.Millisecond+11)
	}
	if r.conf.hooked {
		ctx = &hookedContext{Context: ctx, r: r}
	}
	w.seq++
	c := &call{began: time.Now(), key: key, n: n, class: class, cancel: cancel, seq: w.seq,
		slow: r.conf.hooked && r.hook() != hook{}}
	r.calls = append(r.calls, c)
	w.tell("replica %d %s: call %d: Acquire %v class %v", r.id, key, c.seq, n, class)
	if planOf(key) != "" { // most calls have no option
		opts = inPlan(key, opts)
	}
	go func() {
		defer func() { r.done <- c }()
		c.panic = guarded(func() { c.permit, c.err = r.l.Acquire(ctx, nameOf(key), opts...) })
		c.at = time.Now()
	}()
}

func (w *world) drawFeedback() policy.Feedback {
	f := policy.Feedback{Outcome: policy.Outcome(pick(w.T, 0, 3, "outcome"))}
	if w.chance(3, "retry") {
		f.RetryAfter = time.Duration(pick(w.T, 1, 4000, "retry after")) * time.Millisecond
	}
	return f
}

func (w *world) permit(o op, r *replica, i int) {
	h := r.kept[i]
	switch o {
	case opRelease:
		w.tell("replica %d %s: release %v", r.id, h.key, h.charged)
		h.p.Done(w.drawFeedback())
		if w.chance(8, "twice") {
			h.p.Release()
		}
		r.kept = slices.Delete(r.kept, i, i+1)
	case opReport:
		h.p.Report(w.drawFeedback())
	case opCorrect:
		w.correct(r, h)
	case opCorrectRequests:
		used := pick(w.T, 0, h.weight, "used")
		err := h.p.Correct("", used)
		w.tell("replica %d %s: Correct requests %d to %d: %v", r.id, h.key, h.weight, used, err)
		if err == nil && h.t != nil {
			h.t.net[0] = min(h.t.net[0], float64(used))
			h.slots, h.weight = min(h.slots, used), used
			r.key(h.key).again()
			w.takeAgain(r, h.key, 0)
		}
	case opRefund:
		w.tell("replica %d %s: refund of %d", r.id, h.key, h.weight)
		out := isOut(h.p)
		if h.p.Refund(); out && h.t != nil {
			h.t.net[0] = 0
			r.key(h.key).again()
			w.takeAgain(r, h.key, 0)
		}
	case opExpire:
		in := time.Duration(pick(w.T, -1, 4, "expire in")) * time.Second
		w.tell("replica %d %s: expire %v in %v", r.id, h.key, h.charged, in)
		if h.p.ExpireIn(in); isOut(h.p) {
			if h.ends = time.Now().Add(in); in <= 0 {
				h.ends = time.Time{}
			}
		}
	}
}

// correct tells the true cost of a permit. A higher cost is taken now; a lower cost comes off the latest
// takes first.
func (w *world) correct(r *replica, h *held) {
	u := w.drawUnit()
	used := pick(w.T, 0, 15, "cost")
	if now := int(h.charged[u]); now > 0 && !w.chance(4, "more") {
		used = pick(w.T, 0, now, "less")
		if coin(w.T, "nothing") {
			used = 0
		}
	}
	err := h.p.Correct(units[u], used)
	w.tell("replica %d %s: Correct %s %v to %d: %v", r.id, h.key, units[u], h.charged[u], used, err)
	if err != nil || h.t == nil {
		return
	}
	k, more := r.key(h.key), float64(used)-h.charged[u]
	h.charged[u] = float64(used)
	if more > 0 {
		t := &taking{at: time.Now()}
		t.net[u], t.gross[u] = more, more
		h.extra = append(h.extra, t)
		k.items = append(k.items, item{at: t.at, took: t})
		return
	}
	for i := len(h.extra) - 1; i >= 0 && more < 0; i-- {
		back := min(-more, h.extra[i].net[u])
		h.extra[i].net[u] -= back
		more += back
	}
	h.t.net[u] = max(0, h.t.net[u]+more)
	k.again()
	w.takeAgain(r, h.key, u)
}

// takeAgain has calls take what has come back, and what should not have.
func (w *world) takeAgain(r *replica, key string, unit int) {
	if w.windows < 10 || !coin(w.T, "take again") {
		return
	}
	n, opts := amounts{1}, []quotient.CallOption(nil)
	if unit > 0 {
		n[unit], opts = 1, append(opts, quotient.Cost(units[unit], 1))
	}
	for times := 12; times > 0 && w.tryFor(r, key, opts, n, 0).OK; times-- {
	}
}

// all calls for several keys at once. When one is refused, the others are as if they had not been called.
func (w *world) all(r *replica) {
	h := r.hook()
	h.panicOnAdmit = false
	r.hang(h)
	var keys []string
	var wants []amounts
	var claims []quotient.Claim
	for range pick(w.T, 1, 3, "claims") {
		key := w.drawKey()
		opts, n, _ := w.drawAsks(r)
		keys, wants = append(keys, key), append(wants, n)
		claims = append(claims, quotient.Claim{Limiter: r.l, Key: nameOf(key), Options: inPlan(key, opts)})
	}
	ps, refused, d := quotient.TryAcquireAll(nil, claims...)
	w.tell("replica %d %s: TryAcquireAll %v: %d %v", r.id, keys, wants, refused, d)
	if d.OK {
		for i, p := range ps {
			r.keep(r.admitted(keys[i], wants[i], p, time.Now(), false, false))
		}
		return
	}
	r.ends(keys[refused], refusedFor(d), time.Now(), false)
	r.counts.cancelled += uint64(refused)
	r.promised(keys[refused], d.RetryAfter)
	alone := true
	for i, key := range keys[:refused] {
		alone = alone && nameOf(key) != nameOf(keys[refused])
		if k := r.key(key); w.plans { // what has counted in other plans does not come back there
			k.items = append(k.items, item{at: time.Now(), took: &taking{at: time.Now(), gross: wants[i]}})
		}
	}
	if !alone {
		return
	}
	r.refused(keys[refused], wants[refused], &quotient.LimitedError{Key: keys[refused], Decision: d})
}

// look looks at everything, which changes nothing.
func (w *world) look(r *replica) {
	key := w.drawKey()
	opts, _, _ := w.drawAsks(r)
	in := func(d quotient.Decision) string {
		return (&quotient.LimitedError{Key: key, Decision: d}).Error()
	}
	name, opts := nameOf(key), inPlan(key, opts)
	before := r.l.Check(name, opts...)
	r.l.Explain(name, opts...)
	r.state(key)
	for range r.l.Keys() {
	}
	if after := r.l.Check(name, opts...); !r.conf.learns && countsOf(r.l).Overflowed == 0 &&
		in(before) != in(after) {
		w.broken("replica %d %s: a look has made of %+v %+v", r.id, key, before, after)
	}
}

// comeBack asks for something. If the answer has a time to come back it asks again then: the time must be
// right, if no other call has come.
func (w *world) comeBack(r *replica) {
	key := w.drawKey()
	opts, n, class := w.drawAsks(r)
	d := w.tryFor(r, key, opts, n, class)
	if hi, _ := r.key(key).upToNow(); hi.loan.part > 0 || hi.counts() {
		return // it may end meanwhile, and the next window may be the replica's alone
	}
	if d.OK || d.RetryAfter == 0 || d.RetryAfter > time.Hour || d.Reason != quotient.ReasonRate || !r.exact ||
		r.stepped || len(r.calls) > 0 || countsOf(r.l).Overflowed > 0 {
		return
	}
	pool, ends := r.poolings, r.owned[nameOf(key)].Until
	w.tell("sleep %v", d.RetryAfter)
	w.pass(d.RetryAfter)
	synctest.Wait()
	w.judge()
	if again := w.tryFor(r, key, opts, n, class); !again.OK && again.Reason == quotient.ReasonRate &&
		again.RetryAfter > time.Microsecond && pool == r.poolings &&
		ends.Equal(r.owned[nameOf(key)].Until) {
		w.broken("replica %d %s: asked to come back after %v, and refused then: %+v", r.id, key,
			d.RetryAfter, again)
	}
}

// The steps of TestPropertyEverything that change what a limiter or the fleet is set to.

// drawUnit is the index of a unit that calls use.
func (w *world) drawUnit() int {
	if w.chance(8, "another unit") {
		return 2
	}
	return 1
}

func (w *world) drawRate(label string) quotient.Rate {
	t := w.T
	r := quotient.Rate{Name: among(t, []string{"a", "b", "c"}, label+" name")}
	if w.costs {
		r.Unit = among(t, w.units, label+" unit")
	}
	kind := pick(t, 0, 9, label+" kind")
	switch {
	case w.counts:
		r = quotient.Rate{Name: "a", Per: 20 * time.Second, Kind: quotient.CountedWindow, Unit: r.Unit}
		if w.chance(5, "another") {
			r.Name, r.Per = "b", 5*time.Second
		}
		r.Events = w.together[r.Name]
	case kind < w.windows:
		r.Events = w.drawEvents(label)
		r.Per = time.Duration(among(t, []int{1, 5, 10, 60}, label+" per")) * time.Second
		if w.zone != "" && coin(t, label+" of days") {
			r.Per, r.Zone = 24*time.Hour, among(t, []string{"", w.zone}, label+" zone")
		}
		r.Kind = w.drawWindow(label + " counted")
	case kind < w.windows+w.paced:
		r.Events, r.Burst = 1, 1 // a bucket of one has neither turns nor grace
		r.Kind = among(t, []quotient.Kind{quotient.Paced, quotient.Paced, quotient.Bucket}, label+" turns")
		r.Per = time.Duration(among(t, []int{30, 100, 1000, 5000}, label+" per")) * time.Millisecond
		r.NoTurns = w.chance(3, label+" no turns")
	default:
		r.Events = float64(pick(t, 1, 20, label+" events"))
		r.Per = time.Duration(among(t, w.pers, label+" per")) * time.Millisecond
		if r.Burst = among(t, w.bursts, label+" burst"); r.Burst == 1 && coin(t, label+" paced") {
			r.Kind, r.Burst = quotient.Paced, 0
		}
	}
	return r
}

func (w *world) drawLimit(label string) quotient.Limit {
	var limit quotient.Limit
	for i := range pick(w.T, 0, w.rates, label+" rates") {
		r := w.drawRate(fmt.Sprint(label, " ", i))
		if !slices.ContainsFunc(limit.Rates, func(o quotient.Rate) bool {
			return o.Name == r.Name && o.Unit == r.Unit
		}) {
			limit.Rates = append(limit.Rates, r)
		}
	}
	if pick(w.T, 0, 9, label+" has slots") < w.slots {
		limit.InFlight = pick(w.T, 1, 7, label+" slots")
	}
	return limit
}

func (w *world) limit(r *replica) {
	limit := w.drawLimit("limit")
	if w.counted > 0 && coin(w.T, "only other windows") {
		limit = w.otherWindows(r.limit)
	}
	if w.chance(10, "deny") {
		limit = quotient.Limit{Deny: true}
	}
	for _, o := range w.fleet {
		if o == r || w.fleet[0].conf.awaits || w.chance(4, "all") {
			w.setLimit(o, limit)
		}
	}
}

func (w *world) setLimit(r *replica, limit quotient.Limit) {
	w.tell("replica %d: limit %s", r.id, describe(limit))
	if err := r.l.SetLimit(limit); err != nil {
		w.Fatal(err)
	}
	r.limit = limit
	r.learn(limit)
	r.giveUp("", limit)
	r.note(item{at: time.Now(), base: &limit})
	w.changes()
}

// rename gives another name to a plan that no key is in, which needs the place of one that was taken off.
func (w *world) rename(r *replica) {
	if r.limit.Deny {
		return // the rules of a plan that ends stay then, and a key that was never in it counts what they count
	}
	old, limit := fmt.Sprint("spare", w.seq), w.drawLimit("spare")
	for name := range r.l.Stats().Plans {
		if strings.HasPrefix(name, "spare") {
			old = name
		}
	}
	if !r.knows(limit) {
		return // to learn a unit is a change of the limiter's limit too, at the same instant
	}
	limit.Rates = append(limit.Rates, quotient.Rate{Unit: fmt.Sprint("unit", w.seq), Events: 1, Per: time.Hour})
	w.tell("replica %d: plan spare%d in place of %s", r.id, w.seq+1, old)
	if err := cmp.Or(r.l.SetPlan(old, nil), r.l.SetPlan(fmt.Sprint("spare", w.seq+1), &limit)); err != nil {
		w.Fatal(err)
	}
	r.learn(quotient.Limit{})
}

// forget notes that another unit has the place of one.
func (r *replica) forget(u int) {
	r.w.tell("replica %d forgets the unit %s", r.id, units[u])
	r.known[u] = false
	for _, h := range r.kept {
		h.charged[u] = 0
	}
	for _, c := range r.calls {
		c.n[u] = 0
	}
	limits := append(slices.Collect(maps.Values(r.plans)), r.limit)
	for _, limit := range limits {
		for _, rate := range limit.Rates {
			if rate.Unit == units[u] {
				r.w.broken("replica %d has forgotten the unit of %+v", r.id, rate)
			}
		}
	}
}

// setPlan gives a plan another limit.
func (w *world) setPlan(r *replica, plan string, limit quotient.Limit) {
	w.tell("replica %d: plan %s %s", r.id, plan, describe(limit))
	if err := r.l.SetPlan(plan, &limit); err != nil {
		w.Fatal(err)
	}
	r.plans[plan] = limit
	r.learn(limit)
	r.giveUp("", limit)
	r.note(item{at: time.Now(), base: &limit, plan: plan})
	w.changes()
}

func (w *world) override(o op, r *replica) {
	key := nameOf(w.drawKey())
	var own *quotient.Limit
	switch {
	case o == opDeny:
		limit := quotient.Limit{Deny: true}
		own = &limit
	case w.chance(2, "own"):
		limit := w.drawLimit("own")
		own = &limit
	}
	if own != nil && !r.knows(*own) {
		return // to learn a unit is a change of the limiter's limit too, at the same instant
	}
	ttl := time.Duration(0)
	if own != nil && w.chance(2, "ends") {
		ttl = time.Duration(pick(w.T, 1, 9, "ttl"))*time.Second + 19
	}
	err := r.l.Override(key, own, ttl)
	text := "none"
	if own != nil {
		text = describe(*own)
	}
	w.tell("replica %d %s: its own limit %s for %v: %v", r.id, key, text, ttl, err)
	if _, had := r.owned[key]; err == nil && (own != nil || had) {
		r.owns(key, own, ttl)
	}
}

// owns notes the limit that a key has for itself from now on; nil for none. One that ends stands over one for good.
func (r *replica) owns(key string, own *quotient.Limit, ttl time.Duration) {
	old, had := r.owned[key]
	delete(r.owned, key)
	if own != nil {
		next := quotient.KeyLimit{Limit: *own}
		if ttl > 0 {
			next.Until = time.Now().Add(ttl)
			if next.Then = old.Then; had && old.Until.IsZero() {
				next.Then = &old.Limit
			}
		}
		r.owned[key] = next
	}
	for _, k := range r.inAllPlans(key) {
		k.items = append(k.items, item{at: time.Now(), setsOwn: true, own: own})
	}
	r.giveUp(key, r.key(key).before(len(r.key(key).items)).limit())
	r.w.changes()
}

// reset forgives a key. Its history starts fresh but for the slots of permits that are out. It gives what was
// not there, so that the fleet's bound starts fresh for the key too.
func (w *world) reset(r *replica) {
	key := nameOf(w.drawKey())
	known := r.l.Reset(key)
	w.tell("replica %d %s: reset: %v", r.id, key, known)
	if remembered := r.l.Explain(key).Remembered; known != remembered {
		w.broken("replica %d %s: remembered is %v, and Reset reports %v", r.id, key, remembered, known)
	}
	if !known {
		return
	}
	r.isForgiven(key)
	for _, k := range r.inAllPlans(key) {
		k.items = append(k.items, item{at: time.Now(), never: slices.Clone(r.base)})
	}
	r.giveUp(key, quotient.Limit{})
	w.events = slices.DeleteFunc(w.events, func(e fleetEvent) bool { return e.key == key })
}

func (w *world) drawPool() quotient.Pool {
	p := quotient.Pool{Replicas: pick(w.T, 1, 7, "replicas")}
	weight := pick(w.T, 1, min(w.heavy, p.Replicas), "weight of a replica")
	p.Ordinal = pick(w.T, 0, p.Replicas-weight+1, "ordinal")
	p.Weight = plain(weight)
	p.Fixed = p.Ordinal > 0 && coin(w.T, "fixed")
	return p
}

func (w *world) pool(o op, r *replica) {
	p := w.drawPool()
	w.lied, r.words = w.lied || p.Fixed, true
	if o == opPool {
		w.setPool(r, p)
		return
	}
	ttl := time.Duration(pick(w.T, 1, 9, "ttl"))*time.Second + 17
	w.tell("replica %d: SetPool %+v %v", r.id, p, ttl)
	if err := r.l.SetPool(p, ttl); err != nil {
		w.Fatal(err)
	}
}

func (w *world) setPool(r *replica, p quotient.Pool) {
	w.tell("replica %d: SetPool %+v", r.id, p)
	if err := r.l.SetPool(p, 0); err != nil {
		w.Fatal(err)
	}
}

// truth is what a source reports to a replica that sees the fleet as it is.
func (w *world) truth(r *replica) quotient.Pool {
	p := quotient.Pool{Replicas: w.total(), Ordinal: 1, Fixed: w.fixed, Weight: plain(r.weight)}
	for _, o := range w.fleet[:slices.Index(w.fleet, r)] {
		p.Ordinal += o.weight
	}
	if w.fixed {
		p.Ordinal = r.first
		p.Replicas = max(p.Replicas, p.Ordinal+r.weight-1)
	}
	return p
}

// hint has a replica's source say something. A replica that has none follows one from now on.
func (w *world) hint(o op, r *replica) {
	if r.source == nil {
		r.source = following(r.l, nil)
	}
	switch o {
	case opTell:
		for _, x := range w.fleet {
			if x == r || x.source != nil && w.chance(2, "all get it") {
				w.report(x, w.truth(x))
			}
		}
	case opLie:
		p := w.truth(r)
		p.Replicas = max(p.Ordinal+r.weight-1, pick(w.T, 1, 9, "lie"))
		w.report(r, p)
	case opGarbage:
		bad := among(w.T, []quotient.Pool{
			{},
			{Replicas: -3},
			{Replicas: math.MaxInt},
			{Replicas: 2, Ordinal: 3},
			{Replicas: 2, Ordinal: -1},
			{Replicas: 2, Weight: 3},
			{Replicas: 2, Weight: -1},
			{Replicas: 4, Ordinal: 4, Weight: 2},
		}, "garbage")
		before := r.l.Stats().Pool
		w.tell("replica %d gets %+v", r.id, bad)
		var err error
		if w.chance(2, "fails") {
			bad, err = w.truth(r), errors.New("no answer")
		}
		r.source.report(bad, err)
		after := r.l.Stats().Pool
		if after.Pool != before.Pool || after.Errors+after.Rejected != before.Errors+before.Rejected+1 {
			w.broken("bound 9: %+v, after garbage %+v", before, after)
		}
	}
}

func (w *world) report(r *replica, p quotient.Pool) {
	w.tell("replica %d gets %+v", r.id, p)
	r.seen = append(r.seen, report{time.Now(), p})
	r.source.report(p, nil)
}

// stepClock sets the wall clock of a replica.
func (w *world) stepClock(r *replica) {
	by := time.Duration(among(w.T, []int{-3600, -60, -10, -3, -1, 1, 3, 10, 60, 3600}, "step")) * time.Second
	by += time.Duration(among(w.T, []int{0, 0, 1, 500, 999}, "step ms")) * time.Millisecond
	offset := r.clock.set(by)
	w.tell("replica %d: the wall clock is set by %v, to %v off", r.id, by, offset)
	r.stepped = true
	r.note(item{at: time.Now(), step: &offset})
	w.changes()
}

func (w *world) membership(o op, r *replica) {
	if o == opLeave {
		if len(w.fleet) == 1 {
			return
		}
		if w.fixed {
			r = w.fleet[len(w.fleet)-1]
		}
		w.tell("replica %d leaves", r.id)
		for _, c := range r.calls {
			c.cancel()
		}
		if r.source != nil {
			r.source.cancel()
		}
		_ = r.l.SetPool(quotient.Pool{Replicas: 1}, 0)
		synctest.Wait()
		w.fleet = slices.DeleteFunc(w.fleet, func(o *replica) bool { return o == r })
		if w.fixed {
			w.born = r.id
		}
		w.changes()
		return
	}
	if len(w.fleet) == w.replicas {
		return
	}
	weight := pick(w.T, 1, w.heavy, "weight of a replica")
	p := quotient.Pool{Replicas: w.total() + weight, Weight: plain(weight)}
	if last := w.fleet[len(w.fleet)-1]; w.fixed {
		p.Ordinal, p.Fixed = last.first+last.weight, true
		p.Replicas = max(p.Replicas, p.Ordinal+weight-1)
	}
	x := w.start(w.fleet[0].limit, w.fleet[0].conf, p, true)
	w.begin(x)
}

func (w *world) setHook(r *replica) {
	if !r.conf.hooked || r.dry {
		return
	}
	var h hook
	switch pick(w.T, 0, 4, "hook") {
	case 0, 1:
		h.sleepOnWait = among(w.T, []time.Duration{40 * time.Millisecond, time.Second, 5 * time.Second},
			"slow")
	case 2:
		h.panicOnAdmit = true
	case 3:
		h.panicOnWait = true
	}
	r.hang(h)
	for _, c := range r.calls {
		c.slow = c.slow || h != hook{}
	}
	w.tell("replica %d: hooks %+v", r.id, h)
}
