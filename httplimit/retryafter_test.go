package httplimit

import (
	"net/http"
	"testing"
	"time"
)

func TestRetryAfter(t *testing.T) {
	const (
		date    = "Sun, 06 Nov 1994 08:49:37 GMT"
		later   = "Sun, 06 Nov 1994 08:51:07 GMT" // 90 s later
		bad     = -1                              // reported as unreadable
		daylong = 24 * time.Hour
	)
	now := time.Date(1994, 11, 6, 8, 50, 37, 0, time.UTC) // 30 s before later
	tests := []struct {
		value, date, age string
		want             time.Duration
	}{
		{"", "", "", bad},
		{"0", "", "", 0}, {"1", "", "", time.Second}, {"120", "", "", 2 * time.Minute},
		{" 007 ", "", "", 7 * time.Second},
		{"2.0", "", "", 2 * time.Second}, {"2.5", "", "", 2500 * time.Millisecond},
		{"2.", "", "", 2 * time.Second},
		{"0.000000001", "", "", 1}, {"0.0000000001", "", "", 1}, {"0.0000000000", "", "", 0},
		{"1.9999999999", "", "", 2 * time.Second},
		{"86400", "", "", daylong}, {"86399.5", "", "", daylong - 500*time.Millisecond},
		{"86401", "", "", daylong},
		{"9223372037", "", "", daylong}, {"9223372036854775808", "", "", daylong},
		{"99999999999999999999999", "", "", daylong},
		{"-1", "", "", bad}, {"-0", "", "", bad}, {"+1", "", "", bad}, {"1e3", "", "", bad},
		{"0x10", "", "", bad}, {".5", "", "", bad},
		{"1.-5", "", "", bad}, {"1.2.3", "", "", bad}, {"1, 2", "", "", bad}, {"NaN", "", "", bad},
		{"Inf", "", "", bad}, {"soon", "", "", bad}, {"१", "", "", bad},
		{later, date, "", 90 * time.Second}, {later, "", "", 30 * time.Second},
		{later, "yesterday", "", 30 * time.Second},
		{"Sunday, 06-Nov-94 08:51:07 GMT", date, "", 90 * time.Second},
		{"Sun Nov  6 08:51:07 1994", date, "", 90 * time.Second},
		{date, later, "", 0}, {"Fri, 31 Dec 9999 23:59:59 GMT", date, "", daylong},
		{"Mon, 01 Jan 0001 00:00:00 GMT", date, "", 0},
		{"Sun, 06 Nov 1994 08:51:07 +0100", date, "", bad},
		{"1", "", "0", time.Second}, {"1", "", "00", time.Second}, {"1", "", "-5", time.Second},
		{"1", "", "old", time.Second},
		{"1", "", "5", bad}, {later, date, "1", bad}, {"1", "", "99999999999999999999999", bad},
	}
	for _, tt := range tests {
		h := http.Header{}
		h.Set("Retry-After", tt.value)
		h.Set("Date", tt.date)
		h.Set("Age", tt.age)
		got, ok := RetryAfter(h, now)
		if ok != (tt.want != bad) || ok && got != tt.want || !ok && got != 0 {
			t.Errorf("Retry-After %q, Date %q, Age %q: %v, %v; want %v", tt.value, tt.date, tt.age, got,
				ok, tt.want)
		}
	}
}

func TestRetryAfterWithoutFields(t *testing.T) {
	if d, ok := RetryAfter(nil, time.Now()); d != 0 || ok {
		t.Errorf("no header at all: %v, %v; want 0, false", d, ok)
	}
}
