package quotient

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"time"

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
	pool                 Pool
	sized                bool // the pool was configured
	startEmpty           bool
	awaits               bool // nothing is admitted before the pool is known
	holdDown, hintMaxAge time.Duration
	atLeastOne           bool
	plans                map[string]Limit
	mostPlans            int                   // at a time
	spokenKeys           int                   // keys of which this replica has others speak; 0: none
	newsMaxAge           time.Duration         // of what they say
	phase                int64                 // which sparse windows are ours while no ordinal is known
	wall                 func(time.Time) int64 // of tests of clock steps; nil for the wall clock
	hashKey              func(string) uint64   // of tests; nil for a hash of its own
}

// Defaults, where the zero value is not one. 65,536 keys take about 20 MB; 10,000 callers wait
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
		maxKeys: defaultMaxKeys, perKey: defaultPerKey, total: defaultTotal, mostPlans: maxPlans,
		policy: policy.Fixed{}, log: slog.New(slog.DiscardHandler),
		pool: Pool{Replicas: 1}, holdDown: defaultHoldDown, phase: rand.Int64N(1 << 32),
	}
}

func atLeast[T int | time.Duration](name string, v, least T) error {
	if v < least {
		return fmt.Errorf("quotient: %s: %v is below %v", name, v, least)
	}
	return nil
}

// MaxKeys bounds the number of keys that are remembered, 1 to 1<<30; 65,536 by default. Idle keys make room
// for others; under a policy that learns a key is idle ten minutes after its last call. While all are busy,
// further keys share one gate for each shard: they get less than their limit, never more.
func MaxKeys(n int) Option {
	return func(o *options) error {
		o.maxKeys = n
		if n > maxKeys {
			return fmt.Errorf("quotient: MaxKeys: %d is above %d", n, maxKeys)
		}
		return atLeast("MaxKeys", n, 1)
	}
}

// MaxWait bounds how long Acquire waits. A caller whose turn is known to come later is refused at once. 0,
// the default, leaves it to the context.
func MaxWait(d time.Duration) Option {
	return func(o *options) error { o.maxWait = d; return atLeast("MaxWait", d, 0) }
}

// MaxWaiting bounds how many callers wait, for one key and in total: 10,000 and 100,000 by default, each 0
// or more. Others are refused at once, unless they displace a lower Priority. A caller whose turn expired
// waits beyond this bound.
func MaxWaiting(perKey, total int) Option {
	return func(o *options) error {
		o.perKey, o.total = perKey, total
		return errors.Join(
			atLeast("MaxWaiting for a key", perKey, 0), atLeast("MaxWaiting in total", total, 0))
	}
}

// MaxHold gives a permit back that was not released after d, and counts it. The slot is free when the next
// call needs it. The Logger gets a line with the key, at most once a second. 0, the default, is for ever.
func MaxHold(d time.Duration) Option {
	return func(o *options) error { o.maxHold = d; return atLeast("MaxHold", d, 0) }
}

// Policy sets the controllers of the keys. The default is policy.Fixed, which is always at this replica's
// share. Without BeyondShare no other policy goes past the share either. A method Validate() error of the
// policy is called.
//
// Under a policy that learns, a key has one controller for its requests and one for each other Unit that
// rates count, each bounded by the tightest of them. With Limit.InFlight it has one for the slots. A refusal
// is attributed to one controller that the request took from: the one whose reported quota is closest to
// exhaustion, otherwise the one that most recently delayed a request. All controllers get all other
// feedback. A key forgets ten minutes after its last feedback, or after a controller's pause of up to an
// hour; a success counts from the latest admission. The policy's New is called for many keys at once. A
// controller that panics at feedback panics in Done and Report; one that panics otherwise is dropped.
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

// BeyondShare lets a Policy take a replica up to the whole global limit, in rates and in slots, once it has
// learned that it may. A controller starts at the share, and cautiously while the pool is unknown. It is for
// clients of an upstream that enforces a limit itself and answers 429.
func BeyondShare() Option {
	return func(o *options) error { o.beyond = true; return nil }
}

// Logger receives what an operator should see: changes of limits and pool, refused hints, calls of unknown
// plans. The default discards it, except that what ails a source goes to slog.Default: see Follow. Hints that
// fail or are refused are one line at once and then one a minute, with their number, and one line when usable
// hints are back. A limiter that Registry.Limiter makes adds its name as the attribute limiter.
func Logger(l *slog.Logger) Option {
	return func(o *options) error {
		if l == nil {
			return errors.New("quotient: Logger: nil")
		}
		o.log, o.logs = l, true
		return nil
	}
}

