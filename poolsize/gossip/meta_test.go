package gossip

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/hashicorp/memberlist"
	"github.com/quotient-go/quotient/poolsize/internal/watched"
)

func address64(id uint64) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(id)}), 7946)
}

var whole = meta{id: 0x0102030405060708, weight: 300, settled: true}

// metas are what members send, and what it is read as; the zero value is an error.
var metas = []struct {
	bytes []byte
	want  meta
}{
	{whole.encode(), whole},
	{append(whole.encode(), 200, 3, 1, 2, 3, 201, 0), whole},
	{meta{id: 1, weight: 1}.encode(), meta{id: 1, weight: 1}},
	{[]byte{metaVersion}, meta{weight: 1}},
	{[]byte{metaVersion + 1, 1, 2, 3}, meta{weight: 1}},
	{nil, meta{}},
	{whole.encode()[:5], meta{}},
	{[]byte{metaVersion, tagID}, meta{}},
	{[]byte{metaVersion, tagID, 1, 1}, meta{}},
	{[]byte{metaVersion, tagWeight, 1, 0}, meta{}},
	{[]byte{metaVersion, tagWeight, 2, 0xe9, 7}, meta{}}, // 1,001
}

// A later version's additions are skipped, and its unreadable messages count as one replica.
func TestParseMeta(t *testing.T) {
	for _, row := range metas {
		got, err := parseMeta(row.bytes)
		if (err == nil) != (row.want != meta{}) || got != row.want {
			t.Errorf("%v: %+v, %v", row.bytes, got, err)
		}
	}
}

// FuzzMeta checks that no meta panics, and that what is read can be written.
func FuzzMeta(f *testing.F) {
	for _, row := range metas {
		f.Add(row.bytes)
	}
	f.Add([]byte("\x01\x02\x01\x02\x02\x01\x03"))                      // a weight twice
	f.Add([]byte("\x01\x02\x0b" + strings.Repeat("\xff", 9) + "\x01")) // a number of too many bytes
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
			list.Leave(watched.Patience) //nolint:errcheck // the others would notice
		}
		list.Shutdown() //nolint:errcheck // the transport returns none
	}
}

// Two versions stand side by side. The additions of a later version are skipped. A replica whose meta cannot
// be read is one of the fleet, and the sums are not complete without it. A member that sends nothing is no
// replica.
func TestVersions(t *testing.T) {
	t.Parallel()
	a := start(t, config("a"))
	a.Wants(1, 1)
	a.complete(1)
	later := saying{meta: append(meta{id: 7, weight: 1}.encode(), 99, 2, 1, 1)}.join(t, "b", a.address())
	a.Wants(2, 1)
	a.complete(2)
	later()
	mute := saying{}.join(t, "c", a.address())
	other := saying{meta: []byte{metaVersion + 1, 1, 2, 3}}.join(t, "d", a.address())
	a.Wants(2, 1)
	if age := a.Stats().Age; age != never {
		t.Errorf("without a member's numbers the sums are %v old", age)
	}
	if _, most := a.Range(0); most > 2 {
		t.Errorf("it has counted %d", most)
	}
	mute()
	other()
}
