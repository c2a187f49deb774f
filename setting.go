package quotient

import (
	"fmt"
	"slices"
	"time"

	"github.com/quotient-go/quotient/internal/meter"
)

// setting is a list of rules: what a limit and a pool come to on this replica, in force from an instant on. It is
// worked out once for each change and shared by all keys. It never changes once it is published, but for next.
//
// A key has a resource for each rule: what is left of it. A gate is a key's resources and the queue in front
// of them. A shard is a part of the keys under one lock.
//
// Settings form a list themselves. A gate holds the one that it has applied. When the gate is next touched it replays
// those that followed, each at its own instant, and so ends exactly where an eager one would be. The setting of a
// gate without a limit of its own is the newest if none is next. Settings that no gate holds any more are garbage.
type setting struct {
	at      meter.Instant
	fastMax int        // the most requests that one bucket decides on; 0: look further
	first   meter.Fill // of that bucket
	next    *setting   // nil for the newest; written under all shard locks, read under one
	own     *own       // nil for that of all other keys
	slots   int        // of this replica
	rules   []rule
	order   []*rule // in which they are tried
	ctrls   []*rule // those that the policy governs
	limit   Limit

	holds      bool     // every permit has something to give back or to learn from
	slotsOnly  bool     // slots alone decide
	timesHolds bool     // a controller of slots learns from how long they are held
	startEmpty bool     // this replica joined a pool at work: what it has not counted yet starts empty
	awaiting   bool     // nothing is admitted: the pool is awaited
	clock      uint32   // that calls need
	reshaped   bool     // rules, or their places in a gate, are not those of the setting before
	serial     uint32   // counts the settings
	belief     belief   // in the pool that it was worked out for
	units      []string // that rules count
	base       *setting // the limiter's setting that one of a single key stands beside
	plan       planID   // whose setting it is
	planName   string   // "" also for a plan that was taken off
	special    bool     // a call must look whether the gate is under the right setting
	begins     bool     // the first pool is known: nothing was taken before, and each gate begins
	census     bool     // the fleet's count decides on a rule
	joins      bool     // this replica joined a pool at work: its windows open with the next one
}

// rule is this replica's part of one bound: a rate, the slots, or what the policy governs. It holds no state
// of a key: that is the key's resource.
type rule struct {
	id
	unitID int // of what it takes from a demand; 0: requests; noUnit: nothing
	index  int // in setting.rules
	kind   kind
	place  place
	at     int    // in its place
	reason Reason // for which it holds a call back
	timed  bool   // what is taken comes back by time alone; a slot comes back by its release
	strict bool   // its turns, or its sparse windows, are waited for when all others have room
	hidden bool   // a part of another rule
	lends  bool   // replicas may lend each other of it: windows and turns are divided by the clock

	limit, share float64       // events in each window, or slots: over the fleet and here
	window       time.Duration // of a rate; a second for a controller of events
	meter.Rule
	most, here int           // at once, ever: over the fleet and here
	countID    uint64        // tells a counted rule apart from others of the fleet; 0: it is none
	burst      float64       // that may come at once, here; 0 for windows and slots
	grace      time.Duration // within which an admitted caller must wake; 0: whenever it likes
	ctrl       int           // in setting.ctrls: the controller that it is of, or noController
	ctrlTerms
}

// id tells rules apart. State carries over from a rule to the one with its id in the next setting.
type id struct {
	name, unit string
	role       role
	per        int64 // of a window; or which controller
	zone       string
}

// role is the part of a limit that a rule stands for. A name does not show it: a user may give a rate any name.
type role uint8

const (
	roleRate role = iota
	roleSlots
	roleController
	roleControllerSlots
)

// kind is the resource that a rule has. Only resolve and replay ask for it.
type kind uint8

const (
	kindBucket kind = iota
	kindCost
	kindTurn
	kindWindow
	kindSlots
	kindController
	kindControllerSlots
)

// place is where a gate keeps a rule's resource.
type place uint8

