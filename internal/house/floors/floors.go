package floors

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"slices"
	"strings"
)

// Ref is a file that uses an object of another one, wherever and however often.
type Ref struct{ File, Object string }

func (r Ref) String() string { return r.File + " " + r.Object }

// Findings are what stands where it should not.
type Findings struct {
	Upward   map[Ref]string // references that run up and are not defended, with what to say of the first one
	Defended map[Ref]string // those that a comment defends, with its reason
	Edges    int            // how many pairs of files both join
	Faults   []string       // files that are in no row, rows without a file, comments that defend nothing
}

// Check compares the package with the table, whose floors are named from the top.
func (p *Package) Check(names []string, table []File) Findings {
	c := checker{Package: p, names: names, objects: p.objects()}
	c.rows, c.defences = map[string]File{}, map[string][]*defence{}
	c.Upward, c.Defended = map[Ref]string{}, map[Ref]string{}
	c.checkRows(table)
	for name := range p.Files {
		c.defences[name] = p.defencesIn(name)
	}
	c.checkUses()
	for _, name := range slices.Sorted(maps.Keys(c.defences)) {
		for _, d := range c.defences[name] {
			if !d.used || d.why == "" {
				c.faultf("%s:%d: this //floor: comment defends nothing, or gives no reason", name, d.own)
			}
		}
	}
	return c.Findings
}

// Compare says what is wrong with the references that run up, beside the list of those that are known.
func (f Findings) Compare(known []string) []string {
	faults := slices.Clone(f.Faults)
	for _, r := range sorted(f.Upward) {
		if !slices.Contains(known, r.String()) {
			faults = append(faults, f.Upward[r])
		}
	}
	now := f.List()
	for _, k := range known {
		if !slices.Contains(now, k) {
			faults = append(faults, k+": it is in the list of references that run up, and does so no more")
		}
	}
	if n := len(f.Defended); n > MaxDefended {
		faults = append(faults, fmt.Sprintf("%d defended references are more than %d", n, MaxDefended))
	}
	return faults
}

// List returns the references that run up and are not defended, in order.
func (f Findings) List() []string {
	var list []string
	for _, r := range sorted(f.Upward) {
		list = append(list, r.String())
	}
	return list
}

func sorted(refs map[Ref]string) []Ref {
	return slices.SortedFunc(maps.Keys(refs), func(a, b Ref) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Object, b.Object))
	})
}

type checker struct {
	*Package
	Findings
	names    []string
	rows     map[string]File
	objects  map[types.Object]string
	defences map[string][]*defence // by file
}

func (c *checker) faultf(format string, args ...any) {
	c.Faults = append(c.Faults, fmt.Sprintf(format, args...))
}

// checkRows checks that every file has one row with a floor, and every row its file.
func (c *checker) checkRows(table []File) {
	for _, f := range table {
		switch _, twice := c.rows[f.Name]; {
		case twice:
			c.faultf("%s stands in two rows of the table", f.Name)
		case !slices.Contains(c.names, f.Floor):
			c.faultf("%s: there is no floor %q", f.Name, f.Floor)
		case c.Files[f.Name] == nil && !f.Moving:
			c.faultf("the table has %s, and the package has not", f.Name)
		case f.Why == "":
			c.faultf("%s: the table gives no reason", f.Name)
		}
		c.rows[f.Name] = f
	}
	for _, name := range slices.Sorted(maps.Keys(c.Files)) {
		if _, ok := c.rows[name]; !ok {
			c.faultf("%s is in no row of the table: say on which floor it stands, and why", name)
		}
	}
}

