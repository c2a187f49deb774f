// Package shown makes texts of others fit to be printed: a text from a file or from a server must not speak to the
// terminal, nor pass for lines of its own.
package shown

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Line returns a text in which what is not printable is escaped as Go escapes it: "\n", "\x1b", "\u202e", and "\xff"
// for a byte that is no UTF-8. Backslashes and quotation marks stay as they are.
func Line(text string) string {
	if !strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) || r == utf8.RuneError }) {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, n := utf8.DecodeRuneInString(text)
		if strconv.IsPrint(r) && r != utf8.RuneError {
			b.WriteString(text[:n])
		} else {
			quoted := strconv.Quote(text[:n])
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		text = text[n:]
	}
	return b.String()
}

// Lines is Line for each line of a text, which are kept apart.
func Lines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = Line(line)
	}
	return strings.Join(lines, "\n")
}
