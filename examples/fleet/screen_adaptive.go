package main

import (
	"fmt"
	"strings"
)

// adaptiveHead prints what the adaptive act is about.
func (s *screen) adaptiveHead() {
	p := s.plan
	s.print("\n%s The upstream changes its limit and announces nothing (its answers carry: %s).\n",
		s.bold("A limit that moves."), tellsText(p))
	s.print("%d processes want %g requests a second each and learn it from their own answers (policy %s).\n\n     ",
		p.Replicas, p.Want, p.ctrl)
	s.columnHeads()
}

// outcome prints how fast the fleet followed, and whether that was fast enough.
func (s *screen) outcome(o outcome) {
	s.print("\n  %-40s limit   followed in  overshoot     429s   goodput   fairness\n", "scene")
	for _, u := range o.Scenes {
		fair := fmt.Sprintf("%.3f", u.Fairness)
		if u.Busy {
			fair = "-"
		}
		s.print("  %-40s %3.0f/s   %11s   %5.2f x   %5.1f %%   %5.1f %%   %8s\n",
			u.Title, u.phase.Limit, u.took(), u.Overshoot, 100*u.Rejected, 100*u.Goodput, fair)
	}
	s.print("%s\n", s.dim(strings.Join([]string{
		"  followed: what was sent came within 10 % of the limit and stayed there.",
		"  overshoot: the most in any second, against the limit, from one second on.",
	}, "\n")))
	s.print("\n%s from the upstream's log\n", s.bold("Verdict"))
	s.stall(o.Stall, "All figures suffer.")
	for _, c := range o.Checks {
		s.check(c)
	}
	if o.held() {
		s.print("%s\n\n", s.paint("1;32", "The fleet followed."))
		return
	}
	s.print("%s\n\n", s.paint("1;31", "The fleet did NOT follow as it should."))
}

// check prints one promise and what became of it.
func (s *screen) check(c check) {
	state := s.paint("32", "held  ")
	if !c.Held {
		state = s.paint("1;31", "BROKEN")
	}
	s.print("  %s  %-18s %s (%s)\n", state, c.Of, c.Found, c.Want)
}

// tellsText is how much the upstream says.
func tellsText(p plan) string {
	text, err := p.Tell.MarshalText()
	if err != nil {
		return err.Error()
	}
	return string(text)
}
