package httplimit

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxRetryAfter caps what RetryAfter returns. An upstream that is overloaded
// says seconds or minutes, a daily quota at most a day; more is a mistake or an
// attack, and would stop a key for good.
const maxRetryAfter = 24 * time.Hour

// RetryAfter reads the Retry-After field of an answer: the wait that the server demands. It understands
//
//   - seconds, whole or decimal ("120", "2.5"); a fraction below a nanosecond is rounded up, so that the
//     result is never shorter than the field;
//   - the three forms of an HTTP date (RFC 9110, 5.6.7). A date is relative to the answer's own Date field,
//     so that the two clocks need not agree, and to now when that field is missing or wrong. A date in the
//     past is 0.
//
// More than 24 hours count as 24 hours. It reports false for no field, for a negative number and for
// anything else it cannot read. It also does so for an answer from a cache (Age above 0), which is not about
// the present. Only the first line of a repeated field counts.
func RetryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	value := strings.Trim(h.Get("Retry-After"), " \t")
	if value == "" || cached(h) {
		return 0, false
	}
	if d, ok := parseSeconds(value); ok {
		return d, true
	}
	date, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	if sent, err := http.ParseTime(h.Get("Date")); err == nil {
		now = sent
	}
	return min(max(date.Sub(now), 0), maxRetryAfter), true
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

// parseSeconds reads 1*DIGIT [ "." *DIGIT ], rounded up to a nanosecond and
// capped at maxRetryAfter. It takes no float on the way, which would round.
func parseSeconds(s string) (time.Duration, bool) {
	whole, fraction, _ := strings.Cut(s, ".")
	if !isDigits(whole) || fraction != "" && !isDigits(fraction) {
		return 0, false
	}
	seconds, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || seconds >= int64(maxRetryAfter/time.Second) {
		return maxRetryAfter, true // only too many digits can fail
	}
	return time.Duration(seconds)*time.Second + nanoseconds(fraction), true
}

// nanoseconds is the decimal fraction of a second given by its digits, rounded
// up.
func nanoseconds(digits string) time.Duration {
	n, scale := time.Duration(0), time.Second
	for i := range digits {
		if scale == 1 {
			if strings.Trim(digits[i:], "0") != "" {
				n++
			}
			break
		}
		scale /= 10
		n += time.Duration(digits[i]-'0') * scale
	}
	return n
}

// isDigits reports whether s is one or more decimal digits.
func isDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}
