package httplimit

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/quotient-go/quotient/policy"
)

const (
	// maxReset caps how far away a renewal may be: a month, the longest window that quotas are sold by.
	// More is a mistake.
	maxReset = 31 * 24 * time.Hour
	// maxAmount caps numbers at what a structured field can hold (RFC 9651, 3.3.1), just below what a float64
	// counts exactly.
	maxAmount = 999_999_999_999_999
	// maxValue is the longest value, in bytes, that is read of a plain field. A date has 35 at most, a
	// limit with all its windows hardly 100.
	maxValue = 256
)

// notSaid stands for a number that was absent.
const notSaid = -1

// reader reads the fields of one answer.
type reader struct {
	header  http.Header
	now     time.Time // see clock
	dated   bool      // now is by the upstream's clock, if it sent a Date
	garbage int

	quotas  [policy.MaxQuotas]policy.Quota
	units   int           // how many of quotas are used
	spent   bool          // some quota has nothing left
	longest time.Duration // until all those quotas are renewed
	hint    time.Duration // the longest pause of those that came without what is left
}

// read takes in the quotas: those that tell what is left, or what is used, and for the pause of a refusal also
// those that tell when alone.
func (r *reader) read(rows []Fields, refused bool) {
	r.structured()
	first := r.longest
	for i := range rows {
		f := &rows[i]
		if r.has(f.Remaining) || r.has(f.Used) || refused && (r.has(f.Reset) || r.has(f.ResetAfter)) {
			limit, left := r.levels(f)
			q := policy.Quota{Unit: f.Unit, Limit: limit, Remaining: left, Reset: r.reset(f)}
			pause := q.Reset
			if f.Fills && limit > 1 {
				pause = time.Duration(float64(pause) / limit)
			}
			r.add(q, pause)
		}
	}
	if first > 0 {
		r.longest = first
	}
}

// add takes in one quota, and how long a refusal pauses when it is spent. Limit and Remaining are notSaid where they
// are not, and so is a limit of 0.
func (r *reader) add(q policy.Quota, pause time.Duration) {
	switch {
	case q.Limit == 0:
		return
	case q.Remaining == 0:
		r.spent, r.longest = true, max(r.longest, pause)
	case q.Remaining < 0:
		r.hint = max(r.hint, pause)
	}
	q.Remaining = min(q.Remaining, q.Limit)
	if q.Remaining < 0 {
		return
	}
	for i := range r.quotas[:r.units] {
		if r.quotas[i].Unit == q.Unit {
			if binds(&q, &r.quotas[i]) {
				r.quotas[i] = q
			}
			return
		}
	}
	if r.units < len(r.quotas) {
		r.quotas[r.units] = q
		r.units++
	}
}

// binds reports whether a stops requests before b does, as Profile.Quotas documents.
func binds(a, b *policy.Quota) bool {
	left, other := a.Remaining*b.Limit, b.Remaining*a.Limit
	return left < other || left == other && a.Reset > b.Reset
}

// pause is how long a refusal asks to wait that has no Retry-After.
func (r *reader) pause() time.Duration {
	if r.spent {
		return min(r.longest, maxRetryAfter)
	}
	return min(r.hint, maxRetryAfter)
}

// waits are the fields that RetryAfter documents, and the units of their numbers. Clients know them from
// Azure, AWS, Docker, Smoobu, Bucket4j, Traefik, tower_governor and Django REST framework.
var waits = [...]struct {
	name string
	unit time.Duration
}{
	{"Retry-After", time.Second}, {"X-Retry-After", time.Second}, {"X-Ratelimit-Retry-After", time.Second},
	{"X-Rate-Limit-Retry-After-Seconds", time.Second}, {"X-Ratelimit-After", time.Second},
	{"X-Throttle-Wait-Seconds", time.Second}, {"X-Retry-In", time.Second},
	{"Retry-After-Ms", time.Millisecond}, {"X-Ms-Retry-After-Ms", time.Millisecond},
	{"X-Amz-Retry-After", time.Millisecond},
}