const (
	placeFirst           place = iota // gate.first
	placeRest                         // gate.ext.rest
	placeSlots                        // the gate itself
	placeControllers                  // gate.ext.learned.pacers
	placeControllerSlots              // gate.ext.learned
)

const noController = -1

// noUnit is the unitID of a rule that is kept under a limit that denies, and whose unit has no place any more.
const noUnit = -1

// The names of the rules that are no rates.
const (
	inFlightRule = "in-flight"
	ctrlRule     = "adaptive"
)

// belief is what a limiter believes about its pool.
type belief struct {
	pool   Pool
	sized  bool // the size of the pool was configured, set or followed
	awaits bool // it was not, and AwaitPool waits for it
}

// words returns the pool in words.
func (b belief) words() string {
	if b.awaits {
		return "the replica count is not known"
	}
	s := fmt.Sprintf("%d replicas", b.pool.Replicas)
	if b.pool.Replicas == 1 {
		s = "1 replica"
	}
	if b.pool.Weight > 1 {
		s += fmt.Sprintf(", of which this one is %d", b.pool.Weight)
	}
	if b.pool.Ordinal > 0 {
		s += fmt.Sprintf(", ordinal %d", b.pool.Ordinal)
	}
	return s
}

// own is what a key has for itself: a limit, or a part of the limit that follows what replicas want of it.
// The settings that follow from it are worked out when its gate is next touched. Each is for the pool of the
// setting beside which it stands: the limiter's, or that of a plan.
type own struct {
	o      *options
	limit  *Limit    // nil for that of the setting beside which it stands
	until  time.Time // when the limit ends; zero: it is for good
	lapsed bool      // it was removed while that denies everything, as this limit does: the rules stay until then
	tally  *tally    // nil for a key that replicas do not mention
	part   float64   // of the limit, for this replica; 0 for its share
}

// beside works out the setting of a key beside that of all other keys, after old.
func (w *own) beside(base, old *setting, begins bool) *setting {
	limit := base.limit
	if w.limit != nil {
		limit = *w.limit
	}
	st := w.o.resolve(limit, base.belief, base.units, w.part)
	if w.limit == nil {
		st.plan, st.planName = base.plan, base.planName
	}
	st.mayLend(w)
	st.begins = begins
	st.own, st.base, st.at, st.serial, st.special = w, base, base.at, base.serial, true
	st.after(old)
	return st
}

// overridden reports whether the key has a limit of its own.
func (st *setting) overridden() bool { return st.own != nil && st.own.limit != nil }

// lapsed reports whether the key has only the rules of a limit of its own that was removed.
func (st *setting) lapsed() bool { return st.own != nil && st.own.lapsed }

// after makes st the successor of old. A limit that refuses everything keeps the rules: what was taken is not
// forgotten. Where the gates begin there is nothing to keep.
func (st *setting) after(old *setting) {
	if st.limit.Deny && !st.begins {
		st.rules, st.order, st.ctrls = st.kept(old), nil, nil
		st.arrange()
		st.clock, st.timesHolds = old.clock, old.timesHolds
	}
	st.reshaped = st.begins || !sameShape(old, st)
}

// kept returns the rules of another setting, with the places that their units have in st.
func (st *setting) kept(old *setting) []rule {
	rules := slices.Clone(old.rules)
	for i := range rules {
		if r := &rules[i]; r.unitID != 0 {
			if r.unitID = 1 + slices.Index(st.units, r.unit); r.unitID == 0 {
				r.unitID, r.lends = noUnit, false
			}
		}
	}
	return rules
}

// resolve works out a setting. The limit and the pool are valid. A part of the limit above 0 is what this
// replica may use in place of its share.
func (o *options) resolve(limit Limit, b belief, units []string, part float64) *setting {
	st := &setting{limit: limit, units: units, startEmpty: o.startEmpty, belief: b}
	st.joins = o.startEmpty || o.awaits
	st.awaiting = b.awaits && (len(limit.Rates) > 0 || limit.InFlight > 0)
	if b.awaits {
		b.pool = Pool{Replicas: maxReplicas}
	}
	divisor := o.divisor(b)
	for i, r := range limit.Rates {
		st.rules = append(st.rules, o.rate(r, i, divisor, units))
	}
	st.oneTurn()
	st.meet()
	if limit.InFlight > 0 {
		st.slots = o.slots(limit.InFlight, divisor)
		st.rules = append(st.rules, slotRule(limit.InFlight, st.slots))
	}
	st.lendable()
	if part > 0 {
		st.lend(part)
	}
	o.govern(st, b, part)
	st.arrange()
	st.simplify()
	return st
}

