package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"slices"

	"github.com/quotient-go/quotient/internal/house/floors"
)

// A rule's kind may be asked for where a setting is worked out, and where a gate follows it.
var kindFiles = []string{"setting.go", "replay.go"}

// These fields of these structs, and this interface, give a rule's kind away.
var (
	kindOwners = []string{"rule", "ration", "resource"}
	kindFields = []string{"window", "turn", "schedule", "kind"}
	kindFace   = "resource"
)

// kindTest is a place that asks what kind of rule it has.
type kindTest struct {
	at    token.Position
	in    string // the function
	shape string
}

func (k kindTest) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", k.at.Filename, k.at.Line, k.in, k.shape)
}

type kindTestList []kindTest

func (l kindTestList) functions() int {
	in := map[string]bool{}
	for _, k := range l {
		in[k.at.Filename+k.in] = true
	}
	return len(in)
}

// kindTests finds, outside of kindFiles,
//   - type switches on, and assertions of, what has the interface type kindFace;
//   - comparisons (== and !=, so tests for nil too) and switches of one of kindFields of one of kindOwners;
//   - It also finds a variable that has the type of such a field, if this type is a pointer or a type of the
//     package. So "w := r.window; w != nil" is found as "r.window != nil" is.
//
// It does not find a kind in disguise: a bool of the rule, a comparison of lengths or of Limit's own fields.
func kindTests(p *floors.Package) kindTestList {
	k := kindFinder{Package: p, fields: map[types.Object]bool{}}
	k.learn()
	for _, name := range slices.Sorted(maps.Keys(p.Files)) {
		if slices.Contains(kindFiles, name) {
			continue
		}
		for _, d := range p.Files[name].Decls {
			if d, ok := d.(*ast.FuncDecl); ok {
				k.in = d.Name.Name
				ast.Inspect(d, k.visit)
			}
		}
	}
	slices.SortFunc(k.found, func(a, b kindTest) int {
		return cmp.Or(cmp.Compare(a.at.Filename, b.at.Filename), cmp.Compare(a.at.Offset, b.at.Offset))
	})
	return k.found
}

type kindFinder struct {
	*floors.Package
	fields map[types.Object]bool
	types  []types.Type // of those fields
	face   types.Type
	in     string
	found  kindTestList
}

// learn looks up what gives a kind away.
func (k *kindFinder) learn() {
	for _, owner := range kindOwners {
		obj := k.Types.Scope().Lookup(owner)
		if obj == nil {
			continue
		}
		if owner == kindFace && types.IsInterface(obj.Type()) {
			k.face = obj.Type()
		}
		st, ok := obj.Type().Underlying().(*types.Struct)
		if !ok {
			continue
		}
		for f := range st.Fields() {
			if slices.Contains(kindFields, f.Name()) {
				k.fields[f] = true
				k.addType(f.Type())
			}
		}
	}
}

func (k *kindFinder) addType(t types.Type) {
	switch t := t.(type) {
	case *types.Pointer:
		k.types = append(k.types, t)
	case *types.Named:
		if t.Obj().Pkg() == k.Types {
			k.types = append(k.types, t)
		}
	}
}

func (k *kindFinder) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.TypeAssertExpr:
		if k.face != nil && types.Identical(k.Info.TypeOf(n.X), k.face) {
			k.add(n, "the type of a "+kindFace)
		}
	case *ast.BinaryExpr:
		if (n.Op == token.EQL || n.Op == token.NEQ) && (k.isKind(n.X) || k.isKind(n.Y)) {
			k.add(n, "a comparison")
		}
	case *ast.SwitchStmt:
		if n.Tag != nil && k.isKind(n.Tag) {
			k.add(n, "a switch")
		}
	}
	return true
}

func (k *kindFinder) add(n ast.Node, shape string) {
	k.found = append(k.found, kindTest{k.Fset.Position(n.Pos()), k.in, shape})
}

// isKind reports whether an expression gives a rule's kind away.
func (k *kindFinder) isKind(e ast.Expr) bool {
	e = ast.Unparen(e)
	if s, ok := e.(*ast.SelectorExpr); ok && k.fields[k.Info.Uses[s.Sel]] {
		return true
	}
	t := k.Info.TypeOf(e)
	same := func(kind types.Type) bool { return types.Identical(t, kind) }
	return t != nil && slices.ContainsFunc(k.types, same)
}
