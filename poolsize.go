package quotient

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"

	"github.com/quotient-go/quotient/internal/damper"
)

// Pool is what a replica knows about the pool that shares its limits.
type Pool struct {
	Replicas int // that live, or the sum of their weights: 1 to 1,000,000
	Ordinal  int // from 1 to Replicas; 0 when it is not known. One of weight w has w in a row, and this is the first
	// Fixed reports whether no two replicas can hold the same ordinal, since it comes from a StatefulSet or the like.
	// The remainder of a division of slots goes to the lowest ordinals that are fixed, or that Follow has seen
	// unchanged for a HoldDown.
	Fixed  bool
	Weight int // as how many replicas this one counts; 0 means 1. Keep weights small: 2 and 1, not 1000 and 500
}

const maxReplicas = damper.MaxReplicas

// validate reports the first field that is out of range, or nil.
func (p Pool) validate() error {
	if p.Replicas < 1 || p.Replicas > maxReplicas {
		return fmt.Errorf("quotient: Pool.Replicas: %d is not between 1 and %d", p.Replicas, maxReplicas)
	}
	if p.Weight < 0 || p.Weight > p.Replicas {
		return fmt.Errorf("quotient: Pool.Weight: %d is not between 0 and the %d replicas",
			p.Weight, p.Replicas)
	}
	if p.Ordinal < 0 || p.Ordinal > p.Replicas {
		return fmt.Errorf("quotient: Pool.Ordinal: %d is not between 0 and the %d replicas",
			p.Ordinal, p.Replicas)
	}
	if !p.holds(p.Ordinal) {
		return fmt.Errorf("quotient: Pool.Ordinal: %d is too high for weight %d of %d replicas",
			p.Ordinal, p.Weight, p.Replicas)
	}
	return nil
}

// holds reports whether a replica of that weight may begin at an ordinal.
func (p Pool) holds(ordinal int) bool { return ordinal <= p.Replicas-p.weight()+1 }

// weight is as how many replicas this one counts.
func (p Pool) weight() int { return max(1, p.Weight) }

// changed are a log's attributes of a pool that takes the place of another. "was" and "…_was" are what was there
// before, where that was known and is another; an ordinal and a weight stand there if there are or were any.
func (p Pool) changed(old Pool, known bool) []slog.Attr {
	attrs := []slog.Attr{slog.Int("replicas", p.Replicas)}
	if known && p != old {
		attrs = append(attrs, slog.Int("was", old.Replicas))
	}
	for _, f := range []struct {
		name     string
		now, was int
	}{{"ordinal", p.Ordinal, old.Ordinal}, {"weight", p.Weight, old.Weight}} {
		if f.now != 0 || known && f.was != 0 {
			attrs = append(attrs, slog.Int(f.name, f.now))
		}
		if known && f.now != f.was {
			attrs = append(attrs, slog.Int(f.name+"_was", f.was))
		}
	}
	if p.Ordinal != 0 || p.Fixed {
		attrs = append(attrs, slog.Bool("fixed", p.Fixed))
	}
	return attrs
}

// parts is how many shares of this replica's size there are.
func (p Pool) parts() float64 { return float64(p.Replicas) / float64(p.weight()) }

// Source reports the pool as it is seen from outside. Watch reports each pool that it sees, and each failure to see
// one, from one goroutine at a time, until the context is done. It returns the context's error, and leaves no
// goroutine behind. A Source whose settings can be wrong should have a method Validate() error, whose error Watch
// returns at once.
type Source interface {
	Watch(ctx context.Context, report func(Pool, error)) error
}

// Env is the source that reads the environment once: QUOTIENT_REPLICAS, and, if set, QUOTIENT_WEIGHT and
// QUOTIENT_ORDINAL, a pod index, which counts from 0 and is fixed.
func Env() Source { return static{envPool} }

// The variables that Env reads.
const (
	envReplicas = "QUOTIENT_REPLICAS"
	envOrdinal  = "QUOTIENT_ORDINAL"
	envWeight   = "QUOTIENT_WEIGHT"
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
	if v, ok := os.LookupEnv(envWeight); ok {
		if p.Weight, err = strconv.Atoi(v); err != nil || p.Weight < 1 {
			return Pool{}, fmt.Errorf("quotient: %s: %q is no number from 1", envWeight, v)
		}
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

// FixedOrdinal is src, which counts the replicas, with the ordinal of this replica, 1 or more, that no other may ever
// have: a StatefulSet's pod index plus one. If src reports a weight w, the replica has w ordinals, and this is the
// first. Pools too small for it are reported without one.
func FixedOrdinal(ordinal int, src Source) Source { return numbered{ordinal, src} }

type numbered struct {
	ordinal int
	src     Source
}

// Validate reports an ordinal that is out of range, or what the source says of its own settings.
func (s numbered) Validate() error {
	if s.ordinal < 1 || s.src == nil {
		return fmt.Errorf("quotient: FixedOrdinal: ordinal %d of source %T: want 1 or more, and a source",
			s.ordinal, s.src)
	}
	if v, ok := s.src.(interface{ Validate() error }); ok {
		return v.Validate()
	}
	return nil
}

// Watch reports what the source says, with the ordinal.
func (s numbered) Watch(ctx context.Context, report func(Pool, error)) error {
	if err := s.Validate(); err != nil {
		return err
	}
	return s.src.Watch(ctx, func(p Pool, err error) {
		if p.Ordinal, p.Fixed = 0, false; p.holds(s.ordinal) {
			p.Ordinal, p.Fixed = s.ordinal, true
		}
		report(p, err)
	})
}
