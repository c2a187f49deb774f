package gossip

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/hashicorp/memberlist"
)

func address64(id uint64) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(id)}), 7946)
}

// A later version's additions are skipped, and its unreadable messages count as one replica.
func TestParseMeta(t *testing.T) {
	m := meta{id: 0x0102030405060708, weight: 300, settled: true}
	for _, row := range []struct {
		bytes []byte
		want  meta
		ok    bool
	}{
		{m.encode(), m, true},
		{append(m.encode(), 200, 3, 1, 2, 3, 201, 0), m, true},
		{meta{id: 1, weight: 1}.encode(), meta{id: 1, weight: 1}, true},
		{[]byte{metaVersion}, meta{weight: 1}, true},
		{[]byte{metaVersion + 1, 1, 2, 3}, meta{weight: 1}, true},
		{nil, meta{}, false},
		{m.encode()[:5], meta{}, false},
		{[]byte{metaVersion, tagID}, meta{}, false},
		{[]byte{metaVersion, tagID, 1, 1}, meta{}, false},
		{[]byte{metaVersion, tagWeight, 1, 0}, meta{}, false},
		{[]byte{metaVersion, tagWeight, 2, 0xe9, 7}, meta{}, false}, // 1,001
	} {
		got, err := parseMeta(row.bytes)
		if (err == nil) != row.ok || got != row.want {
			t.Errorf("%v: %+v, %v", row.bytes, got, err)
		}
	}
}

// FuzzMeta checks that no meta panics, and that what is read can be written.
func FuzzMeta(f *testing.F) {
	for _, b := range []string{
		string(meta{id: 7, weight: 2, settled: true}.encode()), "", "\x01\x01\x08\x07",
		"\x01\x01\x08" + strings.Repeat("\x07", 8),
		"\x01\x02\x01\x02\x02\x01\x03", "\x01\xc8\x03\x01\x02\x03", "\x02abc",
		"\x01\x02\x02\xac\x02", "\x01\x02\x01\x00",
		"\x01\x02\x0b" + strings.Repeat("\xff", 9) + "\x01",
	} {
		f.Add([]byte(b))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseMeta(b)
		if err != nil {
			if m != (meta{}) {
				t.Fatalf("refused %+v: %v", m, err)
			}
			return
		}
		again, err := parseMeta(m.encode())
		if err != nil || again != m || m.weight < 1 || m.weight > mostWeight || len(m.encode()) > 40 {
			t.Fatalf("%+v reads back as %+v, %v", m, again, err)
		}
	})
}

func TestBaseName(t *testing.T) {
	for full, want := range map[string]string{
		"a#0123456789abcdef": "a", "a#b#0123456789abcdef": "a#b", "#0123456789abcdef": "", "a": "",
		"a#1": "", "": "",
	} {
		if got, ok := baseName(full); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v", full, got, ok)
		}
	}
	if got, ok := baseName(fullName("x:7946", 7)); got != "x:7946" || !ok {
		t.Errorf("it reads back as %q", got)
	}
}

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
