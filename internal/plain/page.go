package main

import (
	"regexp"
	"strings"
)

var (
	htmlSkip   = regexp.MustCompile(`(?is)<(script|style)\b.*?</(?:script|style)>|<!--.*?-->`)
	htmlTag    = regexp.MustCompile(`(?s)<(/?)([a-zA-Z][a-zA-Z0-9-]*)([^<>]*)>`)
	htmlText   = regexp.MustCompile(`(?:title|aria-label|placeholder|alt)="([^"]*)"`)
	htmlInline = regexp.MustCompile(`^(?:a|abbr|b|code|em|i|kbd|small|span|strong)$`)
	jsComment  = regexp.MustCompile(`^\s*//\s?(.*)$`)
	jsValue    = regexp.MustCompile(`\$\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}`)
	jsonText   = regexp.MustCompile(`"(?:description|summary|title|help|text)":\s*("(?:[^"\\]|\\.)*")`)
)

// readHTML returns the texts of an HTML page, and those of its attributes that are read out or shown.
func readHTML(src []byte) page {
	var p page
	text := htmlSkip.ReplaceAllStringFunc(string(src), func(s string) string {
		return strings.Repeat("\n", strings.Count(s, "\n"))
	})
	var open []line
	number, last := 1, 0
	add := func(s string) {
		for i, part := range strings.Split(s, "\n") {
			if n := len(open); i == 0 && n > 0 {
				open[n-1].text += part
				continue
			}
			open = append(open, line{number + i, part})
		}
		number += strings.Count(s, "\n")
	}
	flush := func() { p.sentence(open); open = nil }
	for _, m := range htmlTag.FindAllStringSubmatchIndex(text, -1) {
		add(text[last:m[0]])
		if !htmlInline.MatchString(text[m[4]:m[5]]) {
			flush()
		}
		for _, a := range htmlText.FindAllStringSubmatch(text[m[6]:m[7]], -1) {
			p.sentence([]line{{number, a[1]}})
		}
		number += strings.Count(text[m[0]:m[1]], "\n")
		last = m[1]
	}
	add(text[last:])
	flush()
	return p
}

// sentence adds lines as a block, if a text of several words stands on them.
func (p *page) sentence(lines []line) {
	for _, l := range lines {
		if strings.Contains(strings.TrimSpace(l.text), " ") {
			p.blocks = append(p.blocks, block{group: noGroup - 2, lines: lines})
			return
		}
	}
}

// readJSON returns the texts of a JSON file that are for people: descriptions, summaries and titles. They need
// not be sentences.
func readJSON(src []byte) page {
	var p page
	for i, text := range strings.Split(string(src), "\n") {
		for _, m := range jsonText.FindAllStringSubmatch(text, -1) {
			text := strings.NewReplacer(`\"`, `"`, `\n`, " ").Replace(m[1][1 : len(m[1])-1])
			p.blocks = append(p.blocks, block{lines: []line{{i + 1, text}}, cell: true})
		}
	}
	return p
}

// readJS returns the comments and the strings of a script. A value within a string stands as one word. An
// indented line of a comment is code.
func readJS(src []byte) page {
	var p page
	var open []line
	flush := func() { p.sentence(open); open = nil }
	for i, text := range strings.Split(string(src), "\n") {
		if m := jsComment.FindStringSubmatch(text); m != nil && !strings.HasPrefix(m[1], "  ") {
			open = append(open, line{i + 1, m[1]})
			continue
		}
		flush()
	}
	flush()
	s := script{src: string(src), line: 1}
	for s.next() {
		if isProse(s.text) || strings.HasSuffix(s.text, ".") {
			p.sentence([]line{{s.at, s.text}})
		}
	}
	return p
}

// script finds the strings of a script.
type script struct {
	src  string
	line int
	text string // of the string that was found, and its line
	at   int
	last byte // the last byte that was no space: a regular expression may follow it, or a division
}

// next finds the next string, and reports whether there is one.
func (s *script) next() bool {
	for s.src != "" {
		c := s.src[0]
		switch {
		case strings.HasPrefix(s.src, "//"):
			s.skip(max(1, strings.IndexByte(s.src+"\n", '\n')))
			continue
		case strings.HasPrefix(s.src, "/*"):
			s.skip(max(2, strings.Index(s.src, "*/")+2))
			continue
		case c == '/' && strings.IndexByte("(,=:[!&|?{};", s.last) >= 0:
			s.skip(s.end('/'))
			s.last = '/'
			continue
		case c == '"' || c == '\'' || c == '`':
			n := s.end(c)
			s.text, s.at, s.last = jsValue.ReplaceAllString(s.src[1:max(1, n-1)], "x"), s.line, c
			s.skip(n)
			return true
		case c > ' ':
			s.last = c
		}
		s.skip(1)
	}
	return false
}

// skip goes on by n bytes.
func (s *script) skip(n int) {
	n = min(n, len(s.src))
	s.line += strings.Count(s.src[:n], "\n")
	s.src = s.src[n:]
}

// end returns the length of a literal that begins here and ends with the mark. A value in a template may hold
// templates of its own.
func (s *script) end(mark byte) int {
	deep, class := 0, false
	for i := 1; i < len(s.src); i++ {
		switch c := s.src[i]; {
		case c == '\\':
			i++
		case mark == '`' && strings.HasPrefix(s.src[i:], "${"):
			deep++
			i++
		case deep > 0 && c == '{':
			deep++
		case deep > 0 && c == '}':
			deep--
		case mark == '/' && (c == '[' || c == ']'):
			class = c == '['
		case c == mark && deep == 0 && !class:
			return i + 1
		case c == '\n' && mark != '`':
			return i
		}
	}
	return len(s.src)
}