// OnAdmit is called when a call was admitted, with the time since the call and the overhead in it: the time
// since its tokens and slots were free. It runs on the caller's goroutine, without a lock. Several hooks are
// called in turn; nil is ignored.
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

// Replicas is StartPool for a pool of n, 1 to 1,000,000, without ordinals.
func Replicas(n int) Option { return StartPool(Pool{Replicas: n}) }

// StartPool sets the configured pool. It counts until SetPool or Follow brings another, and again when hints
// have grown older than HintMaxAge. The default is one replica, which BeyondShare treats as an unknown pool.
func StartPool(p Pool) Option {
	return func(o *options) error { o.pool, o.sized = p, true; return p.validate() }
}

// StartEmpty makes buckets start empty and fill at this replica's share, so that a new replica of a busy
// pool brings no burst. A bucket of 1,000 an hour takes an hour to fill: give such a rate a small Burst.
func StartEmpty() Option {
	return func(o *options) error { o.startEmpty = true; return nil }
}

// AwaitPool admits nothing until SetPool or Follow brings a pool. Callers wait as they do for a slot, or are
// refused with ReasonPool. Then each key begins with its share of that pool, and aligned windows open with
// the next one. When nothing usable has come for HintMaxAge since the first Follow began, the configured
// pool counts while one runs. Without a configured pool nothing is admitted until a hint comes, nor while
// the last one is older than HintMaxAge. A replica that a network split cuts off from its source then stops.
// New requires a HintMaxAge.
func AwaitPool() Option {
	return func(o *options) error { o.awaits = true; return nil }
}

// HoldDown is how long a followed pool must have been smaller before it counts as smaller; 30 s by default, 0
// for at once. A larger one counts at once.
func HoldDown(d time.Duration) Option {
	return func(o *options) error { o.holdDown = d; return atLeast("HoldDown", d, 0) }
}

// HintMaxAge returns to the configured pool when a followed source has reported nothing usable for d. Under
// AwaitPool without a configured pool nothing is admitted then, also when Follow has ended. 0, the default,
// keeps the last good pool for ever. A Limiter with neither a configured pool nor AwaitPool keeps it too:
// one replica would be the whole limit. Give it to sources that report repeatedly, or Env.
func HintMaxAge(d time.Duration) Option {
	return func(o *options) error { o.hintMaxAge = d; return atLeast("HintMaxAge", d, 0) }
}

// maxSpoken is how many keys a replica may name, and maxLearned how many more it learns of: what others name
// beyond that is divided evenly.
const (
	maxSpoken  = 10_000
	maxLearned = 4
)

// Demand lets the limits of busy keys follow the demand of the replicas, if the source of Follow is a
// Carrier. A replica borrows what the others do not use of their shares, in rates and slots. It has its own
// share at any time. It names at most that many keys, 1 to 10,000, at once: those that it holds back the
// most. Windows, turns and bursts are divided evenly as always.
//
// Reports older than maxAge do not count, and then the shares hold: see bound 10 of docs/bounds.md. A second
// or two is right for most; a large fleet needs as long as its reports take.
func Demand(keys int, maxAge time.Duration) Option {
	return func(o *options) error {
		if o.spokenKeys, o.newsMaxAge = keys, maxAge; keys > maxSpoken {
			return fmt.Errorf("quotient: Demand: %d keys are more than %d", keys, maxSpoken)
		}
		return errors.Join(
			atLeast("Demand: keys", keys, 1), atLeast("Demand: maxAge", maxAge, time.Millisecond))
	}
}

// AtLeastOne gives every replica one slot when Limit.InFlight is smaller than the pool: the fleet may then
// hold as many slots as it has replicas. By default the limit holds, and replicas without a slot refuse with
// ReasonShare.
func AtLeastOne() Option {
	return func(o *options) error { o.atLeastOne = true; return nil }
}

// Plans are the plans that the limiter has from the start, by name: see SetPlan.
func Plans(plans map[string]Limit) Option {
	return func(o *options) error { o.plans = maps.Clone(plans); return nil }
}

// called gives the limiter a name.
func called(name string) Option {
	return func(o *options) error { o.name = name; return nil }
}
