package quotient

import (
	"errors"
	"hash/maphash"
	"maps"
	"math/bits"
	"runtime"
	"slices"
	"time"

	"golang.org/x/time/rate"
)

const (
	keysPerShard = 1024
	maxShards    = 256
)

// New returns a limiter for limit, or an error that names the first field that is out of range. Limit{} is
// valid: it admits every call, but for those under Plans, an Override or a policy that learns.
// It starts no goroutine and needs no closing.
func New(limit Limit, opts ...Option) (*Limiter, error) {
	l, err := build(limit, opts)
	if err == nil {
		l.warn(limit)
	}
	return l, err
}

// Must returns l, and panics if err is not nil: Must(New(...)), or Must(registry.Limiter(...)). It is for
// limits that are constants of the program, where an error is a bug.
func Must(l *Limiter, err error) *Limiter {
	if err != nil {
		panic(err)
	}
	return l
}

// warn logs each rate of the first limits that never decides, and each that has no slot here.
func (l *Limiter) warn(limit Limit) {
	l.warnOfSlots()
	limit.warn(l.log)
	_, _, plans := l.limits(&l.shards[0])
	for _, p := range plans {
		p.Limit.warn(l.log.With("plan", p.Name))
	}
}

// build is New without a line in the log.
func build(limit Limit, opts []Option) (*Limiter, error) {
	o := defaults()
	for _, opt := range opts {
		if err := opt(&o); err != nil {
			return nil, err
		}
	}
	if o.name != "" {
		o.log = o.log.With("limiter", o.name)
	}
	if o.awaits && o.hintMaxAge == 0 {
		return nil, errors.New("quotient: AwaitPool: it requires a HintMaxAge above 0. " +
			"The pool of Replicas or StartPool counts after that time without a hint. " +
			"Without such a pool, nothing is admitted then")
	}
	l := &Limiter{
		options: o, base: time.Now(), seed: maphash.MakeSeed(), dryLog: rate.Sometimes{Interval: time.Second},
		planLog: rate.Sometimes{Interval: time.Second}, leakLog: rate.Sometimes{Interval: time.Second},
		shards: makeShards(shardCount(o.maxKeys)), belief: belief{o.pool, o.sized, o.awaits},
	}
	units, err := l.learnUnits(limit, -1)
	if err != nil {
		return nil, err
	}
	l.units = units
	l.mask = uint64(len(l.shards) - 1)
	st := l.resolve(limit.clone(), l.belief, units, 0)
	st.at, st.reshaped = l.wallNow(), true
	l.clock.Store(l.clockFor(st))
	l.standing = standing{belief: l.belief, source: "configured"}
	for i := range l.shards {
		l.shards[i].start(l, st)
	}
	if err := l.setPlans(o.plans); err != nil {
		return nil, err
	}
	return l, nil
}

// setPlans sets the plans that a limiter has from the start.
func (l *Limiter) setPlans(plans map[string]Limit) error {
	for _, name := range slices.Sorted(maps.Keys(plans)) {
		limit := plans[name]
		if _, err := l.setPlan(name, &limit, false); err != nil {
			return err
		}
	}
	l.version = 0
	return nil
}

func (s *shard) start(l *Limiter, st *setting) {
	s.l, s.latest, s.setting, s.untouched, s.plans = l, st.at, st, new(gate), new(plans)
	s.untouched.begin(st)
	s.store, s.left = newStore(l.maxKeys), shortPause
	s.waiting = make(map[*gate]struct{})
	if l.spokenKeys > 0 {
		s.wanted = new(mentions)
	}
}

// makeShards returns so many. Several begin where a cache line does: Go puts eight bytes in front of what has
// pointers and is of middle size, so they are made large.
func makeShards(n int) []shard {
	if n == 1 {
		return make([]shard, 1)
	}
	return make([]shard, n, max(n, 64))
}

// shardCount returns a power of two. It is large enough that the cores do not wait for each other, nor for a
// map that is rebuilt under its lock. It is small enough that each shard has keys to choose from.
func shardCount(maxKeys int) int {
	n := min(maxKeys/keysPerShard, maxShards, 64*runtime.GOMAXPROCS(0))
	if n <= 1 {
		return 1
	}
	return 1 << (bits.Len(uint(n)) - 1)
}
