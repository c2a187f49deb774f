package main

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxWords is the most words that a sentence may have.
const maxWords = 30

// noGroup is the group of an excuse in a page: it excuses the line below it and no other.
const noGroup = -1

// hit is one place that breaks a rule.
type hit struct {
	file  string
	line  int
	group int
	rule  string // as it is counted
	text  string // what was found, and what is better
}

// The rules beside the list of words.
const (
	ruleLong    = "long sentence"
	ruleWho     = "who"
	ruleColumns = "long line"
	ruleExcuse  = "plain:ok"
)

// check returns the hits of one file, by line, and how many lines of it are excused.
func check(file string, src []byte, columns int) ([]hit, int, error) {
	var p page
	var err error
	mark, ext := commentMark(file), filepath.Ext(file)
	switch {
	case mark != "":
		p = readComments(src, mark)
	case ext == ".md":
		p = readMarkdown(src)
	case ext == ".html":
		p = readHTML(src)
	case ext == ".js":
		p = readJS(src)
	case ext == ".json":
		p = readJSON(src)
	default:
		if p, err = readGo(file, src); err != nil {
			return nil, 0, err
		}
	}
	var hits []hit
	for _, b := range p.blocks {
		hits = append(hits, b.check()...)
	}
	if columns > 0 {
		hits = append(hits, p.tooWide(columns)...)
	}
	hits = p.excuse(hits)
	for i := range hits {
		hits[i].file = file
	}
	slices.SortStableFunc(hits, func(a, b hit) int { return cmp.Compare(a.line, b.line) })
	return hits, len(p.excuses), nil
}

// check returns the hits of one block.
func (b block) check() []hit {
	var hits []hit
	p := newProse(b)
	for _, s := range p.sentences() {
		text := p.text[s.from:s.to]
		add := func(at int, rule, found string) {
			hits = append(hits, hit{line: p.lines[s.from+at], group: b.group, rule: rule, text: found})
		}
		if !b.cell {
			if n := words(text); n > maxWords {
				add(0, ruleLong, fmt.Sprintf("%d words in one sentence, at most %d: %s", n, maxWords, start(text)))
			}
			for _, at := range bareWho(text) {
				add(at, ruleWho, fmt.Sprintf("%q: name the subject: a caller that, those who", around(text, at)))
			}
		}
		for _, t := range turns {
			if t.opens && b.cell {
				continue
			}
			for _, at := range t.find(text) {
				add(at[0], t.name, fmt.Sprintf("%q: better %s", start(text[at[0]:at[1]]), t.better))
			}
		}
	}
	return hits
}

// start returns the first words of a text.
func start(text string) string {
	fields := strings.Fields(text)
	if len(fields) <= 6 {
		return text
	}
	return strings.Join(fields[:6], " ") + " ..."
}

// around returns the word at a place with the words beside it.
func around(text string, at int) string {
	before, after := strings.Fields(text[:at]), strings.Fields(text[at:])
	before = before[max(0, len(before)-2):]
	after = after[:min(2, len(after))]
	return strings.Join(append(before, after...), " ")
}

// tooWide returns the lines with a comment that go past a column. A directive is not counted: it cannot be
// broken.
func (p *page) tooWide(columns int) []hit {
	var hits []hit
	for _, l := range p.lines {
		if n := utf8.RuneCountInString(l.text); n > columns {
			text := fmt.Sprintf("%d columns, at most %d", n, columns)
			hits = append(hits, hit{line: l.number, group: noGroup - 1, rule: ruleColumns, text: text})
		}
	}
	return hits
}

// excuse takes out the hits of the lines that are excused. A directive without a reason is a hit itself, and
// so is one that excuses nothing.
func (p *page) excuse(hits []hit) []hit {
	for _, e := range p.excuses {
		if e.reason == "" {
			hits = append(hits, hit{line: e.line, group: e.group, rule: ruleExcuse, text: "it takes a reason"})
			continue
		}
		number := e.target(hits)
		if number == 0 {
			hits = append(hits, hit{line: e.line, group: e.group, rule: ruleExcuse, text: "it excuses nothing"})
			continue
		}
		hits = slices.DeleteFunc(hits, func(h hit) bool { return h.line == number && h.rule != ruleExcuse })
	}
	return hits
}

// target returns the line that is excused: the one below the directive, or, where that has no hit, the last
// one with a hit above it in its comment. It returns 0 when there is none.
func (e excuse) target(hits []hit) int {
	above, below := 0, 0
	for _, h := range hits {
		switch {
		case h.rule == ruleExcuse:
		case h.line == e.line+1:
			below = h.line
		case h.group == e.group && h.line < e.line:
			above = max(above, h.line)
		}
	}
	if below != 0 {
		return below
	}
	return above
}
