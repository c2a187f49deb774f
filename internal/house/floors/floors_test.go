package floors

import (
	"slices"
	"strings"
	"testing"
)

// On these floors roof.go may use ground.go, and not the other way round.
var (
	twoFloors = []string{"roof", "ground"}
	twoRows   = []File{
		{Name: "roof.go", Floor: "roof", Why: "above"},
		{Name: "ground.go", Floor: "ground", Why: "below"},
	}
)

const roof = `package p

type Roof struct {
	tiles int
	attic struct{ boxes int }
}

func (r *Roof) Mend() { r.tiles++; dig() }

func build() {}

type bricks[T any] struct{ one T }

func (b *bricks[T]) lay() {}

type mender interface{ Mend() }

var house = []struct{ rooms int }{}
`

// in checks a ground.go of these lines, whose last is its fifth, beneath the roof above.
func in(t *testing.T, table []File, ground ...string) Findings {
	t.Helper()
	p, err := check(".", map[string][]byte{
		"roof.go":   []byte(roof),
		"ground.go": []byte("package p\n\nfunc dig() {}\n\n" + strings.Join(ground, "\n") + "\n"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return p.Check(twoFloors, table)
}

// TestUpward finds what runs up, each object once, by whatever road, and nothing that runs down or stays.
func TestUpward(t *testing.T) {
	for _, c := range []struct{ ground, want string }{
		{"func up() { dig() }", ""},
		{"func up() { build(); build() }", "build"},
		{"type cellar struct{ roof *Roof }", "Roof"},
		{"func (r *Roof) paint() { r.tiles = 1 }", "Roof Roof.tiles"},
		{"func up() { _ = Roof{tiles: 1} }", "Roof Roof.tiles"},
		{"type hut struct{ Roof }; func up(h *hut) { h.Mend(); h.tiles++; h.attic.boxes++ }",
			"Roof Roof.Mend Roof.attic Roof.attic.boxes Roof.tiles"},
		{"func up() { var b bricks[int]; b.lay(); b.one = 1 }", "bricks bricks.lay bricks.one"},
		{"func up(m mender) { m.Mend() }", "mender mender.Mend"},
		{"func up() { house[0].rooms++ }", "house house.rooms"},
	} {
		f := in(t, twoRows, c.ground)
		var got []string
		for _, ref := range f.List() {
			got = append(got, strings.TrimPrefix(ref, "ground.go "))
		}
		if s := strings.Join(got, " "); s != c.want || len(f.Faults) > 0 {
			t.Errorf("%s: got %q and the faults %q, want %q", c.ground, s, f.Faults, c.want)
		}
	}
}

// TestDefended takes a reason where the reference stands, once for all uses in the file, and no other.
func TestDefended(t *testing.T) {
	const reason, stale = "it was so", "ground.go:5: this //floor: comment defends nothing"
	for _, c := range []struct {
		ground           string
		upward, defended int
		fault, why       string
	}{
		{"func up() { build() } //floor: it was so", 0, 1, "", reason},
		{"//floor: it was so\nfunc up() { build() }", 0, 1, "", reason},
		{"// Up is up.\n// floor: it was so\n// Mind the gap.\nfunc up() { build() }", 0, 1, "", reason},
		{"func up() { build() }\n\nfunc more() { build() } //floor: it was so", 0, 1, "", reason},
		{"func up() { build(); _ = house } //floor: it was so", 0, 2, "", reason},
		{"//floor: it was so\n\nfunc up() { build() }", 1, 0, stale, ""},
		{"func down() { dig() } //floor: it was so\nfunc up() { build() }", 1, 0, stale, ""},
		{"func down() { dig() } //floor: it is no more", 0, 0, stale, ""},
		{"func up() { build() } //floor:", 1, 0, stale, ""},
	} {
		f := in(t, twoRows, c.ground)
		why := f.Defended[Ref{"ground.go", "build"}]
		if len(f.Upward) != c.upward || len(f.Defended) != c.defended || why != c.why {
			t.Errorf("%s: got upward %q, defended %q", c.ground, f.Upward, f.Defended)
		}
		got := strings.Join(f.Faults, "\n")
		if c.fault == "" && got != "" || !strings.HasPrefix(got, c.fault) {
			t.Errorf("%s: got the faults %q, want %q", c.ground, got, c.fault)
		}
	}
}

// TestRows asks for a row with a floor and a reason for each file, and for a file for each row that does not
// move.
func TestRows(t *testing.T) {
	rows := func(more File) []File { return append(slices.Clip(twoRows), more) }
	for _, c := range []struct {
		table []File
		want  string
	}{
		{twoRows, ""},
		{twoRows[:1], "ground.go is in no row"},
		{rows(twoRows[0]), "roof.go stands in two rows"},
		{rows(File{Name: "wing.go", Floor: "roof", Why: "planned", Moving: true}), ""},
		{rows(File{Name: "wing.go", Floor: "roof", Why: "gone"}), "the table has wing.go"},
		{[]File{twoRows[0], {Name: "ground.go", Floor: "cellar", Why: "deep"}}, `there is no floor "cellar"`},
		{[]File{twoRows[0], {Name: "ground.go", Floor: "ground"}}, "the table gives no reason"},
	} {
		got := strings.Join(in(t, c.table).Faults, "\n")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%v: got the faults %q, want %q", c.table, got, c.want)
		}
	}
}

// TestCompare lets the list shrink only.
func TestCompare(t *testing.T) {
	f := in(t, twoRows, "func up() { build() }")
	for _, c := range []struct {
		known, want []string
	}{
		{[]string{"ground.go build"}, nil},
		{nil, []string{"ground.go:5 uses build of roof.go: what is ground may not use what is roof"}},
		{[]string{"ground.go build", "ground.go house"},
			[]string{"ground.go house: it is in the list of references that run up, and does so no more"}},
	} {
		if got := f.Compare(c.known); !slices.Equal(got, c.want) {
			t.Errorf("known %q: got %q, want %q", c.known, got, c.want)
		}
	}
	f = in(t, twoRows, "var _ = house //floor: it was so")
	if got := f.Compare([]string{"ground.go house"}); len(got) != 1 {
		t.Errorf("a listed reference that is defended: got %q, want one fault", got)
	}
	for i := range MaxDefended {
		f.Defended[Ref{File: "ground.go", Object: strings.Repeat("x", i+1)}] = "one more"
	}
	if got := f.Compare(nil); len(got) != 1 || !strings.Contains(got[0], "are more than") {
		t.Errorf("%d defended: got %q, want one fault", len(f.Defended), got)
	}
}

// TestLoad checks a package with imports: this one.
func TestLoad(t *testing.T) {
	p, err := Load(".")
	if err != nil {
		t.Fatal(err)
	}
	own, test, load := p.Files["load.go"], p.Files["floors_test.go"], p.Types.Scope().Lookup("Load")
	if own == nil || test != nil || load == nil {
		t.Errorf("got %d files of %v", len(p.Files), p.Types)
	}
	if _, err := Load(t.TempDir()); err == nil {
		t.Error("a directory without a Go file is a package")
	}
}
