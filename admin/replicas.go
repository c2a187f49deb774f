package admin

import (
	"log/slog"
	"time"

	"github.com/quotient-go/quotient"
)

const (
	// maxReplicas is the largest pool size that an operator can set. It is far above any real pool
	// and catches a number that was meant for another field.
	maxReplicas = 1_000_000
	// longestWord is how long a pool size that ends by itself may count: a year. For longer, leave
	// ttl_seconds out.
	longestWord = 365 * 24 * time.Hour
)

// replicas is what PUT /replicas asks for. An operator sets it: it counts at once, undamped.
type replicas struct {
	pool quotient.Pool
	ttl  time.Duration // 0: for good
}

func parseReplicas(body []byte) (change, *Problem) {
	v, bad := readReplicas(body)
	return change{what: "pool size set", field: "replicas", all: true, show: showPool, apply: v.apply}, bad
}

// readReplicas reads {"replicas":4,"weight":2,"ordinal":2,"ttl_seconds":600}. "ordinal" may be left out or 0:
// unknown; without "weight" this replica counts as one, whatever it counted as before; without "ttl_seconds"
// it is for good.
func readReplicas(body []byte) (replicas, *Problem) {
	f := readForm(body, `{"replicas":4,"ordinal":2}`, "replicas", "weight", "ordinal", "ttl_seconds")
	var v replicas
	v.pool.Replicas = f.whole("replicas", 1, maxReplicas)
	if f.has("weight") {
		v.pool.Weight = f.whole("weight", 1, v.pool.Replicas)
	}
	if f.has("ordinal") {
		v.pool.Ordinal = f.whole("ordinal", 0, v.pool.Replicas-max(1, v.pool.Weight)+1)
	}
	if f.has("ttl_seconds") {
		v.ttl = readTTL(&f)
	}
	return result(f, v)
}

func readTTL(f *form) time.Duration {
	const wanted = "a number of seconds from 0.001 to 31536000; leave it out for good"
	seconds := f.number("ttl_seconds", wanted)
	if seconds < time.Millisecond.Seconds() || seconds > longestWord.Seconds() {
		f.wrong("ttl_seconds", "out of range", wanted)
		return 0
	}
	return toDuration(seconds)
}

func (v replicas) apply(l *quotient.Limiter) error { return l.SetPool(v.pool, v.ttl) }

// showPool is the pool of a limiter for the log.
func showPool(l *quotient.Limiter) slog.Value {
	p := l.Stats().Pool
	attrs := []slog.Attr{slog.Int("replicas", p.Replicas), slog.Int("ordinal", p.Ordinal), slog.Bool("fixed", p.Fixed)}
	if p.Weight > 1 {
		attrs = append(attrs, slog.Int("weight", p.Weight))
	}
	if !p.Until.IsZero() {
		attrs = append(attrs, slog.Time("until", p.Until))
	}
	return slog.GroupValue(attrs...)
}
