package redis

import (
	"context"
	_ "embed" // of the script
	"fmt"
	"time"

	"github.com/quotient-go/quotient/poolsize/internal/setting"
	"github.com/redis/go-redis/v9"
)

const (
	// longestExpiry is the longest Expiry. If the store's clock goes back, the dead count for at most so much longer.
	longestExpiry = setting.LongestExpiry
	// mostProcessors bounds the sets of one fleet.
	mostProcessors = 100_000
	// silence is how long the sets of a fleet without a sync are kept: longer than any expiry.
	silence = longestExpiry + time.Minute
	// longestOutage is how long after an expiry no processor may have reached the store for it to take that for its
	// own fault. Sentinel takes half a minute by default to notice that a master is gone, a Cluster half of that.
	longestOutage = time.Minute
	// leaving is reported as a size by a processor that leaves.
	leaving = 0
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
	silence   string // the last sync of any processor, and of the last outage: its begin, and until when that counts
	left      string // the part of the ceiling that the processor leaves behind
	weights   string // sorted set: processors that count as more than one, each with its weight
	weight    int    // of this processor
	expiry    time.Duration
	keep      time.Duration // of left
	patience  time.Duration // of one command
	failed    bool          // the last sync has
	now       int64         // of the store's clock when it answered last, in ms
	at        time.Time     // when that was
}

// answer is the answer of the store to one sync.
type answer struct {
	known   bool // the processor had not been forgotten, and its time had not passed
	agreed  bool // all of the living report their number
	largest int  // size reported
	living  int  // each by its weight
	rank    int  // of the processor, from 0, if they agree: how many live before it, each by its weight
}

// sync records that the processor lives, which size it reports and what it leaves behind ("" for nothing),
// and returns what holds for the fleet then. After a sync that has failed it first finds out where a
// Cluster's keys are by now. It is not for use from several goroutines.
func (s *store) sync(ctx context.Context, size int, leaves string) (answer, error) {
	if s.failed {
		s.remap(ctx)
	}
	a, err := s.record(ctx, size, leaves)
	s.failed = err != nil
	return a, err
}

// remap has a Cluster's client ask one of the nodes which of them serves what. Left to itself it goes on asking a
// master that has died until its map is a minute old. ReloadState would do the same in the background. But it would
// wait for a host that has vanished for as long as the client dials, 25 s by default, and for nothing else meanwhile.
// This ends with a command's time, and the next time it chooses another node by chance.
func (s *store) remap(ctx context.Context) {
	c, ok := s.client.(interface {
		ForEachMaster(ctx context.Context, f func(context.Context, *redis.Client) error) error
	})
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	//nolint:errcheck // the sync will say so; this reloads first
	c.ForEachMaster(ctx, func(context.Context, *redis.Client) error { return nil })
}

// record is sync where the client knows who serves the keys.
func (s *store) record(ctx context.Context, size int, leaves string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	v, err := s.run(ctx, size, leaves)
	if err == nil && len(v) == 1 { // it did not know the store's time, and does now
		v, err = s.run(ctx, size, leaves)
	}
	if err != nil {
		return answer{}, fmt.Errorf("poolsize/redis: sync %s: %w", s.deadlines, err)
	}
	if len(v) != 6 {
		return answer{}, fmt.Errorf("poolsize/redis: sync %s: %d numbers, want 6", s.deadlines, len(v))
	}
	return answer{v[0] == 1, v[1] == 1, int(v[2]), int(v[3]), int(v[4])}, nil
}

// run runs the script once, and takes in the store's time.
func (s *store) run(ctx context.Context, size int, leaves string) ([]int64, error) {
	var sent int64 // by the store's clock; 0: not known yet
	if !s.at.IsZero() {
		sent = s.now + time.Since(s.at).Milliseconds()
	}
	keys := []string{s.deadlines, s.sizes, s.silence, s.left, s.weights}
	v, err := syncScript.Run(ctx, s.client, keys, s.processor, size, s.expiry.Milliseconds(),
		longestExpiry.Milliseconds(), mostProcessors, silence.Milliseconds(), leaves, s.keep.Milliseconds(),
		longestOutage.Milliseconds(), sent, s.patience.Milliseconds(), s.weight).Int64Slice()
	if len(v) > 0 {
		s.now, s.at = v[len(v)-1], time.Now()
	}
	return v, err
}

// leave takes the processor out of the fleet, although the context may be done. If that fails, the processor expires.
func (s *store) leave(ctx context.Context, leaves string) {
	s.record(context.WithoutCancel(ctx), leaving, leaves) //nolint:errcheck // see above
}
