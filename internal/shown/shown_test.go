package shown_test

import (
	"testing"

	"github.com/quotient-go/quotient/internal/shown"
)

func TestLine(t *testing.T) {
	for text, want := range map[string]string{
		"": "", `a "b" \ü`: `a "b" \ü`, "\x1b[2J": `\x1b[2J`, "a\nb\r": `a\nb\r`, "\u202ea\u0085": `\u202ea\u0085`,
		"\xffa": `\xffa`, "\ufffd\x1b": `�\x1b`, "\x7f\x00": `\x7f\x00`,
	} {
		if got := shown.Line(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := shown.Lines("a\x1b\nb\r\n"); got != "a\\x1b\nb\\r\n" {
		t.Errorf("%q", got)
	}
}
