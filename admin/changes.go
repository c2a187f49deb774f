package admin

import (
	"encoding/base64"
	"errors"
	"log/slog"
	"math"
	"regexp"
	"strconv"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/inside"
)

// The changes of a limiter, of which it may refuse some. The last argument makes a trial of each. None is logged by the
// limiter, as commit does that, which knows the operator: see package inside.
var (
	changeLimit    = inside.SetLimit.(func(*quotient.Limiter, quotient.Limit, bool) (quotient.Limit, error))
	changePlan     = inside.SetPlan.(func(*quotient.Limiter, string, *quotient.Limit, bool) (*quotient.Limit, error))
	changeOverride = inside.Override.(func(*quotient.Limiter, string, *quotient.Limit, time.Time, bool) (*quotient.KeyLimit, error))
	changePool     = inside.SetPool.(func(*quotient.Limiter, quotient.Pool, time.Duration) error)
	changeDryRun   = inside.SetDryRun.(func(*quotient.Limiter, bool) bool)
	resetKey       = inside.Reset.(func(*quotient.Limiter, string) bool)
	warnOf         = inside.WarnOf.(func(*quotient.Limiter, *quotient.Limit, ...any))
)

const (
	// maxReplicas is the largest pool size that an operator can set. It is far above any real pool
	// and catches a number that was meant for another field.
	maxReplicas = 1_000_000
	// longestWord is how long what ends by itself may count: a year. For longer, leave ttl_seconds out.
	longestWord = 365 * 24 * time.Hour
)

// replicas is what PUT /replicas asks for. An operator sets it: it counts at once, undamped.
type replicas struct {
	pool quotient.Pool
	ttl  time.Duration // 0: for good
}

func parseReplicas(body []byte) (change, *Problem) {
	v, bad := readReplicas(body)
	return change{
		what: "pool size set", field: "replicas", all: true, show: showPool,
		apply: func(l *quotient.Limiter) error { return changePool(l, v.pool, v.ttl) },
	}, bad
}

// readReplicas reads {"replicas":4,"weight":2,"ordinal":2,"ttl_seconds":600}. "ordinal" may be left out or 0: unknown;
// without "weight" this replica counts as one, whatever it counted as before; without "ttl_seconds" it is for good.
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
	v.ttl = optional(&f, "ttl_seconds", f.ttl)
	return result(f, v)
}

// ttl reads after how long something ends.
func (f *form) ttl(name string) time.Duration {
	const wanted = "a number of seconds from 0.001 to 31536000; leave it out for good"
	seconds := f.number(name, wanted)
	if seconds < time.Millisecond.Seconds() || seconds > longestWord.Seconds() {
		f.wrong(name, "out of range", wanted)
	}
	return toDuration(seconds)
}

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

// namedPlan is what PUT /plan asks for: a plan of that name with a limit, or none.
type namedPlan struct {
	name  string
	limit *quotient.Limit
}

func parsePlan(body []byte) (change, *Problem) {
	v, bad := readPlan(body)
	return change{
		what: "plan set", field: "plan", value: v.name, show: v.show,
		apply: func(l *quotient.Limiter) error { _, err := changePlan(l, v.name, v.limit, false); return err },
		warn:  func(l *quotient.Limiter) { warnOf(l, v.limit, "plan", v.name) },
		try:   func(l *quotient.Limiter) error { _, err := changePlan(l, v.name, v.limit, true); return err },
	}, bad
}

const (
	longestPlan = 64 // bytes of a name: the limiter's bound
	planRange   = "1 to 64 of a-z, 0-9, '.', '_' and '-'"
)

// planName is what the limiter takes for a name.
var planName = regexp.MustCompile(`\A[a-z0-9._-]{1,64}\z`)

// readPlan reads {"plan":"paid","limit":{...}}; the limit may be null: the plan is taken off. Both must be there.
func readPlan(body []byte) (namedPlan, *Problem) {
	f := readForm(body, `{"plan":"paid","limit":{"rates":[{"events":100,"per_seconds":1}]}}`, "plan", "limit")
	v := namedPlan{name: f.text("plan", longestPlan)}
	if !planName.MatchString(v.name) {
		f.wrong("plan", "not a name", planRange)
	}
	v.limit = readLimitOrNull(&f)
	return result(f, v)
}

// show is the plan for the log.
func (v namedPlan) show(l *quotient.Limiter) slog.Value {
	value := slog.StringValue("none")
	if p, ok := l.Stats().Plans[v.name]; ok {
		value = p.Limit.LogValue()
	}
	return slog.GroupValue(slog.String("plan", v.name), slog.Attr{Key: "limit", Value: value})
}

// override is what PUT /override asks for: a limit of the key's own, or none.
type override struct {
	key   string
	limit *quotient.Limit
	ttl   time.Duration // 0: for good
}

