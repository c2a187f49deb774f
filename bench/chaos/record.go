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

func (s span) length() time.Duration { return s.To - s.From }

// overlap is how long both spans last together.
func (s span) overlap(o span) time.Duration { return max(0, min(s.To, o.To)-max(s.From, o.From)) }

// A life is all that is known of one process. Instants are since the start of the run.
type life struct {
	ID      int
	Born    time.Duration // it began to follow its sources; 0: it never came so far
	Died    time.Duration // it was killed, or ordered to end
	Stops   []span        // SIGSTOP to SIGCONT
	Stalls  []span        // times in which it did not get to run, the stops among them
	Beliefs [sources][]believed
	Places  [sources][]placed
	Parts   [sources][]parted
	Listed  []turn          // members, of one that gossips
	Mutes   [sources][]span // in which the source said nothing; the last one may not have ended
	Steps   []clockStep     // of its wall clock
	Counts  *counts         // when it was queried at the end; nil: it was not
	End     *ending         // nil when it was killed
}

// A believed is a pool size that a replica holds from an instant on. The exact time is not known. The
// earliest is taken for a smaller size and the latest for a larger one, so that the share is never thought
// too small.
type believed struct {
	From     time.Duration
	Replicas int
}

// A placed is an ordinal that counts since an instant in a span; 0 means no ordinal.
type placed struct {
	span
	Ordinal int
}

// A parted is a part of the limit that a replica has from an instant on; 0 is its share.
type parted struct {
	From time.Duration
	Part float64
}

// part is what a replica may use of the limit at an instant.
func (l *life) part(s source, t time.Duration) float64 {
	n := l.belief(s, t)
	if n == 0 {
		return 0
	}
	most := 0.
	for _, p := range l.Parts[s] {
		if p.From > t {
			break
		}
		most = p.Part
	}
	return max(most, 1/float64(n))
}

// A clockStep is a step of the wall clock at an instant in a span. It is Ahead since then.
type clockStep struct {
	span
	Ahead time.Duration
}

// muted takes note of a source that falls silent, or speaks again.
func (l *life) muted(s source, silent bool, at time.Duration) {
	mutes := l.Mutes[s]
	if n := len(mutes); silent && (n == 0 || mutes[n-1].To < never) {
		l.Mutes[s] = append(mutes, span{at, never})
	} else if !silent && n > 0 && mutes[n-1].To == never {
		mutes[n-1].To = at
	}
}

// ordinal is the one that counts at an instant; 0: none.
func (l *life) ordinal(s source, t time.Duration) int {
	n := 0
	for _, p := range l.Places[s] {
		if p.From > t {
			break
		}
		n = p.Ordinal
	}
	return n
}

// ahead is by how much the wall clock is, at an instant.
func (l *life) ahead(t time.Duration) (by time.Duration) {
	for _, s := range l.Steps {
		if s.From > t {
			break
		}
		by = s.Ahead
	}
	return by
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

// runs reports whether it is not stopped.
func (l *life) runs(t time.Duration) bool {
	for _, s := range l.Stops {
		if s.holds(t) {
			return false
		}
	}
	return true
}

// A turn is what a source would report from an instant on, if it were queried and well.
type turn struct {
	At       time.Duration
	Replicas int
}

// An event is something that may move a source's opinion: a change of the pool, or the end of a fault.
type event struct {
	At    time.Duration
	Kind  string
	On    [sources]bool
	Slept time.Duration // how long a process was stopped that goes on
	Mend  bool          // the end of a fault: nothing has changed but that the source can be queried
}

// has reports whether there was a path.
func (r record) has(s source) bool { return r.config.has(s) && r.Absent[s] == "" }

// A record is one run.
type record struct {
	config
	Redis  string          // what stood in for it
	Absent [sources]string // why there is no such path; "": there is
	Skip   [lanes]string   // why there are no such faults; "": there are
	Epoch  int64           // the start of the run, in nanoseconds since 1970
	Length time.Duration
	Logs   [sources][]entry
	Lives  []life
	Truth  [sources][]turn // in order
	Faults [sources][]span // in which the source could not be queried, or reported nothing; by their ends
	Events []event         // in order
	Onsets []onset         // in order
	Calms  []stretch       // in order
	Mesh   meshCount
	Struck [strokes]int // how often it did
}
