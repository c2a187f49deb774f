package quotient

import (
	"fmt"
	"runtime"
	"strings"
	"time"
)

// callers returns the stack of the call that takes a permit.
func callers() *[16]uintptr {
	stack := new([16]uintptr)
	runtime.Callers(3, stack[:])
	return stack
}

func (s *shard) expire(h *holding, end time.Duration) {
	m := h.gate.extend()
	h.end, h.place = end, int32(len(m.expiring))
	m.expiring = append(m.expiring, h)
	if len(m.expiring) == 1 || end < m.nextEnd {
		m.nextEnd = end
		if m.queue.head != nil {
			s.arm(h.gate, s.latest) // the callers that wait for slots may have these
		}
	}
}

// unexpire takes the holding off its gate's list; nextEnd stays, at worst too early.
func (s *shard) unexpire(h *holding) {
	m := h.gate.ext
	last := m.expiring[len(m.expiring)-1]
	m.expiring[h.place] = last
	last.place = h.place
	m.expiring[len(m.expiring)-1] = nil
	m.expiring = m.expiring[:len(m.expiring)-1]
	h.end = 0
}

// reclaim gives back the gate's permits whose time is over. It looks only when the
// earliest end has come, so that its cost is shared by the permits that have one.
func (s *shard) reclaim(g *gate, now instant) {
	if g.ext == nil || len(g.ext.expiring) == 0 || now.at < g.ext.nextEnd {
		return
	}
	var over []*holding
	next := never
	for _, h := range g.ext.expiring {
		if h.end <= now.at {
			over = append(over, h)
		} else if h.end < next {
			next = h.end
		}
	}
	g.ext.nextEnd = next
	for _, h := range over {
		s.leaked(h, now.at)
		s.free(h)
	}
}

// leaked counts a permit that is given back by time, and reports it from a goroutine of its own:
// the shard's lock is held here.
func (s *shard) leaked(h *holding, now time.Duration) {
	s.counts.reclaimed++
	report := s.l.leakCheck
	if report == nil {
		return
	}
	leak, stack := Leak{Key: h.key, Held: now - h.since}, h.stack
	time.AfterFunc(0, func() {
		leak.Stack = formatStack(stack[:])
		report(leak)
	})
}

// formatStack leaves out the limiter's own frames at its top.
func formatStack(pcs []uintptr) string {
	var b strings.Builder
	for frames := runtime.CallersFrames(pcs); ; {
		f, more := frames.Next()
		if f.Function != "" && (b.Len() > 0 || !ours(f.Function)) {
			fmt.Fprintf(&b, "%s %s:%d\n", f.Function, f.File, f.Line)
		}
		if !more {
			return b.String()
		}
	}
}

// ours reports whether a function is a method of a Limiter or of one of its shards.
func ours(function string) bool {
	_, method, _ := strings.Cut(function, "quotient.(*")
	return strings.HasPrefix(method, "Limiter).") || strings.HasPrefix(method, "shard).")
}
