package main

import (
	"regexp"
	"strings"
)

var (
	mdHeading   = regexp.MustCompile(`^#{1,6}\s+`)
	mdRule      = regexp.MustCompile(`^(-{3,}|={3,}|\*{3,})$`)
	mdReference = regexp.MustCompile(`^\[[^\]]+\]:\s`)
)

// mdPage collects the blocks of a page.
type mdPage struct {
	page
	open  []line
	fence string // what ends the code that is being skipped; "" outside of it
	list  bool   // the last block was an item of a list: what is indented goes on with it
	empty bool   // the last line was empty
}

// readMarkdown returns the prose of a page.
func readMarkdown(src []byte) page {
	p := mdPage{empty: true}
	for i, text := range strings.Split(string(src), "\n") {
		p.add(line{i + 1, strings.TrimSuffix(text, "\r")})
	}
	p.flush()
	return p.page
}

// flush ends the block.
func (p *mdPage) flush() {
	if len(p.open) > 0 {
		p.blocks = append(p.blocks, block{lines: p.open})
		p.open = nil
	}
}

// add reads one line of the page.
func (p *mdPage) add(l line) {
	trimmed := strings.TrimSpace(l.text)
	if p.inFence(trimmed) {
		return
	}
	wasEmpty := p.empty
	p.empty = trimmed == ""
	indented := strings.HasPrefix(l.text, "    ") || strings.HasPrefix(l.text, "\t")
	mark := listMark.FindString(l.text)
	switch {
	case p.empty:
		p.flush()
	case strings.HasPrefix(trimmed, "<!--"):
		p.flush()
		if m := okDirective.FindStringSubmatch(trimmed); m != nil {
			p.excuses = append(p.excuses, excuse{noGroup, l.number, strings.TrimSpace(m[1])})
		}
	case strings.HasPrefix(trimmed, "|"):
		p.flush()
		p.blocks = append(p.blocks, cells(0, l.number, trimmed)...)
	case mdRule.MatchString(trimmed), mdReference.MatchString(trimmed):
		p.flush()
	case mdHeading.MatchString(trimmed):
		p.flush()
		p.open = []line{{l.number, mdHeading.ReplaceAllString(trimmed, "")}}
		p.flush()
		p.list = false
	case indented && wasEmpty && !p.list && mark == "": // code
		p.empty = true
	default:
		p.text(l, mark, wasEmpty)
	}
}

// text adds a line of prose.
func (p *mdPage) text(l line, mark string, wasEmpty bool) {
	switch {
	case mark != "":
		p.flush()
		p.list = true
	case wasEmpty && !strings.HasPrefix(l.text, " ") && !strings.HasPrefix(l.text, "\t"):
		p.list = false
	}
	p.open = append(p.open, line{l.number, strings.TrimLeft(l.text[len(mark):], "> ")})
}

// inFence reports whether the line is part of a block of code, or begins or ends one.
func (p *mdPage) inFence(trimmed string) bool {
	switch {
	case p.fence != "":
		if strings.HasPrefix(trimmed, p.fence) {
			p.fence = ""
		}
		return true
	case strings.HasPrefix(trimmed, "```"), strings.HasPrefix(trimmed, "~~~"):
		p.flush()
		p.fence, p.empty = trimmed[:3], false
		return true
	}
	return false
}

var cellMark = regexp.MustCompile("`[^`]*`|\\\\\\||\\|")

// cells returns the cells of one row of a table. A bar in code, or behind a backslash, ends none.
func cells(group, number int, row string) []block {
	var blocks []block
	from := 0
	add := func(to int) {
		if text := strings.TrimSpace(row[from:to]); strings.Trim(text, "-: ") != "" {
			blocks = append(blocks, block{group: group, lines: []line{{number, text}}, cell: true})
		}
	}
	for _, at := range cellMark.FindAllStringIndex(row, -1) {
		if row[at[0]:at[1]] == "|" {
			add(at[0])
			from = at[1]
		}
	}
	add(len(row))
	return blocks
}
