package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// mutant is one small change of a file.
type mutant struct {
	file       string // as the command line names it
	source     []byte // the file as it stands
	line       int
	start, end int    // the bytes that are replaced
	with       string // what stands there instead
	kind       string
}

// id names a mutant for as long as its file stays as it is.
func (m mutant) id() string {
	sum := sha256.Sum256(m.source)
	return fmt.Sprintf("%s:%d@%x %d-%d %s %q", m.file, m.line, sum[:4], m.start, m.end, m.kind, m.with)
}

// text is the whole file with the change.
func (m mutant) text() []byte {
	return bytes.Join([][]byte{m.source[:m.start], []byte(m.with), m.source[m.end:]}, nil)
}

// diff shows the lines that change.
func (m mutant) diff() string {
	from := bytes.LastIndexByte(m.source[:m.start], '\n') + 1
	to := len(m.source)
	if i := bytes.IndexByte(m.source[m.end:], '\n'); i >= 0 {
		to = m.end + i
	}
	after := string(m.source[from:m.start]) + m.with + string(m.source[m.end:to])
	var b strings.Builder
	for _, part := range []struct{ sign, text string }{{"-", string(m.source[from:to])}, {"+", after}} {
		for line := range strings.SplitSeq(part.text, "\n") {
			fmt.Fprintf(&b, "  %s %s\n", part.sign, line)
		}
	}
	return b.String()
}

// allMutants returns the mutants of all files, shuffled by the seed.
func allMutants(dir string, files []string, seed uint64) ([]mutant, error) {
	var all []mutant
	for _, f := range files {
		source, err := os.ReadFile(filepath.Join(dir, f))
		if err != nil {
			return nil, err
		}
		ms, err := mutantsOf(f, source)
		if err != nil {
			return nil, err
		}
		all = append(all, ms...)
	}
	r := rand.New(rand.NewPCG(seed, 0))
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all, nil
}

// finder collects the mutants of one file.
type finder struct {
	file    string
	source  []byte
	fset    *token.FileSet
	sizes   map[ast.Expr]bool // sizes of arrays, which stay
	mutants []mutant
}

// mutantsOf returns the mutants of one file, in the order of its text.
func mutantsOf(file string, source []byte) ([]mutant, error) {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, file, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	f := &finder{file: file, source: source, fset: fset, sizes: make(map[ast.Expr]bool)}
	var results []*ast.FieldList // of the functions around a node
	var nodes []ast.Node
	ast.Inspect(tree, func(n ast.Node) bool {
		if n == nil {
			if isFunction(nodes[len(nodes)-1]) {
				results = results[:len(results)-1]
			}
			nodes = nodes[:len(nodes)-1]
			return true
		}
		nodes = append(nodes, n)
		switch n := n.(type) {
		case *ast.FuncDecl:
			results = append(results, n.Type.Results)
		case *ast.FuncLit:
			results = append(results, n.Type.Results)
		case *ast.ReturnStmt:
			f.zeroReturn(n, results[len(results)-1])
		}
		f.visit(n)
		return true
	})
	return f.mutants, nil
}

func isFunction(n ast.Node) bool {
	switch n.(type) {
	case *ast.FuncDecl, *ast.FuncLit:
		return true
	}
	return false
}

// add notes that the text from one position to another may be replaced.
func (f *finder) add(kind string, from, to token.Pos, with string) {
	p := f.fset.Position(from)
	f.mutants = append(f.mutants, mutant{file: f.file, source: f.source, line: p.Line,
		start: p.Offset, end: f.fset.Position(to).Offset, with: with, kind: kind})
}

func (f *finder) text(n ast.Node) string {
	return string(f.source[f.fset.Position(n.Pos()).Offset:f.fset.Position(n.End()).Offset])
}

