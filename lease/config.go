package lease

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Defaults of a Config.
const (
	DefaultKeepIdle = 5 * time.Minute
	DefaultMaxPeers = 100_000
)

// Bounds of a Config. Sums of counts stay below MaxCount * maxPeers, so that none of them overflows.
const (
	MaxCount      = 1 << 40 // of a lock, and the largest Semaphore.Max
	maxPeers      = 1 << 20
	maxLevel      = 1 << 31
	maxSemaphores = 10_000
	maxName       = 1024       // bytes
	maxDuration   = 100 * year // of a peer's life, a grace time
	year          = 8766 * time.Hour
	maxLocks      = 128    // of one peer: it has to search them
	maxListed     = 10_000 // locks that Locks returns, each of those held and pending
)

// Semaphore is the maximum and the level of one semaphore.
type Semaphore struct {
	Max   int64 // 1 to MaxCount
	Level int64 // 0 to 2^31: a peer that holds a lock may acquire only semaphores of lower levels
}

// Config is the configuration of a Table. The zero value has no semaphore.
type Config struct {
	Semaphores map[string]Semaphore // by name, at most 10,000; a name has 1 to 1,024 bytes
	// KeepIdle is how long an expired peer without locks is kept, at most 100 years. 0 means DefaultKeepIdle.
	KeepIdle time.Duration
	// Grace is the time after the start in which locks are only restored: a new lock waits until its end.
	// It is at most 100 years; 0, the default, means none.
	Grace time.Duration
	// MaxPeers bounds the peers, at most 2^20. 0 means DefaultMaxPeers.
	MaxPeers int
}

// Validate returns an error that names the first field which makes no sense, and its value; nil if all do.
func (c Config) Validate() error {
	switch {
	case c.KeepIdle < 0 || c.KeepIdle > maxDuration:
		return fmt.Errorf("lease: Config.KeepIdle is %v, want 0 to 100 years", c.KeepIdle)
	case c.Grace < 0 || c.Grace > maxDuration:
		return fmt.Errorf("lease: Config.Grace is %v, want 0 to 100 years", c.Grace)
	case c.MaxPeers < 0 || c.MaxPeers > maxPeers:
		return fmt.Errorf("lease: Config.MaxPeers is %d, want 0 to %d", c.MaxPeers, maxPeers)
	case len(c.Semaphores) > maxSemaphores:
		n := len(c.Semaphores)
		return fmt.Errorf("lease: Config.Semaphores has %d names, want at most %d", n, maxSemaphores)
	}
	for _, name := range c.names() {
		switch s := c.Semaphores[name]; {
		case name == "" || len(name) > maxName:
			return fmt.Errorf("lease: Config.Semaphores: name %.40q of %d bytes, want 1 to %d",
				name, len(name), maxName)
		case s.Max < 1 || s.Max > MaxCount:
			return fmt.Errorf("lease: Config.Semaphores[%q].Max is %d, want 1 to %d", name, s.Max, int64(MaxCount))
		case s.Level < 0 || s.Level > maxLevel:
			return fmt.Errorf("lease: Config.Semaphores[%q].Level is %d, want 0 to %d",
				name, s.Level, int64(maxLevel))
		}
	}
	return nil
}

// names returns the names of the semaphores in order, so that equal steps have equal outcomes.
func (c Config) names() []string { return slices.Sorted(maps.Keys(c.Semaphores)) }

// withDefaults returns c with its defaults filled in, and semaphores of its own.
func (c Config) withDefaults() Config {
	c.Semaphores = maps.Clone(c.Semaphores)
	c.KeepIdle, c.MaxPeers = cmp.Or(c.KeepIdle, DefaultKeepIdle), cmp.Or(c.MaxPeers, DefaultMaxPeers)
	return c
}
