package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/scanner"
	"go/token"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/quotient-go/quotient/internal/house/floors"
)

// bounds are the figures in the order in which they are printed, with the most that each may be.
var bounds = []struct {
	figure string
	most   int
}{
	{"files", 39},
	{"lines", free},
	{"lines of code", 7450},
	{"lines of code on the floors gate and rules", 2460},
	{"files on the floors gate and rules", 14},
	{"functions", free},
	{"lines of the median function", 10},
	{"lines of the longest function", 40},
	{"lines over 110 columns", 0},
	{"lines over 110 columns in tests", 0},
	{"test files over 450 lines", 0},
	{"exported names", 132},
	{"exported fields", 110},
	{"lines of go doc -all .", 900},
	{"references that run up, undefended", 0},
	{"references that run up, defended", floors.MaxDefended},
	{"pairs of files that they join", free},
	{"tests of a rule's kind", 0},
	{"functions with such a test", free},
}

const (
	free    = -1
	columns = 110 // as revive counts them: characters, a tab being four
)

// measured are the figures of one package.
type measured struct {
	figures map[string]int
	places  []string // of what should not be there
}

// print writes the figures and returns how many of them are above their bounds.
func (m *measured) print(out io.Writer) int {
	above := 0
	for _, b := range bounds {
		n := m.figures[b.figure]
		switch {
		case b.most == free:
			fmt.Fprintf(out, "%6d  %s\n", n, b.figure)
		case n > b.most:
			above++
			fmt.Fprintf(out, "%6d  %-44s at most %d: ABOVE\n", n, b.figure, b.most)
		default:
			fmt.Fprintf(out, "%6d  %-44s at most %d\n", n, b.figure, b.most)
		}
	}
	return above
}

// measure counts. A line of code is one with anything but blanks and comments. A function is as long as the
// lines from the word func to its last brace.
func measure(dir string, p *floors.Package, found floors.Findings) (*measured, error) {
	m := &measured{figures: map[string]int{}}
	f := m.figures
	var lengths []int
	for _, name := range slices.Sorted(maps.Keys(p.Files)) {
		src := p.Source[name]
		code := codeLines(src)
		f["files"]++
		f["lines"] += bytes.Count(src, []byte("\n"))
		f["lines of code"] += code
		if inner(name) {
			f["files on the floors gate and rules"]++
			f["lines of code on the floors gate and rules"] += code
		}
		wide := wideLines(name, src, nil)
		f["lines over 110 columns"] += len(wide)
		m.places = append(m.places, wide...)
		names, fields := exported(p.Files[name])
		f["exported names"] += names
		f["exported fields"] += fields
		lengths = append(lengths, functions(p.Fset, p.Files[name])...)
	}
	slices.Sort(lengths)
	if f["functions"] = len(lengths); len(lengths) > 0 {
		f["lines of the median function"] = lengths[len(lengths)/2]
		f["lines of the longest function"] = lengths[len(lengths)-1]
	}
	tests := kindTests(p)
	for _, t := range tests {
		m.places = append(m.places, t.String())
	}
	f["tests of a rule's kind"], f["functions with such a test"] = len(tests), tests.functions()
	for _, r := range found.List() {
		m.places = append(m.places, "runs up: "+r)
	}
	f["references that run up, undefended"] = len(found.Upward)
	f["references that run up, defended"] = len(found.Defended)
	f["pairs of files that they join"] = found.Edges
	return m, errors.Join(m.measureTests(dir), m.measureDoc(dir))
}

// inner reports whether a file stands on one of the floors gate and rules.
func inner(name string) bool {
	return slices.ContainsFunc(floors.Root, func(f floors.File) bool {
		return f.Name == name && (f.Floor == "gate" || f.Floor == "rules")
	})
}

// measureDoc counts the lines of the package's documentation.
func (m *measured) measureDoc(dir string) error {
	cmd := exec.Command("go", "doc", "-all", ".")
	cmd.Dir = dir
	doc, err := cmd.Output()
	m.figures["lines of go doc -all ."] = bytes.Count(doc, []byte("\n"))
	return err
}

// codeLines counts the lines that hold a token.
func codeLines(src []byte) int {
	lines := map[int]bool{}
	eachToken(src, func(line int, tok token.Token, text string) {
		if tok == token.SEMICOLON && text == "\n" {
			return // not written, but inferred
		}
		for i := range strings.Count(text, "\n") + 1 {
			lines[line+i] = true
		}
	})
	return len(lines)
}

// eachToken calls f for each token, with the line on which it begins.
func eachToken(src []byte, f func(line int, tok token.Token, text string)) {
	file := token.NewFileSet().AddFile("", -1, len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, 0)
	for {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			return
		}
		f(file.Line(pos), tok, text)
	}
}

// wideLines names the lines that are wider than columns, comments included, without those in except.
func wideLines(name string, src []byte, except map[int]bool) []string {
	var wide []string
	n := 0
	for line := range strings.Lines(string(src)) {
		n++
		line = strings.ReplaceAll(strings.TrimRight(line, "\r\n"), "\t", "    ")
		if w := utf8.RuneCountInString(line); w > columns && !except[n] {
			wide = append(wide, fmt.Sprintf("%s:%d: %d columns", name, n, w))
		}
	}
	return wide
}

// functions returns the length of each function and method.
func functions(fset *token.FileSet, f *ast.File) []int {
	var lengths []int
	for _, d := range f.Decls {
		if d, ok := d.(*ast.FuncDecl); ok {
			lengths = append(lengths, fset.Position(d.End()).Line-fset.Position(d.Pos()).Line+1)
		}
	}
	return lengths
}

// exported counts names (functions, types, constants, variables, methods of exported types) and the fields of
// exported structs. An embedded type is a field, exported or not. Fields of structs without a name and
// methods of interfaces do not count.
func exported(f *ast.File) (names, fields int) {
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && (d.Recv == nil || receiver(d).IsExported()) {
				names++
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					if s.Name.IsExported() {
						names++
						fields += exportedFields(s.Type)
					}
				case *ast.ValueSpec:
					names += exportedOf(s.Names)
				}
			}
		}
	}
	return names, fields
}

// receiver is the type that a method belongs to.
func receiver(d *ast.FuncDecl) *ast.Ident {
	for t := d.Recv.List[0].Type; ; {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x
		default:
			return ast.NewIdent("_")
		}
	}
}

func exportedFields(t ast.Expr) int {
	n := 0
	if st, ok := t.(*ast.StructType); ok {
		for _, field := range st.Fields.List {
			if n += exportedOf(field.Names); field.Names == nil {
				n++
			}
		}
	}
	return n
}

func exportedOf(ids []*ast.Ident) int {
	n := 0
	for _, id := range ids {
		if id.IsExported() {
			n++
		}
	}
	return n
}
