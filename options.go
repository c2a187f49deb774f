package quotient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quotient-go/quotient/internal/inside"
	"github.com/quotient-go/quotient/policy"
)

// Option sets up a new Limiter. New returns an error for the first that is out of range.
type Option func(*options) error

type options struct {
	name                 string // "" unless a Registry has given one
	maxKeys              int
	maxWait              time.Duration
	perKey, total        int // waiting
	maxHold              time.Duration
	policy               policy.Policy
	learns               bool
	beyond               bool // controllers may go past the share
	log                  *slog.Logger
	logs                 bool // there is a Logger
	onAdmit              func(string, time.Duration, time.Duration)
	onHeldBack           func(context.Context, HeldBack)
	pool                 Pool
	sized                bool // the pool was configured
	startEmpty           bool
	awaits               bool // nothing is admitted before the pool is known
	holdDown, hintMaxAge time.Duration
	atLeastOne           bool
	plans                map[string]Limit
	spokenKeys           int           // keys of which this replica has others speak; 0: none
	newsMaxAge           time.Duration // of what they say
	chance               inside.Chance
}

// Defaults, where the zero value is not one. 65,536 keys of one rate take 8 MB; 10,000 callers wait
// in about 5 MB beside their goroutines; half a minute outlasts a rolling restart's flapping.
const (
	defaultMaxKeys  = 1 << 16
	defaultPerKey   = 10_000
	defaultTotal    = 100_000
	defaultHoldDown = 30 * time.Second
	maxKeys         = 1 << 30
)

func defaults() options {
	return options{
		maxKeys: defaultMaxKeys, perKey: defaultPerKey, total: defaultTotal,
		policy: policy.Fixed{}, log: slog.New(slog.DiscardHandler),
		pool: Pool{Replicas: 1}, holdDown: defaultHoldDown,
		chance: inside.Chance{Phase: rand.Int64N(1 << 32), Plans: maxPlans, Unswept: shortPause},
	}
}

func atLeast[T int | time.Duration](name string, v, least T) error {
	if v < least {
		return fmt.Errorf("quotient: %s: %v is below %v", name, v, least)
	}
	return nil
}

// MaxKeys bounds the number of keys that are remembered, 1 to 1<<30; 65,536 by default. Idle keys make room for
// others; under a policy that learns a key is idle ten minutes after its last call. While all are busy, further keys
// share one gate for each shard, so that they get less than their limit, never more.
//
// A key of one rate takes 115 bytes, so the default is 8 MB. One that has refused takes some 100 more for what it has
// told, and for a minute 256 to count that, 64 with windows, units or a policy.
func MaxKeys(n int) Option {
	return func(o *options) error {
		o.maxKeys = n
		if n > maxKeys {
			return fmt.Errorf("quotient: MaxKeys: %d is above %d", n, maxKeys)
		}
		return atLeast("MaxKeys", n, 1)
	}
}

// MaxWait bounds how long Acquire waits; a caller whose turn is known to come later is refused at once. With 0, the
// default, the context alone bounds it.
func MaxWait(d time.Duration) Option {
	return func(o *options) error { o.maxWait = d; return atLeast("MaxWait", d, 0) }
}

// MaxWaiting bounds how many callers wait, for one key and in total: 10,000 and 100,000 by default, each 0 or more.
// Others are refused at once, unless they displace a lower Priority.
func MaxWaiting(perKey, total int) Option {
	return func(o *options) error {
		o.perKey, o.total = perKey, total
		return errors.Join(
			atLeast("MaxWaiting for a key", perKey, 0), atLeast("MaxWaiting in total", total, 0))
	}
}

// MaxHold gives a permit back that was not released after d, when the next call needs it, and counts and logs it. With
// 0, the default, an unreleased permit is out for ever.
func MaxHold(d time.Duration) Option {
	return func(o *options) error { o.maxHold = d; return atLeast("MaxHold", d, 0) }
}

