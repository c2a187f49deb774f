package main

import (
	"bytes"
	"context"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
)

func TestLiveSourcesHold(t *testing.T) {
	for _, l := range lives {
		for _, join := range []bool{true, false} {
			for seed := range uint64(50) {
				m := measureLive(playLive(l, join, seed), join)
				if m.over > m.bound3() || m.right > l.mayTake(join) || m.right == 0 {
					t.Fatalf("%s, join %v, seed %d: %+v, bound 3 is %v", l.name, join, seed, m, m.bound3())
				}
			}
		}
	}
}

// TestResultsShowLiveSources: results.md has what the command prints now.
func TestResultsShowLiveSources(t *testing.T) {
	var b bytes.Buffer
	liveTable(&b, []uint64{101, 102, 103, 104})
	if !strings.Contains(file(t, "results.md"), b.String()) {
		t.Errorf("results.md does not have\n%s", b.String())
	}
}

// TestLibraryFollowsAsSimulated plays one join and one leave of each source with the library: twenty
// limiters, each of which follows a source that asks the same platform at the same times. Pools must change
// as they do in the simulation, and what is let through must be the sum of the shares, but for the bursts.
func TestLibraryFollowsAsSimulated(t *testing.T) {
	for _, l := range lives {
		for _, join := range []bool{true, false} {
			if underRace && (l.name != "redis" || !join) {
				continue // the other cases take the same path, at a fifth of the speed
			}
			t.Run(l.name+map[bool]string{true: " join", false: " leave"}[join], func(t *testing.T) {
				const seed = 101
				want := measureLive(playLive(l, join, seed), join)
				synctest.Test(t, func(t *testing.T) { followLive(t, l, join, seed, want) })
			})
		}
	}
}

// liveRun is a platform that many ask at a time, and what its replicas let through since the change.
type liveRun struct {
	begin time.Time
	mu    sync.Mutex
	p     *platform
	join  bool
	sent  int
}

// A liveAsker is the source of one replica.
type liveAsker struct {
	run *liveRun
	r   *liveReplica
}

// Watch asks when the simulation does.
func (a liveAsker) Watch(ctx context.Context, report func(quotient.Pool, error)) error {
	for next := a.r.start; ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(next - time.Since(a.run.begin)):
		}
		n, usable, gap := a.run.look(a.r, next)
		if next += gap; usable {
			report(quotient.Pool{Replicas: n}, nil)
		}
	}
}

func (run *liveRun) look(r *liveReplica, now time.Duration) (int, bool, time.Duration) {
	run.mu.Lock()
	defer run.mu.Unlock()
	before, after := counts(run.join)
	if run.p.count = before; now >= liveChange {
		run.p.count = after
	}
	return run.p.look(r, now)
}

// replica runs one limiter that is asked for more than its share, until the replica's end.
func (run *liveRun) replica(t *testing.T, r *liveReplica) *quotient.Limiter {
	rate := quotient.PerSecond(liveLimit)
	rate.Burst = liveLarge
	limiter, err := quotient.New(quotient.Rates(rate),
		quotient.Replicas(1000), quotient.AwaitPool(), quotient.HintMaxAge(time.Hour),
		quotient.HoldDown(liveHold),
		quotient.MaxKeys(1)) // one shard, since Stats is read each millisecond
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), r.end)
	t.Cleanup(stop)
	go func() { _ = limiter.Follow(ctx, liveAsker{run, r}) }()
	go func() {
		for {
			if _, err := limiter.Acquire(ctx, "key"); err != nil {
				return
			}
			run.mu.Lock()
			if time.Since(run.begin) >= liveChange {
				run.sent++
			}
			run.mu.Unlock()
		}
	}()
	return limiter
}

// followLive compares the library with what the simulation says.
func followLive(t *testing.T, l live, join bool, seed uint64, want liveResult) {
	run := &liveRun{begin: time.Now(), join: join, p: &platform{live: l, members: map[int]*member{}}}
	fleet, limiters := liveFleet(l, join, seed), []*quotient.Limiter{}
	for _, r := range fleet {
		limiters = append(limiters, run.replica(t, r))
	}
	_, after := counts(join)
	right := time.Duration(0)
	for now := time.Duration(0); now < liveEnd-time.Second; now += time.Millisecond {
		time.Sleep(time.Until(run.begin.Add(now)))
		for i, r := range fleet {
			if now > liveChange && now < r.end && limiters[i].Stats().Pool.Replicas != after {
				right = now - liveChange
			}
		}
	}
	time.Sleep(time.Until(run.begin.Add(liveEnd)))
	if (right - want.right).Abs() > 2*time.Millisecond {
		t.Errorf("all were right after %v, simulated %v", right, want.right)
	}
	run.mu.Lock()
	defer run.mu.Unlock()
	sent, shares := float64(run.sent), liveLimit*(liveEnd-liveChange).Seconds()+want.over-want.unused
	if t.Logf("right after %v, %.0f let through; the shares are %.0f", right, sent,
		shares); math.Abs(sent-shares) > 2*liveLarge {
		t.Errorf("%.0f let through, the shares are %.0f", sent, shares)
	}
}
