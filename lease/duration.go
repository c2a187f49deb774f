package lease

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

// units are the units of a duration. A month is a twelfth of a year, nearly: 30.44 days.
var units = func() map[string]time.Duration {
	m := make(map[string]time.Duration)
	for names, unit := range map[string]time.Duration{
		"ns nsec nanos nanosecond nanoseconds":    time.Nanosecond,
		"us usec micros microsecond microseconds": time.Microsecond,
		"ms msec millis millisecond milliseconds": time.Millisecond,
		"s sec secs second seconds":               time.Second,
		"m min mins minute minutes":               time.Minute,
		"h hr hrs hour hours":                     time.Hour,
		"d day days":                              day,
		"w wk wks week weeks":                     7 * day,
		"M mo mos month months":                   30*day + 10*time.Hour + 33*time.Minute + 36*time.Second,
		"y yr yrs year years":                     year,
	} {
		for _, name := range strings.Fields(names) {
			m[name] = unit
		}
	}
	return m
}()

// ParseDuration reads a duration as configurations and requests have it: whole numbers with units, as in
// "300000ms", "1h 30m" or "2days". The units are ns, us, ms, s, m or min, h, d, w, M (a month), y, and their
// long forms. It fails where there is a number without a unit, and above 292 years.
func ParseDuration(text string) (time.Duration, error) {
	sum := time.Duration(0)
	rest := strings.TrimSpace(text)
	if rest == "" {
		return 0, fmt.Errorf("duration %.40q is empty, want for example 5m", text)
	}
	for rest != "" {
		number, after := span(rest, "0123456789")
		name, after := span(strings.TrimLeft(after, " "), "abcdefghijklmnopqrstuvwxyzM")
		unit, ok := units[name]
		if number == "" || !ok {
			return 0, fmt.Errorf("duration %.40q: want numbers with units, for example 1h 30m", text)
		}
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || n > (math.MaxInt64-int64(sum))/int64(unit) {
			return 0, fmt.Errorf("duration %.40q is too large, want at most 292 years", text)
		}
		sum += time.Duration(n) * unit
		rest = strings.TrimLeft(after, " ")
	}
	return sum, nil
}

// span cuts text after the bytes that are in a set.
func span(text, set string) (before, after string) {
	after = strings.TrimLeft(text, set)
	return text[:len(text)-len(after)], after
}

// FormatDuration writes a duration as ParseDuration reads it: in milliseconds, or in nanoseconds where it is
// not a whole number of them. A negative one counts as 0.
func FormatDuration(d time.Duration) string {
	d = max(d, 0)
	if d%time.Millisecond == 0 {
		return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
	}
	return strconv.FormatInt(int64(d), 10) + "ns"
}
