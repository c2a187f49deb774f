package judge

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
	"github.com/quotient-go/quotient/internal/adversary"
	"github.com/quotient-go/quotient/internal/inside"
	"github.com/quotient-go/quotient/policy"
)

// What a limiter has for the judge: see package inside.
var (
	fix            = inside.Fix.(func(func(*inside.Chance)) quotient.Option)
	countsOf       = inside.Count.(func(*quotient.Limiter) inside.Counts)
	lendKey        = inside.Lend.(func(*quotient.Limiter, string, float64, time.Duration) bool)
	reportKey      = inside.Report.(func(*quotient.Limiter, string, quotient.Rate, int64, time.Duration) bool)
	forgetPromises = inside.ForgetPromises.(func(*quotient.Limiter))
)

// dryPermit is what a call gets that only a dry run has admitted.
var dryPermit = func() quotient.Permit {
	l := quotient.Must(quotient.New(quotient.Limit{Deny: true}))
	l.SetDryRun(true)
	p, _ := l.TryAcquire("k")
	return p
}()

func isDry(p quotient.Permit) bool { return p == dryPermit }

// isKept reports whether the permit is remembered until it is released.
func isKept(p quotient.Permit) bool { return p != dryPermit && p != (quotient.Permit{}) }

// isOut reports whether a permit that is kept was neither released nor given back by time.
func isOut(p quotient.Permit) bool {
	return !strings.Contains(p.Correct("a unit of nobody", 0).Error(), "is released")
}

var onlyProfile = flag.String("judge.profile", "", "play only this profile of TestPropertyEverything")

// TestPropertyEverything plays histories that mix all calls of a limiter, on a fleet in fake time. After each
// step it holds bounds 1, 2, 5, 6, 7, 8, 11, 14 and 15 by models of its own (model_test.go). It counts what
// counters and queues should show. No caller waits for ever, and no timer fires without work.
func TestPropertyEverything(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		names := profileNames
		if *onlyProfile != "" {
			names = []string{*onlyProfile}
		}
		playProfile(rt, among(rt, names, "profile"))
	})
}

func playProfile(rt *rapid.T, profile string) {
	var w *world
	// In fake time nothing takes long, unless a timer spins or a panic has left a lock.
	const patience = time.Minute
	dog := time.AfterFunc(patience, func() {
		if w != nil {
			fmt.Fprintln(os.Stderr, strings.Join(w.story, "\n"))
		}
		buf := make([]byte, 1<<20)
		fmt.Fprintf(os.Stderr, "a history of profile %s takes over %v: a timer fires again and again, or a lock is "+
			"held\n%s\n", profile, patience, buf[:runtime.Stack(buf, true)])
		os.Exit(2)
	})
	defer dog.Stop()
	rapid.SyncTest(rt, func(rt *rapid.T) {
		w = newWorld(rt, profiles[profile])
		defer w.close()
		w.play()
	})
}

