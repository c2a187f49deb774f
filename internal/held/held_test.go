package held

import (
	"context"
	"sync"
	"testing"
)

func TestShare(t *testing.T) {
	var room Room
	room.SetMost(100)
	a, b := &Share{Room: &room, Free: 10}, &Share{Room: &room, Free: 10}
	for i, row := range []struct {
		in   *Share
		take int64
		want bool
		held int64
	}{
		{a, 10, true, 0}, // free
		{a, 50, true, 50},
		{a, 1, false, 50},  // more than it would leave free
		{b, 10, true, 50},  // its own, whatever there is
		{b, 26, false, 50}, // as for a
		{b, 25, true, 75},
		{a, -20, true, 55},
		{a, 1, true, 56},
		{nil, 1 << 40, true, 56},
		{a, -41, true, 25},
		{b, -35, true, 0},
	} {
		if got := row.in.Take(row.take); got != row.want {
			t.Errorf("%d: Take(%d) = %v", i, row.take, got)
		}
		if held, _ := room.State(); held != row.held {
			t.Errorf("%d: %d bytes are held, want %d", i, held, row.held)
		}
	}
	if _, refused := room.State(); refused != 2 {
		t.Errorf("%d times there was no room, want 2", refused)
	}
	a.Take(50)
	a.End()
	a.Give(50)
	if held, _ := room.State(); held != 0 || a.Take(1) {
		t.Errorf("%d bytes are held after the end", held)
	}
	ctx := With(context.Background(), a)
	if From(ctx) != a || From(context.Background()) != nil {
		t.Error("From() is not what With() was given")
	}
}

// TestManyShares checks that what many hold at the same time is given back to the byte.
func TestManyShares(t *testing.T) {
	var room Room
	room.SetMost(1000)
	var all sync.WaitGroup
	for range 8 {
		s := &Share{Room: &room, Free: 7}
		all.Go(func() {
			for n := range int64(2000) {
				if s.Take(n % 300) {
					s.Give(n % 300)
				}
				s.Give(0)
			}
		})
	}
	all.Wait()
	if held, _ := room.State(); held != 0 {
		t.Errorf("%d bytes are held in the end", held)
	}
}
