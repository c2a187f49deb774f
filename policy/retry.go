package policy

import "time"

const (
	// The first announced pause is waited out up to believedFirst seconds: courtesy, before anything is
	// known. Each probe that is refused before the announced end, and names the same end, doubles what is
	// believed, up to believedMost.
	believedFirst, believedMost = 60.0, 1800.0
	// testAfter is the least time between probes, in seconds, while pauses are announced that nothing has
	// confirmed or refuted. A pause that is announced for no longer than that needs no test.
	testAfter = 10.0
	// rounding is how far apart two announcements of the same end may be, and how early an honest one may
	// end. Each is rounded up to whole seconds, and read up to a second late.
	rounding = 2 * time.Second
	// longestPause bounds an announcement, so that instants do not wrap around.
	longestPause = 365 * 24 * time.Hour
)

// retry is what the controller makes of Retry-After. An announced pause is a prediction: nothing is served
// before its end. A request that is served all the same, although it was sent after the refusal, refutes it.
// A refused probe that was sent before the end, and is given the same end, confirms it.
type retry struct {
	believed float64       // so many seconds of a pause are waited out at once
	at, end  time.Duration // of the pause that was announced last; equal when it was judged
	obeyed   bool          // a first pause has been waited out
}

// judged reports whether no announced pause waits for the success that refutes it.
func (r *retry) judged() bool { return r.end <= r.at }

// announced notes a pause that a refusal announces.
func (r *retry) announced(s *Sample) {
	if s.RetryAfter > 0 {
		r.at, r.end = s.Now, s.Now+min(s.RetryAfter, longestPause)
	}
}

// confirmed notes that a probe was refused. Called before its own announcement is noted.
func (r *retry) confirmed(s *Sample) {
	moved := s.Now + min(s.RetryAfter, longestPause) - r.end
	if s.RetryAfter > 0 && s.Sent < r.end-rounding && max(moved, -moved) <= rounding {
		r.believed = min(2*r.believed, believedMost)
	}
}

// served compares a success with the pause that stands. A pause that was waited out proves nothing: what is
// believed falls back, so that the next one is tested again.
func (r *retry) served(s *Sample, dark bool) {
	if s.Sent < r.at || r.judged() {
		return
	}
	switch {
	case s.Now < r.end-rounding:
		r.believed = max(r.believed/2, probeFirst)
	case dark && r.believed > believedFirst:
		r.believed = max(r.believed/2, believedFirst)
	}
	r.end, r.obeyed = r.at, r.obeyed || dark
}

// wait is how many seconds of an announced pause are waited out. All but the first are tested in the middle,
// until confirmed.
func (r *retry) wait(announced float64) float64 {
	wait := min(announced, r.believed)
	if r.obeyed && announced > testAfter && r.believed <= believedFirst {
		wait = max(wait/2, min(testAfter, r.believed))
	}
	return wait
}

// meant reports whether the time until the announced end counts as time in which nothing is served.
// It does when it is short, when a test has confirmed the last one, or when the fields name the same end.
func (r *retry) meant(s *Sample) bool {
	off := s.Quota.Reset - s.RetryAfter
	agrees := s.Quota.Known() && max(off, -off) <= rounding
	return agrees || r.believed > believedFirst || (r.end-r.at).Seconds() <= testAfter
}
