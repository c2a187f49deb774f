package quotient_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quotient-go/quotient/internal/house/floors"
)

// TestFloors checks that a file uses what stands on its floor or below, so that the package can be read from
// the ground up. `go run ./internal/house -update` takes off the list what runs up no more.
func TestFloors(t *testing.T) {
	p, err := floors.Load(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range p.Check(floors.Names, floors.Root).Compare(floors.Known()) {
		t.Error(fault)
	}
}

// TestLocked holds what the comment of shard says: its methods find the lock taken, and only those whose name
// ends in AndUnlock release it.
func TestLocked(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	methods := 0
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv == nil {
				continue
			}
			if star, ok := f.Recv.List[0].Type.(*ast.StarExpr); !ok || star.X.(*ast.Ident).Name != "shard" {
				continue
			}
			methods++
			calls := lockCalls(f)
			gives := strings.HasSuffix(f.Name.Name, "AndUnlock")
			if len(calls) > 0 && calls[0] == "Lock" {
				t.Errorf("%s: shard.%s takes the lock, with which it is called", name, f.Name.Name)
			}
			if len(calls) > 0 && calls[len(calls)-1] == "Unlock" && !gives {
				t.Errorf("%s: shard.%s gives the lock back, and its name does not say so", name, f.Name.Name)
			}
		}
	}
	if methods < 30 {
		t.Errorf("only %d methods of shard were found", methods)
	}
}

// lockCalls lists the calls of methods of the receiver's mutex, in order.
func lockCalls(f *ast.FuncDecl) (calls []string) {
	receiver := f.Recv.List[0].Names[0].Name
	ast.Inspect(f.Body, func(n ast.Node) bool {
		if lit, ok := n.(*ast.FuncLit); ok && lit != nil {
			return false // a timer's or a deferred call comes later
		}
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if method, ok := call.Fun.(*ast.SelectorExpr); ok {
			if mu, ok := method.X.(*ast.SelectorExpr); ok && mu.Sel.Name == "mu" {
				if x, ok := mu.X.(*ast.Ident); ok && x.Name == receiver {
					calls = append(calls, method.Sel.Name)
				}
			}
		}
		return true
	})
	return calls
}
