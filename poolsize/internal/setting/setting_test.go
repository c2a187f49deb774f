package setting

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestErrorsNameFieldAndValue(t *testing.T) {
	id, err := ID("s: ID", "")
	if _, same := ID("s: ID", "me"); err != nil || id == "" || same != nil {
		t.Errorf("%q, %v, %v", id, err, same)
	}
	for _, row := range []struct {
		err  error
		says string
	}{
		{Between("s: Weight", 2, 1, 2), "<nil>"},
		{Between("s: Weight", 3, 1, 2), "s: Weight: 3 is not between 1 and 2"},
		{Default("s: Every", 0, time.Second, time.Minute), "<nil>"},
		{Default("s: Every", -1, time.Second, time.Minute), "s: Every: -1ns is not between 1s and 1m0s"},
		{Name("s: Fleet", "web", LongestName, "/", "a slash"), "<nil>"},
		{Name("s: Fleet", "", LongestName, "", ""), `s: Fleet: "" has 0 bytes, not 1 to 200`},
		{Name("s: Fleet", strings.Repeat("x", 50), 49, "", ""), "xxx\" has 50 bytes, not 1 to 49"},
		{Name("s: Fleet", "a/b", LongestName, "/", "a slash"), `s: Fleet: "a/b" has a slash`},
	} {
		if got := fmt.Sprint(row.err); !strings.Contains(got, row.says) {
			t.Errorf("got %s, want %s", got, row.says)
		}
	}
	for range 1000 {
		if d := Jittered(time.Second); d < 900*time.Millisecond || d > 1100*time.Millisecond {
			t.Fatalf("jittered: %v", d)
		}
	}
}
