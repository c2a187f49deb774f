package main

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// A pace is how fast an act of the fleet is replayed, and how long its last lines stay.
type pace struct {
	Times int // as fast as it was
	Pause time.Duration
}

// paces are those of the acts, in their order. The first is the story: it is replayed as it was.
var paces = []pace{{Times: 1, Pause: 3 * time.Second}, {Times: 4, Pause: 4 * time.Second}}

// together is how close lines have to follow each other to be shown at once.
const together = 20 * time.Millisecond

// A frame is an instant of the replay, and what is seen from then on.
type frame struct {
	At      time.Duration // from the start of the replay
	Lines   int           // how many were printed
	Seconds int           // how many lines of the table are among them
	Act     int           // the act that is replayed
}

// A film is a recording as it is replayed.
type film struct {
	Lines  []line // without blank lines at either end
	Acts   []act
	Frames []frame
	Length time.Duration
}

// newFilm cuts a recording into acts and frames.
func newFilm(rec *recording) (*film, error) {
	f := &film{Lines: rec.Lines}
	for len(f.Lines) > 0 && plain(f.Lines[0].Text) == "" {
		f.Lines = f.Lines[1:]
	}
	for n := len(f.Lines); n > 0 && plain(f.Lines[n-1].Text) == ""; n-- {
		f.Lines = f.Lines[:n-1]
	}
	var err error
	if f.Acts, err = readActs(f.Lines); err != nil {
		return nil, err
	}
	if len(f.Acts) == 0 || len(f.Acts) > len(paces) {
		return nil, fmt.Errorf("%d acts; the replay is made for 1 to %d", len(f.Acts), len(paces))
	}
	return f, f.cut()
}

// cut makes the frames: each act at its own pace, one after the other.
func (f *film) cut() error {
	seconds := 0
	for n, a := range f.Acts {
		start, first := f.Length, f.Lines[a.From].At
		for i := a.From; i < a.To; i++ {
			if a.isSecond(i) {
				seconds++
			}
			at := start + (f.Lines[i].At-first)/time.Duration(paces[n].Times)
			if i > a.From && f.Lines[i].At-f.Lines[i-1].At <= together {
				last := &f.Frames[len(f.Frames)-1]
				last.Lines, last.Seconds = i+1, seconds
				continue
			}
			f.Frames = append(f.Frames, frame{At: at, Lines: i + 1, Seconds: seconds, Act: n})
		}
		f.Length = start + (f.Lines[a.To-1].At-first)/time.Duration(paces[n].Times) + paces[n].Pause
	}
	if f.Length <= 0 || f.Length > time.Minute {
		return fmt.Errorf("the replay takes %v, which is not between 0 and a minute", f.Length)
	}
	return nil
}

// percent is an instant as a part of the whole replay.
func (f *film) percent(at time.Duration) string {
	text := fmt.Sprintf("%.3f", 100*at.Seconds()/f.Length.Seconds())
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".") + "%"
}

// errNoTable is returned for output without a table of the fleet.
var errNoTable = errors.New("no line of the fleet's table was found")