// world is a fleet, and what the judge knows of it.
type world struct {
	*rapid.T
	profile
	fleet    []*replica
	born     int
	seq      int
	fixed    bool               // ordinals are fixed by construction
	heavy    int                // the largest weight
	zone     string             // of some windows of days; "" for none
	lied     bool               // of ordinals
	lends    bool               // replicas borrow, and so the fleet's bounds are others
	together map[string]float64 // events of the rules that are counted together
	reports  time.Time          // when replicas that count together report next
	changed  int                // seq of the last change of a belief or of a limit
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
	w.beforeMidnight()
	w.since = time.Now()
	if !p.counts && coin(t, "weights") {
		w.heavy = 3
	}
	weights, n := make([]int, pick(t, 1, p.replicas, "replicas")), 0
	for i := range weights {
		weights[i] = pick(t, 1, w.heavy, "weight of a replica")
		n += weights[i]
	}
	w.lends = w.chance(3, "lends")
	w.together = map[string]float64{"a": float64(among(t, []int{3, 10, 20}, "a")), "b": 10}
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

// midnights are when days begin, some of 23 or 25 hours, by the name of their zone.
var midnights = []struct {
	zone  string
	begin int64 // Unix time
}{
	{"America/Los_Angeles", 946800000}, {"Europe/Berlin", 954025200}, {"Europe/Berlin", 972770400},
	{"America/Havana", 954651600}, {"Asia/Kolkata", 947010600},
}

// beforeMidnight has some worlds begin a little before a day, and know its zone.
func (w *world) beforeMidnight() {
	if w.windows == 0 || w.counts || !w.chance(3, "a zone") {
		return
	}
	m := among(w.T, midnights, "midnight")
	w.zone = m.zone
	time.Sleep(time.Until(time.Unix(m.begin, 0)) - time.Duration(pick(w.T, 0, 60, "to midnight"))*time.Second)
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
	if w.counts {
		c.maxKeys = w.maxKeys // or keys would share a gate, which is not counted
	} else if pick(t, 0, 3, "ages") == 0 {
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

func (w *world) drawPolicy() policy.Policy {
	ramp := policy.Ramp{Mode: policy.RampMode(pick(w.T, 0, 3, "ramp")), Start: .2, Over: 5 * time.Second,
		CoolDown: 2 * time.Second}
	return among(w.T, []policy.Policy{policy.AIMD{}, policy.Tracking{},
		policy.Tracking{Spend: policy.SpendEvenly, Retry: policy.Retry{Longest: time.Minute, Test: true}}, ramp,
		adversary.Policy{Seed: 7, Calm: true}, adversary.Policy{Seed: 8, Expires: true}}, "policy")
}

// start adds a replica to the fleet.
func (w *world) start(limit quotient.Limit, c config, p quotient.Pool, joins bool) *replica {
	c.joins = joins || pick(w.T, 0, 3, "joins") == 0
	r := &replica{w: w, id: w.born, conf: c, keys: map[string]*keyState{}, pool: p, weight: max(1, p.Weight),
		first: p.Ordinal, awaiting: c.awaits, limit: limit, done: make(chan *call, 1000), exact: !c.learns,
		owned: map[string]quotient.KeyLimit{}, endings: map[string][]ending{},
		ofPlans: map[string][wasInvalid + 1]uint64{}}
	w.born++
	opts := []quotient.Option{
		quotient.MaxKeys(c.maxKeys), quotient.MaxWait(c.maxWait), quotient.MaxWaiting(c.perKey, c.total),
		quotient.MaxHold(c.maxHold),
		quotient.HoldDown(c.holdDown), quotient.HintMaxAge(c.hintMaxAge),
		fix(func(c *inside.Chance) { c.Phase, c.Hash, c.Wall, c.Plans = 3, judgeHash, r.clock.at, len(planNames) }),
		quotient.Logger(slog.New(listener{slog.DiscardHandler, r})),
	}
	if w.counts {
		r.exact = false
		opts = append(opts, quotient.Demand(16, newsAge))
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
		opts = append(opts, quotient.AwaitPool(c.hintMaxAge))
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
		opts = append(opts, quotient.OnAdmit(r.onAdmit))
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

// learn notes the units of a limit in force, and forgets those whose places they have taken.
func (r *replica) learn(l quotient.Limit) {
	for _, rate := range l.Rates {
		r.known[unitIndex(rate.Unit)] = true
	}
	for u, unit := range units {
		if u > 0 && r.known[u] && r.l.Check("k", quotient.Cost(unit, 0)).Reason == quotient.ReasonBadRequest {
			r.forget(u)
		}
	}
}

// knows reports whether a limit has no unit that is new.
func (r *replica) knows(l quotient.Limit) bool {
	return !slices.ContainsFunc(l.Rates, func(rate quotient.Rate) bool {
		u := unitIndex(rate.Unit)
		return u > 0 && !r.known[u]
	})
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
	if w.counts {
		w.joinTogether(r)
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
