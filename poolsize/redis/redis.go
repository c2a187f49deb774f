package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/rest"
	"github.com/quotient-go/quotient/poolsize/internal/setting"
	"github.com/redis/go-redis/v9"
)

// Source counts the replicas of a fleet in Redis, and is one of them. The package's page calls them processors.
// Client and Fleet must be set; the other fields may be zero. It may be used from many goroutines, and watched
// several times, also at once: that is still one processor. Do not copy it, or change its fields, once it is in use.
type Source struct {
	// Client reaches one server, a Sentinel's master or a Cluster. The caller closes it. Set
	// ContextTimeoutEnabled in its options: then no command takes longer than a second, or half an Expiry
	// if that is less. Otherwise a store that hangs blocks Watch for the client's own time-outs.
	Client redis.UniversalClient
	// Fleet names the processors that share the limits, in 1 to 200 bytes without braces or colons.
	// Processors of different fleets do not count each other.
	Fleet string
	// Prefix begins all keys, in at most 200 bytes without braces; "" means quotient.
	Prefix string
	// ID names this processor in at most 200 bytes; "" means the host's name. The order of the IDs gives the
	// ordinals, and Left finds an earlier processor by its ID. Two Sources with one ID still count as two.
	ID string
	// Weight is the number of processors that this one counts as, 1 to 1,000: it gets as many shares
	// (quotient.Pool.Weight). 0 means 1.
	Weight int
	// Period is the time from one sync to the next, give or take a tenth: a millisecond or more; 0 means 1
	// s. It is halved while the fleet disagrees.
	Period time.Duration
	// Expiry is how long this processor counts after its last sync: two periods to ten minutes; 0 means 10 s.
	Expiry time.Duration
	// Ceiling, unless nil, is called at each sync, by Watch's goroutine. It returns the part of its ceiling
	// that this processor has reached, as policy.Ramp counts it: 0 to 1. The store keeps it for Left. A
	// value out of that range is not stored.
	Ceiling func() float64
	// ResumeFor is how long the store keeps the value of Ceiling: a millisecond to a day; 0 means 3 minutes.
	ResumeFor time.Duration

	once    sync.Once
	token   string       // random; makes the processor's name its own
	watches atomic.Int64 // that run
}

// Watch registers a processor and reports the pool at each sync. When the context ends, it removes the
// processor from the fleet, unless another Watch of this Source is running. It then returns the context's
// error, after at most the time of two commands. If a field is wrong, Watch returns at once an error that
// names the first such field. It reports every failed sync as an error, and tries again after 100 ms. The
// pause doubles with each further failure, up to Period.
//
// The first report comes with the second sync, 1.25 periods after the first, so that the fleet knows of the
// processor before it uses its share. A processor that finds itself alone waits longer, since the store may
// just have lost its data. It waits for 2.25 periods and the longest time of a command: a second, or half
// an Expiry if that is less. By then all others are back. It never waits longer than an Expiry less half a
// period. If the second sync fails, or the store has forgotten the first, the start begins again.
func (s *Source) Watch(ctx context.Context, report func(quotient.Pool, error)) error {
	c, err := s.complete()
	if err != nil {
		return err
	}
	st := c.store(s.processor(c.ID))
	s.watches.Add(1)
	defer func() {
		if s.watches.Add(-1) == 0 { // another one still is this processor
			st.leave(ctx, c.leaves())
		}
	}()
	m := newMember(c.Expiry, c.Weight)
	retry := min(setting.FirstRetry, c.Period)
	for {
		var pause time.Duration
		if a, err := st.sync(ctx, m.report, c.leaves()); ctx.Err() != nil {
			return ctx.Err()
		} else if err != nil {
			report(quotient.Pool{}, err)
			m.missed(time.Now())
			pause = setting.Jittered(retry)
			retry = min(2*retry, c.Period)
		} else {
			p, usable := m.learn(a, time.Now())
			if usable {
				report(p, nil)
			}
			pause = c.pause(a, usable)
			retry = min(setting.FirstRetry, c.Period)
		}
		if !rest.For(ctx, pause) {
			return ctx.Err()
		}
	}
}

// pause returns the time until the next sync of a complete source after an answer. The pause after a report
// that is not for use is longer than the others' pauses with their jitter, so it has none of its own.
func (s *Source) pause(a answer, usable bool) time.Duration {
	switch {
	case usable && a.agreed:
		return setting.Jittered(s.Period)
	case usable: // so that all agree within two periods of a change
		return setting.Jittered(s.Period / 2)
	case a.living > s.Weight: // all others have synced by then
		return s.Period + s.Period/4
	}
	// The others may just not be back yet: by then they are, also those whose command has hung. It must not
	// expire itself.
	return min(2*s.Period+s.Period/4+s.patience(), s.Expiry-s.Period/2)
}

// Left returns the last value of Ceiling before an earlier processor of this ID ended. It returns 0 if that is longer
// ago than ResumeFor. Both suit policy.Ramp's Resume. A processor that is still running counts as an earlier one too.
func (s *Source) Left(ctx context.Context) (float64, error) {
	c, err := s.complete()
	if err != nil {
		return 0, err
	}
	st := c.store("")
	ctx, cancel := context.WithTimeout(ctx, st.patience)
	defer cancel()
	text, err := st.client.Get(ctx, st.left).Result()
	if errors.Is(err, redis.Nil) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("poolsize/redis: %s: %w", st.left, err)
	}
	part, err := strconv.ParseFloat(text, 64)
	if err != nil || !(part >= 0 && part <= 1) { // also NaN
		return 0, fmt.Errorf("poolsize/redis: %s: %.40q is no number from 0 to 1", st.left, text)
	}
	return part, nil
}

// leaves returns what the store is to remember, "" for nothing.
func (s *Source) leaves() string {
	if s.Ceiling == nil {
		return ""
	}
	part := s.Ceiling()
	if !(part >= 0 && part <= 1) { // also NaN
		return ""
	}
	return strconv.FormatFloat(part, 'g', -1, 64)
}
