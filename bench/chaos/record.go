package main

import (
	"math"
	"time"
)

// never is later than everything.
const never = time.Duration(math.MaxInt64)

// A span is a time from one instant to another.
type span struct{ From, To time.Duration }

func (s span) holds(t time.Duration) bool { return s.From <= t && t < s.To }

// overlap is how long both spans last together.
func (s span) overlap(o span) time.Duration { return max(0, min(s.To, o.To)-max(s.From, o.From)) }

// A life is all that is known of one process. Instants are since the start of the run.
type life struct {
	ID      int
	Born    time.Duration // it began to follow its sources; 0: it never came so far
	Died    time.Duration // it was killed, or told to end
	Stops   []span        // SIGSTOP to SIGCONT
	Stalls  []span        // times in which it did not get to run, the stops among them
	Beliefs [sources][]believed
	End     *ending // nil when it was killed
}

// A believed is a pool size that a replica holds from an instant on. When that was is not known exactly; the earliest
// is taken for a smaller size and the latest for a larger one, so that the share is never thought too small.
type believed struct {
	From     time.Duration
	Replicas int
}

// believes takes note of a change between two instants. The first belief comes at the earliest: from then on there is a share.
func (l *life) believes(s source, n int, from, at time.Duration) {
	old := l.Beliefs[s]
	when := from
	if len(old) > 0 && n > old[len(old)-1].Replicas {
		when = at
	}
	l.Beliefs[s] = append(old, believed{when, n})
}

// belief is the pool size that a replica holds at an instant; 0: it has no share, or does not live.
func (l *life) belief(s source, t time.Duration) int {
	if t >= l.Died {
		return 0
	}
	n := 0
	for _, b := range l.Beliefs[s] {
		if b.From > t {
			break
		}
		n = b.Replicas
	}
	return n
}

// runs tells whether it is not stopped.
func (l *life) runs(t time.Duration) bool {
	for _, s := range l.Stops {
		if s.holds(t) {
			return false
		}
	}
	return true
}

// A turn is what a source would say from an instant on, if it were asked and well.
type turn struct {
	At       time.Duration
	Replicas int
}

// An event is something that may move a source's opinion: a change of the pool, or the end of a fault.
type event struct {
	At    time.Duration
	Kind  string
	On    [sources]bool
	Slept time.Duration // how long somebody was stopped who goes on
	Mend  bool          // the end of a fault: nothing has changed but that the source can be asked
}

// A record is one run.
type record struct {
	config
	Redis  string // what stood in for it
	Length time.Duration
	Logs   [sources][]entry
	Lives  []life
	Truth  [sources][]turn // in order
	Faults [sources][]span // in which the source could not be asked
	Events []event         // in order
}
