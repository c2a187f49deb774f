package heap

import (
	"fmt"
	"testing"
	"time"
)

// Keys that come and go take no room for longer than a neighbour needs that is gone, or was never there.
func TestKeysThatComeAndGo(t *testing.T) {
	for _, meets := range []bool{false, true} {
		members := []Member{{"a", 1}, {"b", 2}}
		a, err := New(members[0], Options{MaxKeys: 100, Expire: time.Hour})
		must(t, err)
		b, err := New(members[1], Options{MaxKeys: 100, Expire: time.Hour})
		must(t, err)
		a.SetMembers(0, members)
		b.SetMembers(0, members)
		now := time.Duration(0)
		for ; meets && now < 5*time.Second; now += time.Second {
			exchange(t, now, a, b)
		}
		turn := func(text string) {
			now += time.Second
			a.Say(text, Terms{1})
			a.Tick(now, func(Member, []byte) {})
			a.Say(text, Terms{})
			a.Tick(now, func(Member, []byte) {})
		}
		for i := range 50 {
			turn(fmt.Sprint("before", i))
		}
		if n := a.Stats(now).Keys; !meets && n > 1 {
			t.Errorf("%d keys wait for a neighbour that was never there", n)
		}
		a.SetMembers(now, members[:1])
		turn("after")
		if n := a.Stats(now).Keys; n > 1 {
			t.Errorf("meets %v: %d keys are left", meets, n)
		}
	}
}
