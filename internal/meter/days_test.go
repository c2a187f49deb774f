package meter

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The zones of the tests change by half an hour, at midnight, over midnight, by a whole day, or never.
var zoneNames = []string{
	"UTC", "Europe/Berlin", "America/Los_Angeles", "Asia/Kolkata", "Australia/Lord_Howe", "America/St_Johns",
	"America/Havana", "America/Santiago", "Africa/Cairo", "Pacific/Apia", "Pacific/Kwajalein", "Etc/GMT+8",
}

func daysIn(t fataler, zone string) (*Days, *time.Location) {
	d, err := DaysIn(zone)
	if err != nil {
		t.Fatal(err)
	}
	loc, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	return d, loc
}

type fataler interface{ Fatal(...any) }

// Windows of days are those of the calendar. Their quota is there once, whether they have 23, 24 or 25 hours.
func TestWindowsOfDaysInAZone(t *testing.T) {
	for _, c := range []struct {
		zone, begin string // of a window, in UTC
		per, lasts  time.Duration
	}{
		{"America/Los_Angeles", "2026-01-15T08:00:00Z", day, day},
		{"America/Los_Angeles", "2026-07-15T07:00:00Z", day, day},
		{"Europe/Berlin", "2026-03-28T23:00:00Z", day, 23 * time.Hour},
		{"Europe/Berlin", "2026-03-29T22:00:00Z", day, day},
		{"Europe/Berlin", "2026-10-24T22:00:00Z", day, 25 * time.Hour},
		{"Europe/Berlin", "2026-10-25T23:00:00Z", day, day},
		{"Europe/Berlin", "2026-10-18T22:00:00Z", 7 * day, 7*day + time.Hour}, // Monday
		{"Europe/Berlin", "2150-06-30T22:00:00Z", day, day},
		{"America/Havana", "2026-03-08T05:00:00Z", day, 23 * time.Hour}, // it begins at 01:00
		{"America/Santiago", "2026-04-04T03:00:00Z", day, 25 * time.Hour},
		{"Australia/Lord_Howe", "2026-04-04T13:00:00Z", day, 24*time.Hour + 30*time.Minute},
		{"Pacific/Apia", "2011-12-29T10:00:00Z", day, day}, // there was no 30 December
		{"Etc/GMT-2", "2026-03-28T22:00:00Z", day, day},
	} {
		s := NewSchedule(c.per, 5, Part{Replicas: 1, Ordinal: 1, Weight: 1}, 0)
		s.Days, _ = daysIn(t, c.zone)
		r := &Rule{Schedule: s}
		begin, err := time.Parse(time.RFC3339, c.begin)
		if err != nil {
			t.Fatal(err)
		}
		before := Instant{Wall: begin.UnixNano() - int64(time.Minute)}
		w := OpenWindow(before, s)
		w.Take(before, r, 5)
		left, _, full := w.Left(before, r)
		is(t, []any{c, "left before"}, left, 0.)
		is(t, []any{c, "to the window"}, full, time.Minute)
		is(t, []any{c, "until the window"}, w.Until(before, r, 0, 0, 1), time.Minute)
		first := before.later(time.Minute)
		is(t, []any{c, "five at the start"}, w.uses(first, 5, s), true)
		left, _, full = w.Left(first, r)
		is(t, []any{c, "left"}, left, 0.)
		is(t, []any{c, "to the next"}, full, c.lasts)
		is(t, []any{c, "one more at the end"}, w.uses(first.later(c.lasts-1), 1, s), false)
		is(t, []any{c, "one in the next"}, w.uses(first.later(c.lasts), 1, s), true)
	}
}

// A day of 23 hours pays off debt as any other does, also when no call has come in it.
func TestDebtOverAShortDay(t *testing.T) {
	s := NewSchedule(day, 5, Part{Replicas: 1, Ordinal: 1, Weight: 1}, 0)
	s.Days, _ = daysIn(t, "Europe/Berlin")
	r := &Rule{Schedule: s}
	now := Instant{Wall: time.Date(2026, 3, 28, 22, 45, 0, 0, time.UTC).UnixNano()}
	w := OpenWindow(now, s)
	w.Take(now, r, 10)
	turn := w.Until(now, r, 0, 0, 1)
	is(t, "turn", turn, 23*time.Hour+15*time.Minute)
	is(t, "five at the turn", w.uses(now.later(turn), 5, s), true)
}

// The number of a day is that of its date. It never falls, each instant is in the day that has begun last, and no day
// begins elsewhere than it ends.
func TestPropertyDaysOfZones(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d, loc := daysIn(rt, rapid.SampledFrom(zoneNames).Draw(rt, "zone"))
		at := time.Date(1970, 1, 3, 0, 0, 0, 0, time.UTC).
			Add(time.Duration(rapid.Int64Range(0, int64(200*365*day)).Draw(rt, "at")))
		if _, end := at.In(loc).ZoneBounds(); !end.IsZero() && rapid.Bool().Draw(rt, "at a change") {
			most := int64(rapid.SampledFrom([]time.Duration{time.Minute, 26 * time.Hour}).Draw(rt, "at most"))
			at = end.Add(time.Duration(rapid.Int64Range(-most, most).Draw(rt, "off")))
		}
		y, m, dd := at.In(loc).Date()
		date := time.Date(y, m, dd, 0, 0, 0, 0, time.UTC).Unix() / 86400
		k := d.at(at.UnixNano())
		goesBack := civil(at.Add(2*time.Minute).In(loc)) == k // the date comes again
		if k != date && !(k == date-1 && goesBack) {
			rt.Fatalf("%v is in day %d, want %d", at.In(loc), k, date)
		}
		if b, e := d.begin(k), d.begin(k+1); at.UnixNano() < b || at.UnixNano() >= e {
			rt.Fatalf("%v is in day %d, which lasts from %v to %v", at.In(loc), k, time.Unix(0, b), time.Unix(0, e))
		}
	})
}

func TestNoZone(t *testing.T) {
	for _, zone := range []string{
		"", "Local", "europe/Berlin", "Europe/Berln", "../Berlin", "Europe//Berlin", "/etc/passwd",
		"Europe/../Europe/Berlin", "Europe/Berlin/", "Europe", "A\x00",
	} {
		if d, err := DaysIn(zone); d != nil || err == nil {
			t.Errorf("%q: got %v, %v", zone, d, err)
		}
	}
	one, _ := daysIn(t, "Europe/Berlin")
	other, _ := daysIn(t, "Europe/Berlin")
	is(t, "the days of one name", one, other)
}
