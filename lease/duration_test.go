package lease_test

import (
	"math"
	"testing"
	"time"

	"github.com/quotient-go/quotient/lease"
)

func TestParseDuration(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"5m": 5 * time.Minute, "30s": 30 * time.Second, "12h": 12 * time.Hour,
		"500ms":  500 * time.Millisecond,
		"1h 30m": 90 * time.Minute, "1h30m": 90 * time.Minute, "2days": 2 * day, "0ms": 0, "0s": 0,
		"5min":     5 * time.Minute,
		"300000ms": 5 * time.Minute, "1 h": time.Hour, " 1h ": time.Hour, "1h 1h": 2 * time.Hour,
		"07s": 7 * time.Second,
		"1ns": 1, "1nsec": 1, "1us": 1000, "1usec": 1000, "1msec": 1e6, "1sec": 1e9, "1second": 1e9,
		"2seconds": 2e9,
		"1minute":  time.Minute, "2minutes": 2 * time.Minute, "1hr": time.Hour, "1hour": time.Hour,
		"2hours": 2 * time.Hour,
		"1d":     day, "1day": day, "1w": 7 * day, "1week": 7 * day, "2weeks": 14 * day,
		"1M": 2630016 * time.Second, "1month": 2630016 * time.Second, "2months": 2 * 2630016 * time.Second,
		"1y": 31557600 * time.Second, "1year": 31557600 * time.Second, "2years": 2 * 31557600 * time.Second,
		"9223372036854775807ns": math.MaxInt64, "292y": 292 * 31557600 * time.Second,
	} {
		if got, err := lease.ParseDuration(text); got != want || err != nil {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", " ", "5", "m", "-5m", "+5m", "5 parsecs", "5m!", "1.5h", "5mm", "5m 3", "1e3s", "5M5", "S", "5S",
		"١s", "5µs", "5m\n3",
		"9223372036854775808ns", "300y", "200y 200y", "99999999999999999999s", "9223372036854775807ns 1ns",
	} {
		if got, err := lease.ParseDuration(text); err == nil || got != 0 {
			t.Errorf("%q: %v, want an error", text, got)
		}
	}
}

func TestFormatDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0ms", -1: "0ms", 1: "1ns", time.Microsecond: "1000ns", time.Millisecond: "1ms",
		5 * time.Minute: "300000ms",
		time.Second + 1: "1000000001ns", math.MaxInt64: "9223372036854775807ns",
	} {
		if got := lease.FormatDuration(d); got != want {
			t.Errorf("%v: %q, want %q", int64(d), got, want)
		}
	}
}

func FuzzParseDuration(f *testing.F) {
	for _, text := range []string{"1h 30m", "0ms", "-5m", "5 parsecs", "200y 200y", "1year 2months 3weeks 10ns"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := lease.ParseDuration(text)
		if d < 0 || err != nil && d != 0 {
			t.Fatalf("%q: %v, %v", text, d, err)
		}
		if again, err2 := lease.ParseDuration(lease.FormatDuration(d)); again != d || err2 != nil {
			t.Fatalf("%q: %v, then %v, %v", text, d, again, err2)
		}
	})
}