// Policy sets the controllers of the keys. The default is policy.Fixed, which is always at this replica's share;
// unless BeyondShare is set no other policy goes past it either. A method Validate() error of the policy is called.
//
// Under a policy that learns, a key has one controller for its requests, one for each other Unit that rates count,
// each bounded by the tightest of them, and with Limit.InFlight one for the slots. A refusal does not say which was
// too fast, so one that the request took from answers for it: the one whose reported quota is closest to exhaustion,
// or else the one that delayed a request last. All other feedback goes to all. A key forgets ten minutes after its
// last feedback, or after a pause. A controller that panics at feedback panics in Done and Report; one that panics
// otherwise is dropped.
func Policy(p policy.Policy) Option {
	return func(o *options) error {
		if p == nil {
			return errors.New("quotient: Policy: nil")
		}
		if v, ok := p.(interface{ Validate() error }); ok {
			if err := v.Validate(); err != nil {
				return fmt.Errorf("quotient: Policy: %w", err)
			}
		}
		o.policy, o.learns = p, p.New(0) != nil
		return nil
	}
}

// Learns reports whether the limiter's policy learns: then Permit.Done does more than Release.
func (l *Limiter) Learns() bool { return l.learns }

// BeyondShare lets a Policy take a replica up to the whole global limit once it has learned that it may: for clients
// of an upstream that enforces a limit itself and answers 429. A controller starts at the share.
func BeyondShare() Option {
	return func(o *options) error { o.beyond = true; return nil }
}

// Logger receives what an operator should see: changes of limits and pool, refused hints, calls of unknown plans. All
// values are numbers and words, for any handler. A change that changes nothing has no line, nor has one that package
// admin makes, which logs it with who made it. The default discards all but what ails a source (see Follow), and that
// nothing is admitted because the pool is not known (AwaitPool), which go to slog.Default at WARN.
func Logger(l *slog.Logger) Option {
	return func(o *options) error {
		if l == nil {
			return errors.New("quotient: Logger: nil")
		}
		o.log, o.logs = l, true
		return nil
	}
}

// OnAdmit has f called for each call that is admitted. waited is the time since the call, and overhead the part of it
// since its tokens and slots were free. f runs on the caller's goroutine and without a lock, so many may run at a time.
// Several hooks are called in turn; nil is ignored.
func OnAdmit(f func(key string, waited, overhead time.Duration)) Option {
	return func(o *options) error {
		if f == nil {
			return nil
		}
		if before := o.onAdmit; before != nil {
			o.onAdmit = func(key string, waited, overhead time.Duration) {
				before(key, waited, overhead)
				f(key, waited, overhead)
			}
			return nil
		}
		o.onAdmit = f
		return nil
	}
}

// HeldBack is a call of Acquire that was not admitted at once.
type HeldBack struct {
	Key    string
	Waited time.Duration // until it was admitted, refused or given up; 0 for one that was refused at once
	Rule                 // the one that it waited for at first, or that refuses it; zero where no single one does
	Err    error         // what Acquire returns: nil for an admission, a *LimitedError, or that of the context
}

// OnHeldBack has f called when Acquire has waited for a call or refuses it, with Acquire's context: for traces. f runs
// on the caller's goroutine and without a lock, so many may run at a time. It is not called for calls that are admitted
// at once or are not valid, for those of a dry run, and for those of methods without a context. Each try of Do is a
// call. Several hooks are called in turn; nil is ignored.
func OnHeldBack(f func(ctx context.Context, h HeldBack)) Option {
	return func(o *options) error {
		if before := o.onHeldBack; before != nil && f != nil {
			o.onHeldBack = func(ctx context.Context, h HeldBack) {
				before(ctx, h)
				f(ctx, h)
			}
		} else if f != nil {
			o.onHeldBack = f
		}
		return nil
	}
}

// Replicas is StartPool for a pool of n, 1 to 1,000,000, without ordinals.
func Replicas(n int) Option { return StartPool(Pool{Replicas: n}) }

// StartPool sets the configured pool, which counts until SetPool or Follow brings another, and again when a source has
// been silent for HintMaxAge, or the age of AwaitPool. The default is one replica, which BeyondShare treats as an
// unknown pool.
func StartPool(p Pool) Option {
	return func(o *options) error { o.pool, o.sized = p, true; return p.validate() }
}

// StartEmpty makes buckets start empty and fill at this replica's share, so that a new replica of a busy pool brings
// no burst. A bucket of 1,000 an hour takes an hour to fill, so give slow rates a small Burst.
func StartEmpty() Option {
	return func(o *options) error { o.startEmpty = true; return nil }
}

