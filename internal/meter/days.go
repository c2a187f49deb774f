package meter

import (
	"fmt"
	"path"
	"regexp"
	"sync"
	"time"
)

const day = 24 * time.Hour

// Days are the days of a time zone, by numbers from 0, which is that of 1 January 1970. Nearly all last 24 hours. A
// request asks for the present one, so all changes of the zone are looked up once.
type Days struct {
	spans []span
}

// span is a row of days that follow each other after 24 hours. The last one ends where the next span begins.
type span struct {
	begin int64 // of the first one, in ns since the Unix epoch
	first int64 // its number
}

// lastYear is the first whose days have the offset of the year before for ever.
const lastYear = 2200

var (
	zones    sync.Map // of *Days by the names of zones, of which there are some hundred
	zoneName = regexp.MustCompile(`^[A-Z][A-Za-z0-9_+/-]*$`)
)

// DaysIn are the days of a zone of the IANA database, as time.LoadLocation finds it; one pointer for each name. Local
// is none, because it is another one on another machine.
func DaysIn(zone string) (*Days, error) {
	if d, ok := zones.Load(zone); ok {
		return d.(*Days), nil
	}
	none := fmt.Errorf("%.64q is no time zone that is known here, such as Europe/Berlin", zone)
	if !zoneName.MatchString(zone) || path.Clean(zone) != zone || zone == "Local" {
		return nil, none
	}
	loc, err := time.LoadLocation(zone)
	if err != nil {
		return nil, none
	}
	d, _ := zones.LoadOrStore(zone, daysOf(loc))
	return d.(*Days), nil
}

// daysOf lists what changes of the clock leave of the days: the one in which a change falls begins by the old offset,
// and the next one by the new one. So where clocks go back over midnight, the day begins with the second one.
func daysOf(loc *time.Location) *Days {
	t := time.Unix(0, 0).In(loc)
	d := &Days{spans: []span{{-offset(t), 0}}}
	for {
		_, end := t.ZoneBounds()
		if end.IsZero() || end.Year() >= lastYear {
			return d
		}
		if !end.After(t) { // as on the last day of leap years that are far ahead
			end = t.Add(day)
		}
		last := end.Add(-1)
		if t = end; offset(last) == offset(t) {
			continue
		}
		after := civil(t)
		if after > civil(last) { // midnight is the change, or was skipped by it
			d.spans = append(d.spans, span{t.UnixNano(), after})
		}
		d.spans = append(d.spans, span{(after+1)*int64(day) - offset(t), after + 1})
	}
}

// offset is how far the clocks of a zone are ahead of UTC, in ns.
func offset(t time.Time) int64 {
	_, seconds := t.Zone()
	return int64(seconds) * int64(time.Second)
}

// civil is the number of the day by the clocks of the zone.
func civil(t time.Time) int64 { return floorDiv(t.UnixNano()+offset(t), int64(day)) }

// at is the number of the day at an instant.
func (d *Days) at(wall int64) int64 {
	i := d.last(func(s *span) bool { return s.begin <= wall })
	k := d.spans[i].first + floorDiv(wall-d.spans[i].begin, int64(day))
	if i+1 < len(d.spans) {
		k = min(k, d.spans[i+1].first-1)
	}
	return k
}

// begin is when a day begins.
func (d *Days) begin(k int64) int64 {
	s := &d.spans[d.last(func(s *span) bool { return s.first <= k })]
	return s.begin + (k-s.first)*int64(day)
}

// last is the last span that is not too late, else the first one.
func (d *Days) last(in func(*span) bool) int {
	low, high := 0, len(d.spans)
	for low+1 < high {
		if i := (low + high) / 2; in(&d.spans[i]) {
			low = i
		} else {
			high = i
		}
	}
	return low
}
