package main

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// The size of the terminal that is drawn, in characters.
const (
	columns = 109
	rows    = 17
)

// block is what the bars of the fleet are made of, in colour.
const block = '█'

// styles are the classes of the picture by the colour codes that the fleet uses.
var styles = map[string]string{
	"0": "", "1": "b", "2": "d", "1;31": "r", "1;32": "g", "31": "r",
	"36": "p1", "33": "p2", "35": "p3", "32": "p4", // replicas, in the order of the columns
}

// A piece is a part of a line that is drawn in one go.
type piece struct {
	Column int
	Text   string // without spaces around it, nor two in it
	Style  string // a class of the picture; empty for none
}

// bar reports whether the piece is a part of a bar. It is then nothing but blocks.
func (p piece) bar() bool { return strings.HasPrefix(p.Text, string(block)) }

// width is how many columns the piece takes.
func (p piece) width() int { return utf8.RuneCountInString(p.Text) }

// pieces cuts a line at its colours, at bars, and at wider gaps. Each piece has a column of its own, so that
// the table stays straight in any font. A line begins in the style in which the one before it ended; pieces
// returns the style in which this one ends.
func pieces(text, style string) ([]piece, string, error) {
	var all []piece
	column := 0
	for len(text) > 0 {
		plain, rest, escaped := strings.Cut(text, "\x1b[")
		cut, width := cutPlain(plain, column, style)
		all = append(all, cut...)
		column += width
		text = rest
		if !escaped {
			break
		}
		code, after, ended := strings.Cut(rest, "m")
		class, known := styles[code]
		if !ended || !known {
			return nil, "", fmt.Errorf("%q: the escape sequence is no colour of the fleet", rest)
		}
		text, style = after, class
	}
	if column > columns {
		return nil, "", fmt.Errorf("a line of %d characters does not fit into %d", column, columns)
	}
	return join(all), style, nil
}

// cutPlain cuts text of one colour that begins at a column, and returns how wide it is.
func cutPlain(text string, column int, style string) (all []piece, width int) {
	open, gap := false, 0
	for _, r := range text {
		at := column + width
		width++
		if r == ' ' {
			gap++
			continue
		}
		if open {
			last := &all[len(all)-1]
			if gap <= 1 && (r == block) == last.bar() && (gap == 0 || r != block) {
				last.Text += strings.Repeat(" ", gap) + string(r)
				gap = 0
				continue
			}
		}
		all = append(all, piece{at, string(r), style})
		open, gap = true, 0
	}
	return all, width
}

// join makes one piece of the blocks of one colour that stand side by side.
func join(all []piece) []piece {
	var joined []piece
	for _, p := range all {
		if n := len(joined); n > 0 && p.bar() {
			last := &joined[n-1]
			if last.bar() && last.Style == p.Style && last.Column+last.width() == p.Column {
				last.Text += p.Text
				continue
			}
		}
		joined = append(joined, p)
	}
	return joined
}

// plain is a line without its colours.
func plain(text string) string {
	var b strings.Builder
	for {
		before, rest, escaped := strings.Cut(text, "\x1b[")
		b.WriteString(before)
		if !escaped {
			return b.String()
		}
		_, text, _ = strings.Cut(rest, "m")
	}
}
