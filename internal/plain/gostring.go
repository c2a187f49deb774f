package main

import (
	"go/ast"
	"go/token"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// goStrings collects the strings of a Go file that are prose: texts of errors, logs, panics, help and pages.
// It takes all of them, because a list of the functions that get them would miss the next one. Imports and
// tags are no prose, but for the help in a tag.
type goStrings struct {
	*page
	fset *token.FileSet
}

// readStrings adds the prose in the strings of f to p.
func (p *page) readStrings(fset *token.FileSet, f *ast.File) {
	g := goStrings{p, fset}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field:
			g.tag(n.Tag)
			return n.Tag == nil
		case *ast.BinaryExpr:
			if n.Op == token.ADD && isText(n) {
				g.add(join(n, nil))
				return false
			}
		case *ast.BasicLit:
			g.add(join(n, nil))
		}
		return true
	})
}

// piece is a part of a string, and the place where it begins.
type piece struct {
	pos  token.Pos
	text string
	raw  bool
}

// isText reports whether a sum has a string in it.
func isText(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return e.Kind == token.STRING
	case *ast.BinaryExpr:
		return e.Op == token.ADD && (isText(e.X) || isText(e.Y))
	}
	return false
}

// join returns the pieces of a sum of strings. A value that is not known stands as one word.
func join(e ast.Expr, pieces []piece) []piece {
	switch e := e.(type) {
	case *ast.BinaryExpr:
		return join(e.Y, join(e.X, pieces))
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); e.Kind == token.STRING && err == nil {
			return append(pieces, piece{e.Pos(), text, e.Value[0] == '`'})
		}
		return pieces
	}
	return append(pieces, piece{e.Pos(), "x", false})
}

// tag adds the help of a tag.
func (g *goStrings) tag(tag *ast.BasicLit) {
	if tag == nil {
		return
	}
	if text, err := strconv.Unquote(tag.Value); err == nil {
		g.add([]piece{{tag.Pos(), reflect.StructTag(text).Get("help"), false}})
	}
}

// add adds a string, if it is prose. An empty line ends a paragraph of it, and an indented line is code.
func (g *goStrings) add(pieces []piece) {
	var open []line
	flush := func() {
		var all []string
		for _, l := range open {
			all = append(all, l.text)
		}
		if len(open) > 0 && isProse(strings.Join(all, " ")) {
			g.blocks = append(g.blocks, block{group: noGroup - 2, lines: open})
		}
		open = nil
	}
	for _, p := range pieces {
		number := g.fset.Position(p.pos).Line
		for i, text := range strings.Split(p.text, "\n") {
			if i > 0 && (strings.TrimSpace(text) == "" || listMark.MatchString(text)) {
				flush()
			}
			at := number
			if p.raw {
				at += i
			}
			if i > 0 && (strings.HasPrefix(text, "  ") || strings.HasPrefix(text, "\t")) {
				flush()
				continue
			}
			if n := len(open); n > 0 && i == 0 && (at == open[n-1].number || !spaced(open[n-1].text, text)) {
				open[n-1].text += text
				continue
			}
			open = append(open, line{at, listMark.ReplaceAllString(text, "")})
		}
	}
	flush()
}

// spaced reports whether a word ends where two parts of a string meet.
func spaced(a, b string) bool { return strings.HasSuffix(a, " ") || strings.HasPrefix(b, " ") }

var (
	markup = regexp.MustCompile(`^\s*[<{\[#|]|[{};]\s*$|</|=>|:=|\\n|SELECT |location /`)
	plain  = regexp.MustCompile(`^[(]?[A-Za-z][a-z'’]*[).,:;]*$`)
)

// isProse reports whether a text is a sentence, or a part of one: four words of letters or more, and they are
// most of it.
func isProse(text string) bool {
	if markup.MatchString(text) {
		return false
	}
	fields := strings.Fields(text)
	n := 0
	for _, field := range fields {
		if plain.MatchString(field) {
			n++
		}
	}
	return n >= 4 && 2*n > len(fields)
}