// AwaitPool admits nothing until SetPool or Follow brings a pool: callers wait as they do for a slot, or are refused
// with ReasonPool. Then each key begins with its share, and windows open with the next one. When a Follow has had
// nothing usable for maxAge, above 0, the configured pool counts. Without one nothing is admitted, also when Follow
// has ended, so a replica that a network split cuts off from its source stops, unless it has BeyondShare. Let maxAge be
// at most the source's expiry plus HoldDown, so that it stops before others take its share. AwaitPool sets HintMaxAge
// too; of the two options the last one counts.
func AwaitPool(maxAge time.Duration) Option {
	return func(o *options) error {
		o.awaits, o.hintMaxAge = true, maxAge
		return atLeast("AwaitPool: maxAge", maxAge, 1)
	}
}

// HoldDown is how long a followed pool must have been smaller before it counts as smaller: 30 s by default, and at once
// with 0. A larger one counts at once.
func HoldDown(d time.Duration) Option {
	return func(o *options) error { o.holdDown = d; return atLeast("HoldDown", d, 0) }
}

// HintMaxAge returns to the configured pool when a followed source has reported nothing usable for d. 0, the default,
// keeps the last good pool for ever, and so does a Limiter without a configured one. Give it to sources that report
// repeatedly, or Env.
func HintMaxAge(d time.Duration) Option {
	return func(o *options) error { o.hintMaxAge = d; return atLeast("HintMaxAge", d, 0) }
}

// maxSpoken is how many keys a replica may name, and maxLearned how many more it learns of: what others name
// beyond that is divided evenly.
const (
	maxSpoken  = 10_000
	maxLearned = 4
)

// Demand lets the limits of busy keys follow the demand of the replicas, if the source of Follow sums up numbers over
// the pool, as poolsize/gossip does. A replica borrows what the others do not use of their shares, in rates and slots,
// and has its own share at any time; windows, turns and bursts stay divided evenly. keys, 1 to 10,000, is how many keys
// a replica reports on at once: those that it holds back the most. While reports are older than maxAge, for which a
// second or two suits most fleets, the shares hold.
func Demand(keys int, maxAge time.Duration) Option {
	return func(o *options) error {
		if o.spokenKeys, o.newsMaxAge = keys, maxAge; keys > maxSpoken {
			return fmt.Errorf("quotient: Demand: %d keys are more than %d", keys, maxSpoken)
		}
		return errors.Join(
			atLeast("Demand: keys", keys, 1), atLeast("Demand: maxAge", maxAge, time.Millisecond))
	}
}

// AtLeastOne gives every replica one slot when Limit.InFlight is smaller than the pool, so that the fleet may hold as
// many as it has replicas. By default the limit holds, and replicas without a slot refuse with ReasonShare.
func AtLeastOne() Option {
	return func(o *options) error { o.atLeastOne = true; return nil }
}

// Plans gives the limiter plans from the start, by their names: see Limiter.SetPlan.
func Plans(plans map[string]Limit) Option {
	return func(o *options) error { o.plans = maps.Clone(plans); return nil }
}

// called gives the limiter a name.
func called(name string) Option {
	return func(o *options) error { o.name = name; return nil }
}

// CallOption changes what one call requests. It allocates nothing. The zero value changes nothing.
type CallOption struct {
	unit string
	n    int
	kind optionKind
	into *[]RuleState
}

// optionKind is what a CallOption changes.
type optionKind uint8

const (
	optionNone optionKind = iota
	optionEvents
	optionClass
	optionPlan
	optionState
	optionRefund
)

// Weight makes a call count as n requests and take n slots: 1 (the default) to 1<<40, or the largest int. The last one
// counts.
func Weight(n int) CallOption { return CallOption{n: n, kind: optionEvents} }

// Cost makes a call take n events, 0 to the most of Weight, from the rates that count unit: tokens, bytes, rows. n may
// be an estimate, since Permit.Correct puts it right. Costs of a unit add up; Cost("", n) is Weight(n). A unit that no
// rate counts, nor has counted lately, is an error. When new units take the place of one that no rate counts any more,
// calls that wait and permits forget their costs in it, also where a rate counts it again later.
func Cost(unit string, n int) CallOption { return CallOption{unit: unit, n: n, kind: optionEvents} }

