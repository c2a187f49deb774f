package main

import (
	"math"
	"slices"
	"sync"
	"time"
)

// never is later than everything.
const never = time.Duration(math.MaxInt64)

// beginOf is the start of a run that began so many nanoseconds after 1970. The time since then is alike in all
// processes of a machine: they read the wall clock once, and go on with the monotonic one.
func beginOf(epoch int64) time.Time {
	now := time.Now()
	return now.Add(time.Duration(epoch - now.UnixNano()))
}

type what string

const (
	isBorn     what = "born"  // it begins to follow its sources
	isAdmitted what = "admit" // there was room at From, and the limiter returned at To; slots: held from, to
	isPool     what = "pool"  // N replicas count, since an instant between From and To
	isPlace    what = "place" // the same of an ordinal; 0: none
	isStalled  what = "stall" // the process did not get to run
	isEnd      what = "end"   // of an orderly life; Text is what went wrong
)

// A note is one line of JSON on a replica's standard output, and all that a run is judged by. Instants are since
// the start of the run.
type note struct {
	What     what
	Path     path          `json:",omitempty"`
	From, To time.Duration `json:",omitempty"`
	N        int           `json:",omitempty"`
	Text     string        `json:",omitempty"`
}

type span struct{ From, To time.Duration }

func (s span) holds(t time.Duration) bool { return s.From <= t && t < s.To }

func (s span) length() time.Duration { return s.To - s.From }

func (s span) overlap(o span) time.Duration { return max(0, min(s.To, o.To)-max(s.From, o.From)) }

func within(spans []span, t time.Duration) bool {
	return slices.ContainsFunc(spans, func(s span) bool { return s.holds(t) })
}

// A fact is a number that holds since an instant in a span.
type fact struct {
	span
	N int
}

// at is the fact that holds at an instant; 0: none yet.
func at(list []fact, t time.Duration) (n int) {
	for _, f := range list {
		if f.From > t {
			break
		}
		n = f.N
	}
	return n
}

// A life is all that is known of one process. What it says comes from a goroutine of its own.
type life struct {
	mu       sync.Mutex // guards what it says, as long as it lives
	ID       int
	Listed   time.Duration // in the file and DNS; 0: never
	Born     time.Duration // 0: it never came so far
	Died     time.Duration // it was killed, or ordered to end
	Stops    []span        // SIGSTOP to SIGCONT
	Stalls   []span        // times in which it did not get to run, the stops among them
	Admitted [paths][]span
	Pools    [paths][]fact
	Places   [paths][]fact
	Ended    bool   // in order
	Text     string // what went wrong, as it says
}

func (l *life) take(n note) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := fact{span{n.From, n.To}, n.N}
	switch n.What {
	case isBorn:
		l.Born = n.To
	case isAdmitted:
		l.Admitted[n.Path] = append(l.Admitted[n.Path], f.span)
	case isPool:
		l.believes(n.Path, f)
	case isPlace:
		l.Places[n.Path] = append(l.Places[n.Path], f)
	case isStalled:
		l.Stalls = append(l.Stalls, f.span)
	case isEnd:
		l.Ended, l.Text = true, n.Text
	}
}

// knows reports whether it has a share of all these paths.
func (l *life) knows(paths []path) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !slices.ContainsFunc(paths, func(p path) bool { return len(l.Pools[p]) == 0 })
}

// believes takes note of a pool. The exact time is not known. The latest is taken for a larger one and the
// earliest for a smaller one, so that the share is never thought too small; the first one gives a share at once.
func (l *life) believes(p path, f fact) {
	old := l.Pools[p]
	if len(old) > 0 && f.N > old[len(old)-1].N {
		f.From = f.To
	}
	l.Pools[p] = append(old, f)
}

// first is when a replica had a share at first; never: it had none.
func (l *life) first(p path) time.Duration {
	if len(l.Pools[p]) == 0 {
		return never
	}
	return l.Pools[p][0].From
}

// pool is what a replica believes in at an instant; 0: it has no share, or does not live.
func (l *life) pool(p path, t time.Duration) int {
	if t >= l.Died {
		return 0
	}
	return at(l.Pools[p], t)
}

// runs reports whether a replica has a share and is not stopped.
func (l *life) runs(p path, t time.Duration) bool { return l.pool(p, t) > 0 && !within(l.Stops, t) }

// own is the length of a span without the stops in it, which the run has ordered.
func (l *life) own(s span) time.Duration {
	d := s.length()
	for _, stop := range l.Stops {
		d -= s.overlap(stop)
	}
	return d
}

// A change is something that a source need not have reported yet.
type change struct {
	At    time.Duration
	Slept time.Duration // how long a process was stopped that goes on
}

// An onset is when a replica begins to ask. If all, it is when replicas may have to find each other.
type onset struct {
	At  time.Duration
	All bool
}

type record struct {
	config
	limits  [paths]limit
	Epoch   int64 // the start of the run, in nanoseconds since 1970
	Length  time.Duration
	Lives   []*life
	Truth   [paths][]fact   // what a source would report if it were queried and well
	Changes [paths][]change // in order
	Faults  [paths][]span   // in which the source could not be queried, or lied; by their ends
	Onsets  []onset
	Stalls  []span         // in which the run did not get to go on, and with it DNS and the file
	Calms   []fact         // times without faults, in which replica N alone is busy
	Struck  map[string]int // how often a fault did
}
