package main

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// block is a paragraph, a heading or an item of a list, and the lines that it stands on.
type block struct {
	group int // the comment that it belongs to; each page has one
	lines []line
	cell  bool // of a table: it need not be a sentence
}

// line is one line of a file, without the marks around its text.
type line struct {
	number int
	text   string
}

// prose is the text of a block in one piece. It knows for each byte the line that it comes from.
type prose struct {
	text  string
	lines []int
}

// newProse joins the lines of a block, with one space between words, and takes out what is not prose.
func newProse(b block) prose {
	var text strings.Builder
	var lines []int
	for _, l := range b.lines {
		for _, word := range strings.Fields(l.text) {
			if text.Len() > 0 {
				word = " " + word
			}
			text.WriteString(word)
			for range len(word) {
				lines = append(lines, l.number)
			}
		}
	}
	p := prose{text.String(), lines}
	p = p.replace(codeSpan, mask)
	p = p.replace(image, func(string) string { return "" })
	p = p.replace(link, func(s string) string { return link.FindStringSubmatch(s)[1] })
	p = p.replace(tag, func(string) string { return "" })
	p = p.replace(emphasis, func(string) string { return "" })
	return p.replace(quoted, hide)
}

var (
	codeSpan = regexp.MustCompile("`[^`]+`")
	image    = regexp.MustCompile(`!\[[^\]]*\]\([^)]*\)`)
	link     = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	tag      = regexp.MustCompile(`</?[a-z][^<>]*>`)
	emphasis = regexp.MustCompile(`\*+`)
	quoted   = regexp.MustCompile(`"[^"]*"`)
	letter   = regexp.MustCompile(`[\pL.!?]`)
	inner    = regexp.MustCompile(`[^\x60]`)
)

// mask makes one word of a span of code.
func mask(span string) string { return inner.ReplaceAllString(span, "x") }

// hide keeps the words of a quotation and makes them unreadable: what is quoted is not ours.
func hide(quotation string) string { return letter.ReplaceAllString(quotation, "x") }

// replace replaces each match. A replacement belongs to the line that its match starts on, or, where it is as
// long as the match, to the same lines.
func (p prose) replace(re *regexp.Regexp, with func(string) string) prose {
	var text strings.Builder
	var lines []int
	last := 0
	for _, m := range re.FindAllStringIndex(p.text, -1) {
		text.WriteString(p.text[last:m[0]])
		lines = append(lines, p.lines[last:m[0]]...)
		new := with(p.text[m[0]:m[1]])
		text.WriteString(new)
		for i := range len(new) {
			lines = append(lines, p.lines[m[0]+min(i, m[1]-m[0]-1)])
		}
		last = m[1]
	}
	text.WriteString(p.text[last:])
	return prose{text.String(), append(lines, p.lines[last:]...)}
}

// span is the part of a text from one byte up to another.
type span struct{ from, to int }

// sentences splits the text at full stops, question marks and exclamation marks.
func (p prose) sentences() []span {
	var spans []span
	from := 0
	for i := 0; i < len(p.text); i++ {
		if end := p.ends(from, i); end > 0 {
			spans = append(spans, span{from, end})
			for end < len(p.text) && p.text[end] == ' ' {
				end++
			}
			from, i = end, end-1
		}
	}
	if strings.TrimSpace(p.text[from:]) != "" {
		spans = append(spans, span{from, len(p.text)})
	}
	return spans
}

// ends returns where the sentence ends whose last mark is at i, or 0 when no sentence ends there.
func (p prose) ends(from, i int) int {
	if !strings.ContainsRune(".!?", rune(p.text[i])) {
		return 0
	}
	end := i + 1
	for end < len(p.text) {
		r, size := utf8.DecodeRuneInString(p.text[end:])
		if !strings.ContainsRune(`)"'”’]`, r) {
			break
		}
		end += size
	}
	if end < len(p.text) && p.text[end] != ' ' {
		return 0 // a file name, a number, an import path
	}
	word := p.text[from : i+1]
	word = strings.TrimLeft(word[strings.LastIndexByte(word, ' ')+1:], `("'[`)
	if abbreviations[strings.ToLower(word)] {
		return 0
	}
	next, _ := utf8.DecodeRuneInString(strings.TrimLeft(p.text[end:], " "))
	if strings.HasSuffix(word, "..") && unicode.IsLower(next) {
		return 0
	}
	return end
}

// abbreviations end with a full stop, and no sentence ends after them.
var abbreviations = map[string]bool{
	"e.g.": true, "i.e.": true, "cf.": true, "vs.": true, "resp.": true, "approx.": true,
}

// words counts the words of a sentence. A field without a letter or digit, such as a dash, does not count.
func words(sentence string) int {
	n := 0
	for _, field := range strings.Fields(sentence) {
		if strings.ContainsFunc(field, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) {
			n++
		}
	}
	return n
}