// Plan puts a call under a plan (Limiter.SetPlan); "", the default, is the limiter's own limit. The last Plan counts.
// One that the limiter does not have is an error, and is logged.
func Plan(name string) CallOption { return CallOption{unit: name, kind: optionPlan} }

// Refundable has the permit of a call remember what rates of requests have given it, also where there is nothing to
// release: see Permit.Refund.
func Refundable() CallOption { return CallOption{kind: optionRefund} }

// maxAmount bounds one weight, cost or burst so that its thousandths stay far from the edge of an int64.
const maxAmount = min(1<<40, math.MaxInt)

// demand is what one call takes: requests, and events of each unit the limiter knows, in the order of
// setting.units. It holds no pointer, so that waiters and permits stay small.
type demand struct {
	weight int
	costs  [maxUnits]int
	priced bool // there is a cost, if only of nothing, that may be corrected later
	kept   bool // of its requests some may be given back
	class  Priority
	plan   planID
}

var oneRequest = demand{weight: 1}

// more reports whether opts may change a call of one request.
func more(opts []CallOption) bool {
	return len(opts) > 1 || len(opts) == 1 && opts[0].kind != optionState
}

// newDemand adds up the options of a call.
func newDemand(opts []CallOption, in inForce) (demand, error) {
	d := oneRequest
	for i := range opts {
		a := &opts[i]
		switch {
		case a.kind == optionNone || a.kind == optionState:
		case a.kind == optionRefund:
			d.kept = true
		case a.kind == optionClass:
			if d.class = Priority(a.n); !d.class.valid() {
				return d, fmt.Errorf("quotient: Priority: %d is not between %d and %d",
					a.n, PriorityLow, PriorityCritical)
			}
		case a.kind == optionPlan:
			var ok bool
			if d.plan, ok = in.named(a.unit); !ok {
				return d, unknownPlan(clip(a.unit))
			}
		case a.unit == "":
			if a.n < 1 || a.n > maxAmount {
				return d, fmt.Errorf("quotient: Weight: %d is not between 1 and %d", a.n, maxAmount)
			}
			d.weight = a.n
		default:
			i := slices.Index(in[0].setting.units, a.unit)
			if i < 0 {
				return d, fmt.Errorf("quotient: Cost: unit: no rate of the limiter has counted %q", a.unit)
			}
			if a.n < 0 || a.n > maxAmount-d.costs[i] {
				return d, fmt.Errorf("quotient: Cost(%q): %d is not between 0 and %d", a.unit, a.n, maxAmount)
			}
			d.costs[i] += a.n
			d.priced = true
		}
	}
	return d, nil
}

// unknownPlan is the error of a call that names a plan which the limiter does not have.
type unknownPlan string

// Error names the plan.
func (p unknownPlan) Error() string {
	return fmt.Sprintf("quotient: Plan: the limiter has no plan %q", string(p))
}

// of returns the events that d takes from a rate that counts the unit (0: requests).
func (d *demand) of(unit int) int {
	switch {
	case unit == 0:
		return d.weight
	case unit == noUnit:
		return 0
	}
	return d.costs[unit-1]
}

// Priority is the class of a call. It matters where callers wait: Acquire serves higher classes first, and first in,
// first out within a class. The zero value, PriorityNormal, is the default.
//
// No waiter starves, because at least one of any eight admissions of a key goes to the oldest waiter, and all others
// wait behind it until there is room. In a full queue (MaxWaiting) a call takes the place of the youngest waiter of
// the lowest class, if that is lower; that one is refused with ReasonQueue.
type Priority int8

// The classes, lowest first.
const (
	PriorityLow      Priority = iota - 1 // work that can wait: batches, prefetching
	PriorityNormal                       // the default
	PriorityHigh                         // a person looks at a screen and waits
	PriorityCritical                     // health checks, and what keeps the rest going
)

const numClasses = int(PriorityCritical-PriorityLow) + 1

var priorityNames = [numClasses]string{"low", "normal", "high", "critical"}

func (p Priority) valid() bool { return p >= PriorityLow && p <= PriorityCritical }

// Option gives a call this class. The last one counts. A value that is none of the four is an error.
func (p Priority) Option() CallOption { return CallOption{n: int(p), kind: optionClass} }

// String is low, normal, high or critical.
func (p Priority) String() string {
	if !p.valid() {
		return "invalid"
	}
	return priorityNames[p-PriorityLow]
}