// swaps holds what may stand in the place of an operator.
var swaps = map[token.Token][]token.Token{
	token.LSS: {token.LEQ, token.GEQ}, token.LEQ: {token.LSS, token.GTR},
	token.GTR: {token.GEQ, token.LEQ}, token.GEQ: {token.GTR, token.LSS},
	token.EQL: {token.NEQ}, token.NEQ: {token.EQL},
	token.LAND: {token.LOR}, token.LOR: {token.LAND},
	token.ADD: {token.SUB}, token.SUB: {token.ADD}, token.MUL: {token.QUO}, token.QUO: {token.MUL},
	token.REM: {token.MUL}, token.AND: {token.OR}, token.OR: {token.AND}, token.SHL: {token.SHR}, token.SHR: {token.SHL},
	token.ADD_ASSIGN: {token.SUB_ASSIGN}, token.SUB_ASSIGN: {token.ADD_ASSIGN},
	token.MUL_ASSIGN: {token.QUO_ASSIGN}, token.QUO_ASSIGN: {token.MUL_ASSIGN},
	token.INC: {token.DEC}, token.DEC: {token.INC},
	token.BREAK: {token.CONTINUE}, token.CONTINUE: {token.BREAK},
}

func (f *finder) swap(kind string, pos token.Pos, tok token.Token) {
	for _, other := range swaps[tok] {
		f.add(kind, pos, pos+token.Pos(len(tok.String())), other.String())
	}
}

// visit notes the mutants of one node, without those below it.
func (f *finder) visit(n ast.Node) {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		f.swap("operator", n.OpPos, n.Op)
	case *ast.AssignStmt:
		f.swap("operator", n.TokPos, n.Tok)
	case *ast.IncDecStmt:
		f.swap("operator", n.TokPos, n.Tok)
	case *ast.BranchStmt:
		f.swap("branch", n.TokPos, n.Tok)
	case *ast.ArrayType:
		f.sizes[n.Len] = true
	case *ast.BasicLit:
		f.boundary(n)
	case *ast.IfStmt:
		f.add("condition", n.Cond.Pos(), n.Cond.End(), "!("+f.text(n.Cond)+")")
		f.remove(n.Init)
	case *ast.BlockStmt:
		f.remove(n.List...)
	case *ast.CaseClause:
		f.remove(n.Body...)
	case *ast.CommClause:
		f.remove(n.Body...)
	}
}

// boundary moves an integer by one.
func (f *finder) boundary(n *ast.BasicLit) {
	v, err := strconv.ParseInt(n.Value, 0, 64)
	if n.Kind != token.INT || err != nil || f.sizes[n] {
		return
	}
	for _, moved := range []int64{v + 1, v - 1} {
		f.add("boundary", n.Pos(), n.End(), strconv.FormatInt(moved, 10))
	}
}

// remove takes out assignments, calls, and steps by one. A definition stays, since its variables are used.
func (f *finder) remove(list ...ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE {
				continue
			}
		case *ast.ExprStmt:
			if _, call := s.X.(*ast.CallExpr); !call {
				continue
			}
		case *ast.IncDecStmt:
		default:
			continue
		}
		f.add("removal", s.Pos(), s.End(), "")
	}
}

// zeroReturn returns zero values.
func (f *finder) zeroReturn(n *ast.ReturnStmt, results *ast.FieldList) {
	if len(n.Results) == 0 {
		return
	}
	var zeros, now []string
	for _, field := range results.List {
		for range max(1, len(field.Names)) {
			zeros = append(zeros, zeroOf(field.Type, f.text(field.Type)))
		}
	}
	for _, r := range n.Results {
		now = append(now, f.text(r))
	}
	with := strings.Join(zeros, ", ")
	if with != strings.Join(now, ", ") {
		f.add("return", n.Results[0].Pos(), n.Results[len(n.Results)-1].End(), with)
	}
}

// zeroOf is an expression for the zero value of a type.
func zeroOf(t ast.Expr, text string) string {
	switch t := t.(type) {
	case *ast.StarExpr, *ast.FuncType, *ast.MapType, *ast.ChanType, *ast.InterfaceType:
		return "nil"
	case *ast.ArrayType:
		if t.Len == nil {
			return "nil"
		}
	}
	switch text {
	case "error", "any":
		return "nil"
	case "bool":
		return "false"
	case "string":
		return `""`
	case "int", "int32", "int64", "uint8", "uint32", "uint64", "float64", "time.Duration":
		return "0"
	}
	return "*new(" + text + ")"
}