// arrange gives each rule its place, and puts the rules in the order in which they are tried. Slots are
// first, since no time is known for them, and the strict rate is behind all others.
func (st *setting) arrange() {
	rest, first := 0, false
	for i := range st.rules {
		r := &st.rules[i]
		r.index = i
		switch r.kind {
		case kindBucket:
			if !first {
				r.place, first = placeFirst, true
				continue
			}
			fallthrough
		case kindCost, kindTurn, kindWindow:
			r.place, r.at = placeRest, rest
			rest++
		case kindSlots:
			r.place = placeSlots
		case kindController:
			r.place, r.at = placeControllers, r.ctrl
			st.ctrls = append(st.ctrls, r)
		case kindControllerSlots:
			r.place = placeControllerSlots
		}
	}
	for _, phase := range []func(*rule) bool{
		func(r *rule) bool { return r.role == roleSlots },
		func(r *rule) bool { return r.role == roleRate && !r.strict },
		func(r *rule) bool { return r.strict },
		func(r *rule) bool { return r.role == roleController },
		func(r *rule) bool { return r.role == roleControllerSlots },
	} {
		for i := range st.rules {
			if r := &st.rules[i]; phase(r) {
				st.order = append(st.order, r)
			}
		}
	}
}

// simplify finds out what the fast path may decide on.
func (st *setting) simplify() {
	slots := st.limit.InFlight > 0
	st.holds = slots || len(st.ctrls) > 0
	for i := range st.rules {
		r := &st.rules[i]
		st.census = st.census || r.Counted
		switch {
		case r.kind == kindWindow || r.kind == kindTurn:
			st.clock = clockWall
		case r.timed:
			st.clock = max(st.clock, clockMonotonic)
		}
	}
	if st.awaiting || st.limit.Deny {
		return
	}
	rates := len(st.limit.Rates)
	st.slotsOnly = rates == 0 && len(st.ctrls) == 0 && slots
	if rates == 1 && st.rules[0].place == placeFirst {
		st.fastMax, st.first = st.rules[0].most, st.rules[0].Fill
	}
}

// lendable finds the rules that replicas may lend each other.
func (st *setting) lendable() {
	for i := range st.rules {
		r := &st.rules[i]
		r.lends = r.role == roleSlots || r.Schedule == nil && r.Turn == nil
	}
}

// stricter reports whether st may refuse for good what old did not.
func (st *setting) stricter(old *setting) bool {
	if st.limit.Deny || old.awaiting {
		return true
	}
	for i := range st.rules {
		r := &st.rules[i]
		if o := old.find(r.id); o == nil || r.most < o.most || r.here < o.here {
			return true
		}
	}
	return false
}

// find returns the rule of that id, or nil.
func (st *setting) find(x id) *rule {
	for i := range st.rules {
		if st.rules[i].id == x {
			return &st.rules[i]
		}
	}
	return nil
}

// counts reports whether a rate counts the unit.
func (st *setting) counts(unit string) bool {
	for i := range st.rules {
		if r := &st.rules[i]; r.role == roleRate && r.unit == unit {
			return true
		}
	}
	return false
}

// sameShape reports whether gates keep what is left of the same rules in the same places under both settings.
func sameShape(a, b *setting) bool {
	if len(a.rules) != len(b.rules) {
		return false
	}
	for i := range a.rules {
		x, y := &a.rules[i], &b.rules[i]
		if x.id != y.id || x.kind != y.kind || x.place != y.place || x.at != y.at {
			return false
		}
	}
	return true
}