// wait is RetryAfter that counts garbage.
func (r *reader) wait() (longest time.Duration, said bool) {
	for i := range waits {
		for _, line := range r.header[waits[i].name] {
			if line = strings.Trim(line, " \t"); line == "" {
				continue
			}
			d, ok := r.waitIn(line, waits[i].unit)
			if !ok {
				r.garbage++
				continue
			}
			longest, said = max(longest, d), true
		}
	}
	return longest, said
}

// waitIn reads one value. So many seconds that they are more than thirty years are an instant: see firstInstant.
func (r *reader) waitIn(value string, unit time.Duration) (time.Duration, bool) {
	d, ok := parseUnits(value, unit)
	n, starts := parseNumber(firstMember(value))
	if ok && (unit != time.Second || n < firstInstant) {
		return d, true
	}
	if len(value) > maxValue || starts && !ok { // a list
		return d, ok
	}
	d, ok = r.until(value)
	return min(max(d, 0), maxRetryAfter), ok
}

// clock is the instant of the answer, by the upstream's own clock if it tells.
func (r *reader) clock() time.Time {
	if r.dated {
		return r.now
	}
	r.dated = true
	if r.now.IsZero() {
		r.now = time.Now()
	}
	if date := r.header["Date"]; len(date) > 0 {
		if sent, err := http.ParseTime(date[0]); err == nil {
			r.now = sent
		}
	}
	return r.now
}

// has reports whether a field with some value is there.
func (r *reader) has(name string) bool {
	return name != "" && len(r.header[name]) > 0 && r.header[name][0] != ""
}

// text is the first line of a field, without what stands after a list's first member.
func (r *reader) text(name string) string {
	if !r.has(name) {
		return ""
	}
	value := r.header[name][0]
	if len(value) > maxValue {
		r.garbage++
		return ""
	}
	return strings.Trim(value, " \t")
}

// levels are the limit and what is left of it.
func (r *reader) levels(f *Fields) (limit, left float64) {
	limit, left = r.amount(r.text(f.Limit)), r.amount(r.text(f.Remaining))
	before, after, _ := strings.Cut(r.text(f.Used), "/")
	used, of := r.amount(strings.TrimRight(before, " \t")), r.amount(strings.TrimLeft(after, " \t"))
	if limit < 0 {
		limit = of
	}
	switch {
	case used < 0:
	case left < 0 && limit >= 0:
		left = max(limit-used, 0)
	case left >= 0 && limit < 0:
		limit = left + used
	}
	return limit, left
}

// amount reads the number that a value starts with.
func (r *reader) amount(value string) float64 {
	if value == "" || value == "-1" {
		return notSaid
	}
	n, ok := parseNumber(firstMember(value))
	if !ok {
		r.garbage++
		return notSaid
	}
	return n
}

// reset is how long it takes until a quota is renewed; 0 when that is absent.
func (r *reader) reset(f *Fields) time.Duration {
	if after := r.amount(r.text(f.ResetAfter)); after >= 0 {
		return inSeconds(after)
	}
	value := r.text(f.Reset)
	if value == "" || value == "-1" {
		return 0
	}
	d, ok := r.until(value)
	if !ok {
		r.garbage++
		return 0
	}
	return min(max(d, 0), maxReset)
}

// until reads the forms that Fields.Reset documents.
func (r *reader) until(value string) (time.Duration, bool) {
	if n, ok := parseNumber(firstMember(value)); ok {
		return r.untilNumber(n), true
	}
	if value[0] >= '0' && value[0] <= '9' && !strings.Contains(value, "-") {
		d, err := time.ParseDuration(value)
		return d, err == nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04Z07:00", "2006-01-02T15:04Z0700"} {
		if at, err := time.Parse(layout, value); err == nil {
			return at.Sub(r.clock()), true
		}
	}
	at, err := http.ParseTime(value)
	return at.Sub(r.clock()), err == nil
}

// untilNumber tells an instant from a number of seconds: see firstInstant. 1e11 is in 1973 as milliseconds.
func (r *reader) untilNumber(n float64) time.Duration {
	const mostSeconds = 1e11
	switch {
	case n > mostSeconds:
		return time.UnixMilli(int64(n)).Sub(r.clock())
	case n >= firstInstant:
		whole, fraction := math.Modf(n)
		return time.Unix(int64(whole), int64(fraction*1e9)).Sub(r.clock())
	}
	return inSeconds(n)
}

