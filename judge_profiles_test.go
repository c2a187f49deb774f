package quotient_test

// The profiles of TestPropertyEverything.

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
}

var general = [numOps]int{
	opAllow: 4, opTry: 10, opUpTo: 6, opAcquire: 10, opSleep: 16, opRelease: 10, opReport: 2, opCorrect: 5,
	opCorrectRequests: 4, opExpire: 2,
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
			opCount: 20, opTry: 30, opUpTo: 10, opAcquire: 8, opCorrect: 20, opCorrectRequests: 10,
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
}

var profileNames = []string{
	"general", "costs", "holds", "limits", "clocks", "hints", "keys", "plans", "counted",
}

// planNames are those of a profile with plans; "" is the limiter's own limit. A limit of a key's own begins
// with what is left of the plan that the key is in, which the models do not follow.
var planNames = []string{"", "gold", "tin"}

func init() {
	profiles["plans"] = profile{
		weights: with(map[op]int{opPlan: 8, opOverride: 0, opDeny: 0, opTry: 25, opAcquire: 20, opTell: 5,
			opLie: 1, opJoin: 2, opLeave: 2, opAll: 6}),
		plans: true, keys: 3, replicas: 3, maxKeys: 6, steps: 70, windows: 3, counted: 4, paced: 1,
		costs: true, units: mixed, pers: fast, bursts: anyBurst, sleeps: anySleep, priced: 2, rates: 2,
		slots: 4, ctrls: true, holds: true, hooks: true,
	}
}
