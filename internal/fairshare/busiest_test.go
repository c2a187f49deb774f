package fairshare_test

import (
	"strings"
	"testing"

	"github.com/quotient-go/quotient/internal/fairshare"
)

// Keys with one hash have one place; the first letter is the hash.
func TestBusiest(t *testing.T) {
	for notes, want := range map[string]string{
		"":                          "",
		"a1":                        "a1",
		"a1 b1 b1":                  "b1 a1",
		"b1 a1":                     "a1 b1",
		"a1 a2":                     "",
		"a1 a2 a2":                  "a2",
		"a1 a1 a1 a2 a2":            "a1",
		"a1 a2 a3 a3 a2":            "a3",
		"c1 b1 b1 a1 a1 a1 | b1 d1": "a1 b1 b1 c1 d1",
	} {
		var lists []fairshare.Busiest
		for part := range strings.SplitSeq(notes, "|") {
			var b fairshare.Busiest
			for key := range strings.FieldsSeq(part) {
				b.Note(key, uint32(key[0]))
			}
			lists = append(lists, b)
		}
		var got []string
		for _, h := range fairshare.Most(lists...) {
			got = append(got, h.Key)
		}
		if got := strings.Join(got, " "); got != want {
			t.Errorf("%q: got %q, want %q", notes, got, want)
		}
	}
}