func parseOverride(body []byte) (change, *Problem) {
	v, bad := readOverride(body)
	set := func(l *quotient.Limiter, try bool) error {
		until := time.Time{}
		if v.ttl > 0 {
			until = time.Now().Add(v.ttl)
		}
		_, err := changeOverride(l, v.key, v.limit, until, try)
		return err
	}
	return change{
		what: "override set", field: "key", show: v.show, own: &v,
		apply: func(l *quotient.Limiter) error { return set(l, false) },
		warn:  func(l *quotient.Limiter) { warnOf(l, v.limit, "key", v.key) },
		try:   func(l *quotient.Limiter) error { return set(l, true) },
	}, bad
}

// readOverride reads {"key":"K","limit":{...},"ttl_seconds":600}; the limit may be null: none, which has no end. Key
// and limit must be there; "key_base64" may stand in place of "key". Without "ttl_seconds" it is for good.
func readOverride(body []byte) (override, *Problem) {
	f := readForm(body, `{"key":"K","limit":{"rates":[{"events":100,"per_seconds":1}]}}`,
		"key", "key_base64", "limit", "ttl_seconds")
	v := override{readKey(&f), readLimitOrNull(&f), optional(&f, "ttl_seconds", f.ttl)}
	if v.limit == nil && v.ttl > 0 {
		f.wrong("ttl_seconds", "there is no limit that could end", "nothing beside a limit that is null")
	}
	return result(f, v)
}

// readLimitOrNull reads "limit", nil for null. It must be there.
func readLimitOrNull(f *form) *quotient.Limit {
	switch {
	case !f.has("limit"):
		f.wrong("limit", "", "a limit, or null for none")
		return nil
	case f.null("limit"):
		return nil
	}
	inner := f.nested(f.path+"limit", f.values["limit"], limitFields)
	limit := readLimit(&inner)
	return &limit
}

// readKey reads exactly one of "key" and "key_base64", which also carries keys that are not UTF-8.
func readKey(f *form) string {
	if !f.has("key_base64") {
		return f.text("key", longestKey)
	}
	text := f.text("key_base64", base64.StdEncoding.EncodedLen(longestKey))
	key, ok := fromBase64(text)
	switch {
	case f.has("key"):
		f.wrong("key_base64", "there is a key already", "one of key and key_base64")
	case !ok:
		f.wrong("key_base64", "not a key in base64", keyRange)
	}
	return key
}

// of is the override that the key has at a limiter; nil if it has none.
func (v override) of(l *quotient.Limiter) *OverrideState {
	e := l.Explain(v.key)
	if !e.Overridden {
		return nil
	}
	own := newOverrideState(v.key, quotient.KeyLimit{Limit: e.Limit, Until: e.Until})
	return &own
}

// show is the override of the key for the log.
func (v override) show(l *quotient.Limiter) slog.Value {
	e := l.Explain(v.key)
	value := slog.StringValue("none")
	if e.Overridden {
		value = e.Limit.LogValue()
	}
	attrs := []slog.Attr{slog.String("key", strconv.QuoteToASCII(v.key)), {Key: "limit", Value: value}}
	if !e.Until.IsZero() {
		attrs = append(attrs, slog.Time("until", e.Until))
	}
	return slog.GroupValue(attrs...)
}

// parseReset reads {"key":"K"}; "key_base64" may stand in place of "key". The key starts fresh.
func parseReset(body []byte) (change, *Problem) {
	f := readForm(body, `{"key":"K"}`, "key", "key_base64")
	key := readKey(&f)
	// A key that is not remembered stays as it is, for it starts fresh when it comes. One that shares a gate does not.
	try := func(l *quotient.Limiter) error {
		if l.Explain(key).Overflow {
			return errShares
		}
		return nil
	}
	apply := func(l *quotient.Limiter) error {
		if resetKey(l, key) {
			return nil
		}
		return try(l)
	}
	show := func(l *quotient.Limiter) slog.Value { return standing(l.Explain(key)) }
	return result(f, change{what: "key reset", field: "key", deed: true, show: show, apply: apply, try: try})
}

var errShares = errors.New("MaxKeys keys are busy: the key shares one limit with others, " +
	"which would start fresh with it")

// standing is where a key stands, for the log.
func standing(e quotient.Explanation) slog.Value {
	return slog.GroupValue(slog.String("key", strconv.QuoteToASCII(e.Key)), slog.Bool("remembered", e.Remembered),
		slog.Float64("used", math.Round(1000*finite(e.Used))/1000),
		slog.Int("waiting", e.Waiting), slog.Int("in_flight", e.InFlight))
}

// parseDryRun reads {"dry_run":true}.
func parseDryRun(body []byte) (change, *Problem) {
	f := readForm(body, `{"dry_run":true}`, "dry_run")
	on := f.truth("dry_run")
	return result(f, change{
		what: "dry run set", field: "dry_run",
		show:  func(l *quotient.Limiter) slog.Value { return slog.BoolValue(l.DryRun()) },
		apply: func(l *quotient.Limiter) error { changeDryRun(l, on); return nil },
	})
}
