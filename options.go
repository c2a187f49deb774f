package quotient

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// Option sets something about a new Limiter. New reports the first that is out of range.
type Option func(*options) error

type options struct {
	maxKeys         int
	maxWait         time.Duration
	perKey, total   int // waiting
	maxHold         time.Duration
	leakCheck       func(Leak)
	watches         bool // permits have an end or a report
	policy          policy.Policy
	learns          bool
	ceiling         Ceiling
	log             *slog.Logger
	name            string
	onWait          func(string, time.Duration)
	onAdmit         func(string, time.Duration, time.Duration)
	pool            Pool
	sized           bool // the pool was configured
	joins           bool
	awaits          bool // nothing is admitted before somebody says how large the pool is
	holdDown, stale time.Duration
	atLeastOne      bool
	dryRun          bool
	phase           int64 // which sparse windows are ours while no ordinal is known
	wall            wallClock
}

// Defaults, where the zero value is not one. 65,536 keys take about 20 MB; 10,000 callers wait
// in about 5 MB beside their goroutines; half a minute outlasts a rolling restart's flapping.
const (
	defaultMaxKeys  = 1 << 16
	defaultPerKey   = 10_000
	defaultTotal    = 100_000
	defaultHoldDown = 30 * time.Second
	mostKeys        = 1 << 30
)

