package quotient

import (
	"context"
	"log/slog"
	"time"
)

// hintPause is the least time between two lines that say the same of a source, and how long a source that was
// now good and now bad must have been good to be called so.
const hintPause = time.Minute

// hintKind is what was wrong with a hint.
type hintKind int

// The kinds, which have lines of their own.
const (
	hintFailed  hintKind = iota // the source has failed
	hintRefused                 // the source has said what is no pool
	hintKinds
)

var hintTexts = [hintKinds]string{hintFailed: "pool hint failed", hintRefused: "pool hint refused"}

// hintLog is a run of failures of a source, and what the log says of it. Limiter.mu guards it.
type hintLog struct {
	began, last time.Time // the first and the last failure
	failures    uint64
	kinds       [hintKinds]struct {
		last   time.Time // when there was a line; zero: there was none
		unsaid uint64    // failures since
	}
	well  time.Time // the first usable report since the last failure; zero: there was none
	mixed bool      // a failure has come after a usable report
	told  bool      // the log's last word is a failure
}

// hintLine is a line for the log; the zero value is none.
type hintLine struct {
	level slog.Level
	text  string
	args  []any
}

// write logs the line. Call without a lock: a handler may ask for Stats.
func (h hintLine) write(log *slog.Logger) {
	if h.text != "" {
		log.Log(context.Background(), h.level, h.text, h.args...)
	}
}

// failed takes note of a failure. The first of a run is a line at once, so is the first after the log has
// called the source good, and the first of the other kind; all others are counted, for one line a minute of
// each kind.
func (h *hintLog) failed(kind hintKind, err error, now time.Time) hintLine {
	if !h.told && now.Sub(h.last) >= hintPause {
		*h = hintLog{began: now}
	}
	h.mixed = h.mixed || !h.well.IsZero()
	h.last, h.well = now, time.Time{}
	h.failures++
	k := &h.kinds[kind]
	k.unsaid++
	if h.told && !k.last.IsZero() && now.Sub(k.last) < hintPause {
		return hintLine{}
	}
	n := k.unsaid
	k.last, k.unsaid, h.told = now, 0, true
	return hintLine{slog.LevelWarn, hintTexts[kind], []any{"error", err, "failures", n}}
}

// usable takes note of a report that is. The first one after failures is a line at once, but for a source
// that has failed between usable reports: that one must have gone for a minute without a failure.
func (h *hintLog) usable(now time.Time) hintLine {
	if h.well.IsZero() {
		h.well = now
	}
	if !h.told || h.mixed && now.Sub(h.last) < hintPause {
		return hintLine{}
	}
	h.told = false
	lasted := h.well.Sub(h.began)
	return hintLine{slog.LevelInfo, "pool hints are back", []any{"failures", h.failures, "lasted", lasted}}
}
