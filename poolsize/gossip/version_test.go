package gossip

import (
	"testing"

	"github.com/hashicorp/memberlist"
)

// saying is a replica whose meta is of another version.
type saying struct {
	*delegate
	meta []byte
}

func (s saying) NodeMeta(int) []byte { return s.meta }

// join lets a replica with that meta into a fleet, until leave is called.
func (s saying) join(t *testing.T, name, at string) (leave func()) {
	t.Helper()
	x := &session{src: source(t, config(name)), roster: newRoster(1, defaultForget), aliases: aliases{}}
	s.delegate = &delegate{roster: x.roster, receive: func([]byte) {}, changed: make(chan struct{}, 1)}
	x.delegate = s.delegate
	var err error
	x.transport, err = listen(x.src.c, &traffic{})
	must(t, err)
	c := x.config()
	c.Delegate = s
	list, err := memberlist.Create(c)
	must(t, err)
	_, err = list.Join([]string{at})
	must(t, err)
	return func() {
		if s.meta != nil { // else it does not even know itself
			list.Leave(patience) //nolint:errcheck // the others would notice
		}
		list.Shutdown() //nolint:errcheck // the transport returns none
	}
}

// Two versions stand side by side. The additions of a later version are skipped. A replica whose meta cannot
// be read is one of the fleet, and the sums are not complete without it. A member that sends nothing is no
// replica.
func TestVersions(t *testing.T) {
	a := start(t, config("a"))
	a.wants(t, 1, 1)
	a.until(t, "the sums are complete", func() bool { return a.Stats().Age < never })
	later := saying{meta: append(meta{id: 7, weight: 1}.encode(), 99, 2, 1, 1)}.join(t, "b", a.address(t))
	a.wants(t, 2, 1)
	a.until(t, "the sums are complete", func() bool { return a.Stats().Age < never })
	later()
	mute := saying{}.join(t, "c", a.address(t))
	other := saying{meta: []byte{metaVersion + 1, 1, 2, 3}}.join(t, "d", a.address(t))
	a.wants(t, 2, 1)
	if age := a.Stats().Age; age != never {
		t.Errorf("without a member's numbers the sums are %v old", age)
	}
	if a.most(0) > 2 {
		t.Errorf("it has counted %d", a.most(0))
	}
	mute()
	other()
}
