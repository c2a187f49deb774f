package policy

import (
	"testing"
	"time"
)

// A clock that goes back ends a trial, or cuts would stay futile for as long as it went.
func TestClockThatGoesBackEndsATrial(t *testing.T) {
	s := at(10, 0, false)
	s.now = time.Hour
	s.trial = trial{rate: 10, part: .5, until: time.Hour + time.Minute, futile: true}
	s.Next(Sample{Now: time.Minute, Sent: time.Minute}, Bounds{})
	if s.trial != (trial{}) {
		t.Errorf("the trial goes on: %+v", s.trial)
	}
}
