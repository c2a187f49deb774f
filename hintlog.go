package quotient

import (
	"context"
	"log/slog"
	"time"
)

// hintPause is the least time between two lines that say the same of a source. A source that was now good and
// now bad must be good for as long before a line calls it good.
const hintPause = time.Minute

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

// failed takes note of a failure. The first failure of a run is logged at once. So is the first one after the
// log has called the source good, and the first one of the other kind. All others are counted, for one line a
// minute of each kind.
func (h *hintLog) failed(kind hintKind, err error, now time.Time) hintLine {
	if !h.failing && now.Sub(h.last) >= hintPause {
		*h = hintLog{began: now}
	}
	h.mixed = h.mixed || !h.well.IsZero()
	h.last, h.well = now, time.Time{}
	h.failures++
	k := &h.kinds[kind]
	k.unlogged++
	if h.failing && !k.last.IsZero() && now.Sub(k.last) < hintPause {
		return hintLine{}
	}
	n := k.unlogged
	k.last, k.unlogged, h.failing = now, 0, true
	return hintLine{slog.LevelWarn, hintTexts[kind], []any{"error", err, "failures", n}}
}

// usable takes note of a usable report. The first one after failures is logged at once. But a source that has
// also failed between usable reports must have gone for a minute without a failure.
func (h *hintLog) usable(now time.Time) hintLine {
	if h.well.IsZero() {
		h.well = now
	}
	if !h.failing || h.mixed && now.Sub(h.last) < hintPause {
		return hintLine{}
	}
	h.failing = false
	lasted := h.well.Sub(h.began)
	return hintLine{slog.LevelInfo, "pool hints are back", []any{"failures", h.failures, "lasted", lasted}}
}