// inSeconds is n seconds, at most maxReset, and 0 if they were absent.
func inSeconds(n float64) time.Duration {
	n = min(max(n, 0), maxReset.Seconds())
	return time.Duration(math.Round(n * float64(time.Second)))
}

// firstMember is the first member of a list, without parameters.
func firstMember(value string) string {
	if i := strings.IndexAny(value, ",;"); i >= 0 {
		return strings.TrimRight(value[:i], " \t")
	}
	return value
}

// decimal splits 1*DIGIT [ "." *DIGIT ].
func decimal(s string) (whole, fraction string, ok bool) {
	whole, fraction, _ = strings.Cut(s, ".")
	return whole, fraction, isDigits(whole) && (fraction == "" || isDigits(fraction))
}

// parseNumber reads a decimal number, capped at maxAmount.
func parseNumber(s string) (float64, bool) {
	if _, _, ok := decimal(s); !ok {
		return 0, false
	}
	n, _ := strconv.ParseFloat(s, 64) // digits are a number; too many are +Inf
	return min(n, maxAmount), true
}

// maxRetryAfter caps what RetryAfter returns. An upstream that is overloaded says seconds or minutes, a daily quota
// at most a day; more is a mistake or an attack, and would stop a key for good.
const maxRetryAfter = 24 * time.Hour

// RetryAfter reads how long the server of an answer demands to wait. It says so in Retry-After, or in one of
// X-Retry-After, X-RateLimit-Retry-After, X-RateLimit-After, X-Rate-Limit-Retry-After-Seconds,
// X-Throttle-Wait-Seconds and X-Retry-In. The same in milliseconds stands in Retry-After-Ms, X-Ms-Retry-After-Ms and
// X-Amz-Retry-After. The longest wait of all lines of all of them counts. It understands
//
//   - numbers, whole or decimal ("120", "2.5"); a fraction below a nanosecond is rounded up, so that the
//     result is never shorter than the field. From 1e9 on a number of seconds is an instant, in seconds since
//     1970, and above 1e11 in milliseconds;
//   - the three forms of an HTTP date (RFC 9110, 5.6.7), and times of RFC 3339;
//   - Go durations ("1m30s").
//
// Instants are relative to the answer's own Date field, so that the two clocks need not agree, and to now when
// that field is missing or wrong. A zero now means the present. What is past is 0.
//
// More than 24 hours count as 24 hours. Negative numbers and anything else that it cannot read are ignored. It
// reports false if nothing is left, and for an answer from a cache (Age above 0), which is not about the present.
func RetryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	if cached(h) {
		return 0, false
	}
	r := reader{header: h, now: now}
	return r.wait()
}

// cached reports whether an answer has been stored on its way: an Age above 0.
func cached(h http.Header) bool {
	lines := h["Age"]
	if len(lines) == 0 {
		return false
	}
	age := strings.Trim(lines[0], " \t")
	return isDigits(age) && strings.Trim(age, "0") != ""
}

// parseUnits reads a decimal number of units, rounded up to a nanosecond and capped at maxRetryAfter. It takes
// no float on the way, which would round.
func parseUnits(s string, unit time.Duration) (time.Duration, bool) {
	whole, fraction, ok := decimal(s)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || n >= int64(maxRetryAfter/unit) {
		return maxRetryAfter, true // only too many digits can fail
	}
	return time.Duration(n)*unit + nanoseconds(fraction, unit), true
}

// nanoseconds is the decimal fraction of a unit given by its digits, rounded up.
func nanoseconds(digits string, unit time.Duration) (n time.Duration) {
	for i := range digits {
		if unit == 1 {
			if strings.Trim(digits[i:], "0") != "" {
				n++
			}
			break
		}
		unit /= 10
		n += time.Duration(digits[i]-'0') * unit
	}
	return n
}

// isDigits reports whether s is one or more decimal digits.
func isDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}
