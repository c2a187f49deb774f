package main

import "testing"

// TestLedger checks that a lock which two hold, and a token that falls, are found.
func TestLedger(t *testing.T) {
	for _, c := range []struct {
		what            string
		most            int
		all             []holding
		tooMany, fallen int
	}{
		{"none", 1, nil, 0, 0},
		{"one after the other", 1, []holding{{token: 1, from: 0, to: 5}, {token: 2, from: 6, to: 9}}, 0, 0},
		{"at one instant", 1, []holding{{token: 1, from: 0, to: 5}, {token: 2, from: 5, to: 9}}, 0, 0},
		{"both at once", 1, []holding{{token: 1, from: 0, to: 6}, {token: 2, from: 5, to: 9}}, 1, 0},
		{"two may", 2, []holding{{token: 1, from: 0, to: 6}, {token: 2, from: 5, to: 9}}, 0, 0},
		{"noticed late", 2, []holding{{token: 1, called: 0, from: 7, to: 9},
			{token: 2, called: 1, from: 3, to: 5}},
			0, 0},
		{"the token of two falls", 2, []holding{{token: 2, called: 0, from: 1, to: 9},
			{token: 1, called: 2, from: 3, to: 5}}, 0, 1},
		{"the token falls", 1, []holding{{token: 2, from: 0, to: 5}, {token: 1, from: 6, to: 9}}, 0, 1},
		{"the same token", 1, []holding{{token: 2, from: 0, to: 5}, {token: 2, from: 6, to: 9}}, 0, 1},
	} {
		l := newLedger(c.most, 0)
		l.all = c.all
		if l.tooMany() != c.tooMany || l.fallen() != c.fallen {
			t.Errorf("%s: %d at once and %d fallen, want %d and %d", c.what, l.tooMany(), l.fallen(),
				c.tooMany, c.fallen)
		}
	}
}
