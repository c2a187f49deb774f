package quotient

import (
	"context"
	"fmt"
	"os"
	"strconv"
)

// Pool is what a replica knows about the pool that shares its limits.
type Pool struct {
	// Replicas is the number of live replicas: 1 to 1,000,000.
	Replicas int
	// Ordinal numbers the replicas from 1 to Replicas; 0 when it is not known.
	Ordinal int
	// Fixed says that no two replicas can hold the same ordinal: it comes from a StatefulSet or the like.
	// Only then the remainder of a division of slots is handed out, to the lowest ordinals.
	Fixed bool
}

// maxReplicas is beyond any fleet; a larger number is a misread field.
const maxReplicas = 1_000_000

// validate reports the first field that is out of range, or nil.
func (p Pool) validate() error {
	if p.Replicas < 1 || p.Replicas > maxReplicas {
		return fmt.Errorf("quotient: Pool.Replicas: %d is not between 1 and %d", p.Replicas, maxReplicas)
	}
	if p.Ordinal < 0 || p.Ordinal > p.Replicas {
		return fmt.Errorf("quotient: Pool.Ordinal: %d is not between 0 and the %d replicas",
			p.Ordinal, p.Replicas)
	}
	return nil
}

// Source is an outside opinion on the pool. Watch reports each pool that it sees, and each failure to see
// one, until the context is done, and returns the context's error. It leaves no goroutine behind, and calls
// report from one goroutine at a time.
type Source interface {
	Watch(ctx context.Context, report func(Pool, error)) error
}

// Env is the source that reads the environment once: QUOTIENT_REPLICAS, and, if set, QUOTIENT_ORDINAL, a
// StatefulSet's pod index, which counts from 0. Such ordinals are fixed.
func Env() Source { return static{envPool} }

// The variables that Env reads.
const (
	envReplicas = "QUOTIENT_REPLICAS"
	envOrdinal  = "QUOTIENT_ORDINAL"
)

// static is a source that reports once.
type static struct{ read func() (Pool, error) }

// Watch reports once and waits for the context's end.
func (s static) Watch(ctx context.Context, report func(Pool, error)) error {
	report(s.read())
	<-ctx.Done()
	return ctx.Err()
}

func envPool() (Pool, error) {
	var p Pool
	var err error
	if p.Replicas, err = strconv.Atoi(os.Getenv(envReplicas)); err != nil {
		return Pool{}, fmt.Errorf("quotient: %s: %q is no number", envReplicas, os.Getenv(envReplicas))
	}
	if v, ok := os.LookupEnv(envOrdinal); ok {
		i, err := strconv.Atoi(v)
		if err != nil || i < 0 {
			return Pool{}, fmt.Errorf("quotient: %s: %q is no number from 0", envOrdinal, v)
		}
		p.Ordinal, p.Fixed = i+1, true
	}
	return p, p.validate()
}

// FixedOrdinal is src, which counts the replicas, for a replica whose ordinal, 1 or more, is its own for
// good: a StatefulSet's pod index and one. Pools smaller than the ordinal, as in a restart, are reported
// without one.
func FixedOrdinal(ordinal int, src Source) Source { return numbered{ordinal, src} }

type numbered struct {
	ordinal int
	src     Source
}

// Watch reports what the source says, with the ordinal.
func (s numbered) Watch(ctx context.Context, report func(Pool, error)) error {
	if s.ordinal < 1 || s.src == nil {
		return fmt.Errorf("quotient: FixedOrdinal: ordinal %d of source %v: want 1 or more, and a source",
			s.ordinal, s.src)
	}
	return s.src.Watch(ctx, func(p Pool, err error) {
		if p.Ordinal, p.Fixed = 0, false; s.ordinal <= p.Replicas {
			p.Ordinal, p.Fixed = s.ordinal, true
		}
		report(p, err)
	})
}
