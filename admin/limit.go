package admin

import (
	"fmt"
	"log/slog"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/kinds"
)

// Bounds of a limit that the limiter itself does not set.
const (
	mostRates   = 16  // the limiter's bound, known here since a list is read before it is validated
	longestName = 128 // bytes of a rate's name or unit
	mostBurst   = min(1<<40, math.MaxInt)
)

var (
	limitFields = []string{"rates", "in_flight", "deny", "unlimited"}
	rateFields  = []string{
		"name", "unit", "events", "per_seconds", "burst", "kind", "aligned", "counted", "no_turns", "zone",
	}
)

// ranges says what Limit.Validate wants, by the JSON name of the field.
var ranges = map[string]string{
	"rates":       "a list of at most 16, each with a name of its own within its unit",
	"in_flight":   "a whole number from 0 to 1073741824",
	"name":        "a string of at most 128 bytes that no other rate of the unit has",
	"events":      "a number above 0 and at most 1e12, a second from 1.1e-13 to 1e12; at least 0.001 in a window",
	"per_seconds": "a number of seconds from 1e-9 to 9.2e9; at least 0.001 of a window",
	"burst":       fmt.Sprintf("a whole number from 0 to %d; at most 1 if paced, 0 of a window", mostBurst),
	"kind":        strings.Join(kinds.Names, ", "),
	"aligned":     "true of a window, else false, or left out beside kind",
	"counted":     "true of a counted window, which is aligned, else false, or left out beside kind",
	"zone":        "a time zone such as Europe/Berlin, of a window of whole days, or left out for UTC",
}

func parseLimit(body []byte) (change, *Problem) {
	limit, bad := readLimitBody(body)
	return change{
		what: "limit set", field: "rates",
		show:  func(l *quotient.Limiter) slog.Value { return l.Stats().Limit.LogValue() },
		apply: func(l *quotient.Limiter) error { _, err := changeLimit(l, limit, false); return err },
		warn:  func(l *quotient.Limiter) { warnOf(l, &limit) },
		try:   func(l *quotient.Limiter) error { _, err := changeLimit(l, limit, true); return err },
	}, bad
}

// readLimitBody reads {"rates":[{"events":100,"per_seconds":1}],"in_flight":10,"deny":false}, or {"unlimited":true}.
func readLimitBody(body []byte) (quotient.Limit, *Problem) {
	f := readForm(body, `{"rates":[{"events":100,"per_seconds":1}]}`, limitFields...)
	return result(f, readLimit(&f))
}

// readLimit reads the fields of a limit. "rates" must be there, though it may be empty: a body without it is
// more likely a mistake than the wish to lift every limit, for which there is "unlimited". A limit that denies, or
// limits nothing, has nothing else.
func readLimit(f *form) quotient.Limit {
	if optional(f, "deny", f.truth) {
		const other = "a limit that denies everything has no other bound"
		if f.has("rates") && len(f.list("rates", mostRates, rateFields...)) > 0 {
			f.wrong("rates", other, "nothing beside deny")
		}
		if optional(f, "in_flight", f.anyWhole) != 0 {
			f.wrong("in_flight", other, "nothing beside deny")
		}
		if optional(f, "unlimited", f.truth) {
			f.wrong("unlimited", other, "nothing beside deny")
		}
		return quotient.Limit{Deny: true}
	}
	var limit quotient.Limit
	var rates []form
	unlimited := optional(f, "unlimited", f.truth)
	if f.has("rates") || !unlimited {
		rates = f.list("rates", mostRates, rateFields...)
	}
	for i := range rates {
		limit.Rates = append(limit.Rates, readRate(&rates[i]))
	}
	limit.InFlight = optional(f, "in_flight", f.anyWhole)
	switch nothing := len(limit.Rates) == 0 && limit.InFlight == 0; {
	case nothing && !unlimited:
		f.wrong("rates", "no rate, no in_flight and no deny: everything would be admitted",
			`a rate, in_flight or deny; "unlimited":true for no bound at all`)
	case unlimited && !nothing:
		f.wrong("unlimited", "there is a bound", "nothing beside unlimited")
	}
	if *f.bad == nil {
		blame(f, rates, limit.Validate())
	}
	return limit
}

// readRate reads one rate. The limiter finds values that are out of range.
func readRate(f *form) quotient.Rate {
	text := func(name string) string { return f.text(name, longestName) }
	r := quotient.Rate{
		Events: f.number("events", ranges["events"]), Per: readPer(f),
		Name: optional(f, "name", text), Unit: optional(f, "unit", text), Burst: optional(f, "burst", f.anyWhole),
		NoTurns: optional(f, "no_turns", f.truth), Zone: optional(f, "zone", text),
	}
	kind, older := optional(f, "kind", text), make(map[string]bool)
	for _, name := range []string{"aligned", "counted"} {
		if f.has(name) {
			older[name] = f.truth(name)
		}
	}
	if f.has("kind") && !slices.Contains(kinds.Names, kind) {
		f.wrong("kind", "there is no such kind", ranges["kind"])
	} else if field, fault := kinds.Set(&r, kind, older); field != "" {
		f.wrong(field, fault, ranges[field])
	}
	return r
}

func readPer(f *form) time.Duration {
	seconds := f.number("per_seconds", ranges["per_seconds"])
	if math.Abs(seconds) >= math.MaxInt64/1e9 {
		f.wrong("per_seconds", "out of range", ranges["per_seconds"])
		return 0
	}
	return toDuration(seconds)
}

// toDuration rounds to nanoseconds.
func toDuration(seconds float64) time.Duration { return time.Duration(math.Round(seconds * 1e9)) }

// place is the start of an error of Limit.Validate: which field of which rate.
var place = regexp.MustCompile(`^quotient: Limit\.(InFlight|Rates)(?:\[(\d+)\]\.(Events|Per|Burst|Name|Unit|Zone))?: `)

var jsonNames = map[string]string{
	"InFlight": "in_flight", "Rates": "rates", "Events": "events", "Per": "per_seconds", "Burst": "burst", "Name": "name", "Unit": "unit",
	"Zone": "zone",
}

// blame notes an error of Limit.Validate under the JSON name of its field, with what was sent there.
func blame(f *form, rates []form, err error) {
	if err == nil {
		return
	}
	at := place.FindStringSubmatch(err.Error())
	if at == nil {
		f.fail(Problem{Detail: err.Error(), Field: strings.TrimSuffix(f.path, ".") + "limit"})
		return
	}
	in, name := f, jsonNames[at[1]]
	if i, err := strconv.Atoi(at[2]); err == nil && i < len(rates) {
		in, name = &rates[i], jsonNames[at[3]]
	}
	f.fail(Problem{
		Detail: err.Error()[len(at[0]):], Field: in.path + name, Value: clip(string(in.values[name])), Range: ranges[name],
	})
}
