package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strings"
)

// page is what a file has to read, and the directives that excuse lines of it.
type page struct {
	blocks  []block
	excuses []excuse
	lines   []line // whole lines, as they are in the file, that hold a comment
}

// excuse is one directive plain:ok.
type excuse struct {
	group, line int
	reason      string
}

var (
	goDirective = regexp.MustCompile(`^//([a-z0-9]+:[a-z0-9]|line |extern |export |nolint)`)
	okDirective = regexp.MustCompile(`^(?://|<!-- )plain:ok\b(.*?)(?:-->)?$`)
	listMark    = regexp.MustCompile(`^\s*(?:[-*+•]|\d+[.)])\s+`)
	output      = regexp.MustCompile(`(?i)^ ?(unordered )?output:`)
)

// readGo returns the comments of a Go file and, unless it is a test, its strings. It returns none of a
// generated file, which is not ours.
func readGo(file string, src []byte) (page, error) {
	var p page
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil || ast.IsGenerated(f) {
		return p, err
	}
	source := strings.Split(string(src), "\n")
	for i, group := range f.Comments {
		g := goComment{page: &p, group: i}
		for _, c := range group.List {
			number := fset.Position(c.Pos()).Line
			if goDirective.MatchString(c.Text) {
				g.directive(number, c.Text)
				continue
			}
			for j, text := range commentLines(c.Text) {
				p.lines = append(p.lines, line{number + j, strings.TrimSuffix(source[number+j-1], "\r")})
				g.add(line{number + j, text})
			}
		}
		g.flush()
	}
	if !strings.HasSuffix(file, "_test.go") {
		p.readStrings(fset, f)
	}
	return p, nil
}

// commentLines returns the lines of a comment without the marks of a comment.
func commentLines(comment string) []string {
	if text, ok := strings.CutPrefix(comment, "//"); ok {
		return []string{text}
	}
	return strings.Split(strings.TrimSuffix(strings.TrimPrefix(comment, "/*"), "*/"), "\n")
}

// goComment collects the blocks of one comment, by the rules of godoc: an indented line is code, unless its
// span of indented lines begins with the mark of a list.
type goComment struct {
	*page
	group         int
	open          []line
	indented      bool // the last line was, or only empty lines have followed one
	list, example bool // the span of indented lines is a list; the rest is the output of an example
}

func (g *goComment) directive(number int, text string) {
	if m := okDirective.FindStringSubmatch(text); m != nil {
		g.excuses = append(g.excuses, excuse{g.group, number, strings.TrimSpace(m[1])})
	}
}

// flush ends the block.
func (g *goComment) flush() {
	if len(g.open) > 0 {
		g.blocks = append(g.blocks, block{group: g.group, lines: g.open})
		g.open = nil
	}
}

// add reads one line of the comment.
func (g *goComment) add(l line) {
	if output.MatchString(l.text) {
		g.example = true
	}
	text := strings.TrimPrefix(l.text, " ")
	deep := strings.HasPrefix(text, " ") || strings.HasPrefix(text, "\t")
	mark := listMark.FindString(text)
	switch trimmed := strings.TrimSpace(text); {
	case g.example:
		g.flush()
		return
	case trimmed == "":
		g.flush()
		return
	case strings.HasPrefix(trimmed, "|"):
		g.flush()
		g.blocks = append(g.blocks, cells(g.group, l.number, trimmed)...)
		return
	case deep && !g.indented:
		g.list = mark != ""
	}
	g.indented = deep
	switch {
	case deep && !g.list: // code
		g.flush()
		return
	case strings.HasPrefix(text, "# "):
		g.flush()
		g.open = []line{{l.number, text[2:]}}
		g.flush()
		return
	case mark != "":
		g.flush()
	}
	g.open = append(g.open, line{l.number, text[len(mark):]})
}
