package gossip

import (
	"net/netip"
	"testing"
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
	f.Add(meta{id: 7, weight: 2, settled: true}.encode())
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
