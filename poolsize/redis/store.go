package redis

import (
	"context"
	_ "embed" // of the script
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// longestExpiry is the longest Expiry. If the store's clock goes back, the dead count for at most so much longer.
	longestExpiry = 10 * time.Minute
	// mostProcessors bounds the sets of one fleet.
	mostProcessors = 100_000
	// silence is how long the sets of a fleet in which nobody syncs are kept: longer than any expiry.
	silence = longestExpiry + time.Minute
	// longestCommand is the longest that one command may take.
	longestCommand = time.Second
)

//go:embed sync.lua
var syncSource string

var syncScript = redis.NewScript(syncSource)

// store is the fleet's data as one processor reaches it.
type store struct {
	client    redis.UniversalClient
	processor string
	deadlines string // sorted set: processors, and until when they live by the store's clock, in ms
	sizes     string // sorted set: processors, and the sizes that they report
	left      string // the part of the ceiling that the processor leaves behind
	expiry    time.Duration
	keep      time.Duration // of left
	patience  time.Duration // of one command
}

// answer is what the store says in one sync.
type answer struct {
	known   bool // the processor had not been forgotten
	agreed  bool // all of the living report their number
	largest int  // size reported
	living  int
	rank    int // of the processor, from 0, if they agree
}

// sync records that the processor lives, which size it reports and what it leaves behind ("" for nothing), and returns
// what holds for the fleet then.
func (s *store) sync(ctx context.Context, size int, leaves string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	v, err := syncScript.Run(ctx, s.client, []string{s.deadlines, s.sizes, s.left}, s.processor, size, s.expiry.Milliseconds(),
		longestExpiry.Milliseconds(), mostProcessors, silence.Milliseconds(), leaves, s.keep.Milliseconds()).Int64Slice()
	if err != nil {
		return answer{}, fmt.Errorf("poolsize/redis: sync %s: %w", s.deadlines, err)
	}
	if len(v) != 5 {
		return answer{}, fmt.Errorf("poolsize/redis: sync %s: %d numbers, want 5", s.deadlines, len(v))
	}
	return answer{v[0] == 1, v[1] == 1, int(v[2]), int(v[3]), int(v[4])}, nil
}

// leave takes the processor out of the fleet, although the context may be done. If that fails, the
// processor expires.
func (s *store) leave(ctx context.Context, leaves string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.patience)
	defer cancel()
	s.client.Pipelined(ctx, func(p redis.Pipeliner) error { //nolint:errcheck // see above
		p.ZRem(ctx, s.deadlines, s.processor)
		p.ZRem(ctx, s.sizes, s.processor)
		if leaves != "" {
			p.Set(ctx, s.left, leaves, s.keep)
		}
		return nil
	})
}

// remembered returns what was left behind, 0 for nothing.
func (s *store) remembered(ctx context.Context) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	text, err := s.client.Get(ctx, s.left).Result()
	if errors.Is(err, redis.Nil) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("poolsize/redis: %s: %w", s.left, err)
	}
	part, err := strconv.ParseFloat(text, 64)
	if err != nil || !(part >= 0 && part <= 1) { // also NaN
		return 0, fmt.Errorf("poolsize/redis: %s: %.40q is no number from 0 to 1", s.left, text)
	}
	return part, nil
}