func defaults() options {
	return options{
		maxKeys: defaultMaxKeys, perKey: defaultPerKey, total: defaultTotal,
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

// MaxKeys bounds the number of keys that are remembered, 1 to 1<<30; 65,536 by default. Idle keys
// make room for others; one that was asked for under a law that learns, or that ramps, is idle ten minutes later. While that many keys are all busy, further keys share one gate for
// each shard: they are limited more than they should be, never less.
func MaxKeys(n int) Option {
	return func(o *options) error {
		o.maxKeys = n
		if n > mostKeys {
			return fmt.Errorf("quotient: MaxKeys: %d is above %d", n, mostKeys)
		}
		return atLeast("MaxKeys", n, 1)
	}
}

// MaxWait bounds how long Acquire waits. A caller whose turn is known to come later is
// refused at once. 0, the default, leaves it to the context.
func MaxWait(d time.Duration) Option {
	return func(o *options) error { o.maxWait = d; return atLeast("MaxWait", d, 0) }
}

// MaxWaiting bounds how many callers wait: for one key and in total, 10,000 and 100,000 by default.
// Those beyond are refused at once, but for one of a higher Priority than some who wait: it takes the place of the youngest of the lowest
// class. 0 for a key means that nobody ever waits. On a paced rate it is the number of permits that may be reserved ahead; who
// has lost a turn waits again beyond it (see Acquire).
func MaxWaiting(perKey, total int) Option {
	return func(o *options) error {
		o.perKey, o.total = perKey, total
		return errors.Join(atLeast("MaxWaiting for a key", perKey, 0), atLeast("MaxWaiting in total", total, 0))
	}
}

// MaxHold gives a permit back that was not released after d, and counts it. The slot is free when
// the next ask needs it. 0, the default, waits for the release for ever.
func MaxHold(d time.Duration) Option {
	return func(o *options) error { o.maxHold = d; return atLeast("MaxHold", d, 0) }
}

// LeakCheck reports each permit that MaxHold or ExpireIn gave back, with the stack of the call that
// took it. Taking that stack costs about a microsecond an ask. Reports come in goroutines of their own.
func LeakCheck(report func(Leak)) Option {
	return func(o *options) error { o.leakCheck = report; return nil }
}

// Policy sets the control laws of the keys, and how far they may go past this replica's share.
// The default is policy.Fixed, which is always at its share, whatever the ceiling.
//
// Under a policy that learns each key has a law for its requests, one for each other Unit that the limit's rates count, bounded
// by the tightest of them, and, if Limit.InFlight is set, one for its slots. A refusal is handed to one of those that
// the request has taken something of: to the one whose quota is the nearest to its end, if the feedback tells quotas, else to the
// one that last held somebody back. Everything else is told to all. A key forgets what it has learned ten minutes after the last
// feedback (a success counts from the key's latest admission), or after the instant until which a law has stopped it; that is an
// hour ahead at most.
//
// New is called for many keys at once. A law that panics at feedback panics in Done and Report; one that panics at a change of its bounds,
// or when its pace is out of date, is dropped. A policy with a method Validate() error is asked whether it makes sense.
func Policy(p policy.Policy, c Ceiling) Option {
	return func(o *options) error {
		if p == nil || c > CeilingLimit {
			return fmt.Errorf("quotient: Policy: %v with ceiling %d", p, c)
		}
		if v, ok := p.(interface{ Validate() error }); ok {
			if err := v.Validate(); err != nil {
				return fmt.Errorf("quotient: Policy: %w", err)
			}
		}
		o.policy, o.ceiling, o.learns = p, c, p.New(0) != nil
		return nil
	}
}

// Logger receives what an operator should see: changes of limits and pool, refused hints. The
// default discards it.
//
// A hint that failed or was refused is a line at once when it is the first one of its kind for a while. Those
// that follow are one line a minute of either kind, with the number of failures since the last such line. One
// line says when the hints are back, how many have failed, and for how long; of a source that fails again and
// again between usable hints, when there was no failure for a minute.
func Logger(l *slog.Logger) Option {
	return func(o *options) error {
		if l == nil {
			return errors.New("quotient: Logger: nil")
		}
		o.log = l
		return nil
	}
}

// Name names the limiter in its log: each line has the attribute limiter. A name is 1 to 64 of a-z, 0-9, '.',
// '_' and '-'. The limiters that Registry.Limiter makes have the name that they are registered under, unless
// another one is given here.
func Name(name string) Option {
	return func(o *options) error {
		if !isName(name) {
			return fmt.Errorf("quotient: Name: %q is not %s", clip(name), namesAre)
		}
		o.name = name
		return nil
	}
}

// sign has each line of the log say whose it is.
func (o *options) sign() {
	if o.name != "" {
		o.log = o.log.With("limiter", o.name)
	}
}

// OnWait is called by Acquire (the last such option counts) just before it blocks, with the time until the caller's turn as
// far as it is known, 0 where it is not. It runs on the caller's goroutine, without a lock.
func OnWait(f func(key string, wait time.Duration)) Option {
	return func(o *options) error { o.onWait = f; return nil }
}

// OnAdmit is called when an ask was admitted, with the time since the call, and with the
// overhead in it: the time from the later of the call and the instant at which its tokens and
// slots were free, up to the return. It runs on the caller's goroutine, without a lock. Several hooks are called in turn; nil is none.
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

// StartPool sets the configured pool: what counts until SetPool or Follow says otherwise, and
// again when hints have become older than HintMaxAge. The default is one replica; a policy under CeilingLimit is not
// told of that default, but that the share is unknown.
func StartPool(p Pool) Option {
	return func(o *options) error { o.pool, o.sized, o.joins = p, true, false; return p.Validate() }
}

// JoinPool is StartPool for a replica that joins a pool which is at work already: its buckets start
// empty and fill at its share, so that joining brings no burst.
func JoinPool(p Pool) Option {
	return func(o *options) error { o.pool, o.sized, o.joins = p, true, true; return p.Validate() }
}

// AwaitPool admits nothing until SetPool or Follow says how large the pool is: a replica that starts takes nothing from the others before
// it knows its part. Callers wait as they do for a slot, or are refused with ReasonPool. The buckets then start empty,
// as with JoinPool, and aligned windows open with the next one. When nothing usable was said for HintMaxAge after the first Follow
// began, the configured pool counts as soon as a Follow runs, so New wants a HintMaxAge, and a StartPool or JoinPool; without a Follow or
// a SetPool nothing is ever admitted.
func AwaitPool() Option {
	return func(o *options) error { o.awaits = true; return nil }
}

// HoldDown is how long a followed pool must have been smaller before it counts as smaller; 30 s by
// default, 0 for at once. A larger one always counts at once.
func HoldDown(d time.Duration) Option {
	return func(o *options) error { o.holdDown = d; return atLeast("HoldDown", d, 0) }
}

// HintMaxAge returns to the configured pool when a followed source has not said anything
// usable for so long. 0, the default, keeps the last good one for ever, and so does a Limiter without a configured pool: one replica,
// which is what counts before the first hint, would be the whole limit. A source that only speaks
// when something changes must not be given one; Static and Env, which speak once, do not grow old.
func HintMaxAge(d time.Duration) Option {
	return func(o *options) error { o.stale = d; return atLeast("HintMaxAge", d, 0) }
}

// AtLeastOne gives every replica one slot when Limit.InFlight is smaller than the pool, so that
// nobody is shut out and as many as there are replicas may be in flight. The default is strict: the
// limit holds, and replicas without a slot refuse with ReasonShare.
func AtLeastOne() Option {
	return func(o *options) error { o.atLeastOne = true; return nil }
}