// checkUses sorts all uses of what another file declares. A field that is reached through an embedded one
// counts; the embedded one does not.
func (c *checker) checkUses() {
	first := map[Ref]string{}
	edges := map[[2]string]bool{}
	byPlace := func(a, b *ast.Ident) int { return cmp.Compare(a.Pos(), b.Pos()) }
	idents := slices.SortedFunc(maps.Keys(c.Info.Uses), byPlace)
	for _, id := range idents {
		obj := origin(c.Info.Uses[id])
		name, ok := c.objects[obj]
		if !ok {
			continue // of another package, or local to a function
		}
		at, from := c.Fset.Position(id.Pos()), c.Fset.Position(obj.Pos()).Filename
		user, owner := c.floor(at.Filename), c.floor(from)
		if at.Filename == from || user < 0 || owner < 0 || user <= owner {
			continue
		}
		ref := Ref{at.Filename, name}
		edges[[2]string{at.Filename, from}] = true
		if why, ok := c.defend(at); ok {
			c.Defended[ref] = why
		} else if first[ref] == "" {
			first[ref] = fmt.Sprintf("%s:%d uses %s of %s: what is %s may not use what is %s",
				at.Filename, at.Line, name, from, c.names[user], c.names[owner])
		}
	}
	for ref, text := range first {
		if _, ok := c.Defended[ref]; !ok {
			c.Upward[ref] = text
		}
	}
	c.Edges = len(edges)
}

// floor counts from the top; it is below 0 for a file without a row.
func (c *checker) floor(file string) int { return slices.Index(c.names, c.rows[file].Floor) }

// origin is what was declared, of what is an instance of it.
func origin(obj types.Object) types.Object {
	switch obj := obj.(type) {
	case *types.Var:
		return obj.Origin()
	case *types.Func:
		return obj.Origin()
	}
	return obj
}

// objects names everything that one file can use of another: what the package declares, methods and fields.
func (p *Package) objects() map[types.Object]string {
	named := map[types.Object]string{}
	for _, name := range p.Types.Scope().Names() {
		obj := p.Types.Scope().Lookup(name)
		named[obj] = name
		addFields(named, name, obj.Type())
		tn, ok := obj.(*types.TypeName)
		if !ok {
			continue
		}
		n, ok := tn.Type().(*types.Named)
		if !ok {
			continue
		}
		addFields(named, name, n.Underlying())
		for m := range n.Methods() {
			named[m] = name + "." + m.Name()
		}
	}
	return named
}

// addFields names the fields and methods of a type that has no name of its own.
func addFields(named map[types.Object]string, name string, t types.Type) {
	switch t := t.(type) {
	case *types.Struct:
		for f := range t.Fields() {
			named[f] = name + "." + f.Name()
			addFields(named, named[f], f.Type())
		}
	case *types.Interface:
		for m := range t.ExplicitMethods() {
			named[m] = name + "." + m.Name()
		}
	case *types.Pointer:
		addFields(named, name, t.Elem())
	case *types.Slice:
		addFields(named, name, t.Elem())
	case *types.Array:
		addFields(named, name, t.Elem())
	case *types.Map:
		addFields(named, name, t.Elem())
	}
}

// defence is a comment that defends the references on one line.
type defence struct {
	own, line int // where it stands, and the line it is for
	why       string
	used      bool
}

// defencesIn finds the comments of a file that begin with "floor:".
func (p *Package) defencesIn(name string) []*defence {
	var found []*defence
	lines := bytes.Split(p.Source[name], []byte("\n"))
	for _, group := range p.Files[name].Comments {
		for _, c := range group.List {
			why, ok := strings.CutPrefix(strings.TrimSpace(strings.TrimPrefix(c.Text, "//")), "floor:")
			if !ok {
				continue
			}
			d := &defence{why: strings.TrimSpace(why)}
			d.own = p.Fset.Position(c.Pos()).Line
			d.line = d.own
			if bytes.HasPrefix(bytes.TrimSpace(lines[d.own-1]), []byte("//")) { // alone
				d.line = p.Fset.Position(group.End()).Line + 1
			}
			found = append(found, d)
		}
	}
	return found
}

// defend looks for a comment for the line, and marks it as used.
func (c *checker) defend(at token.Position) (string, bool) {
	for _, d := range c.defences[at.Filename] {
		if d.line == at.Line && d.why != "" {
			d.used = true
			return d.why, true
		}
	}
	return "", false
}
