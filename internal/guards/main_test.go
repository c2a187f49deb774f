package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fixture is a module with one guard that a test holds and one that no test notices, and a package of its own for
// each of the ways in which a whole package's guards fail.
var fixture = map[string]string{
	"go.mod":              "module fixture\n\ngo 1.26.0\n",
	"tank.go":             tank,
	"tank_test.go":        tankTest,
	"other/tank.go":       tank,
	"other/tank_test.go":  tankTest,
	"broken/tank.go":      tank,
	"broken/tank_test.go": strings.Replace(tankTest, "!= 2", "!= 3", 1),
}

const (
	tank = "package fixture\n\nfunc fill(level, size int) int {\n\tif level > size {\n\t\tlevel = size\n\t}\n" +
		"\tif level < 0 {\n\t\tlevel = 0\n\t}\n\treturn level\n}\n"
	tankTest = "package fixture\n\nimport \"testing\"\n\nfunc TestFull(t *testing.T) {\n" +
		"\tif fill(3, 2) != 2 {\n\t\tt.Fatal()\n\t}\n}\n"
)

func TestCheckAll(t *testing.T) {
	dir := t.TempDir()
	for name, text := range fixture {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GOWORK", "off")
	rows := []struct {
		g    guard
		want string
	}{
		{guard{"held", "tank.go", ". ^TestFull$", "level > size", "!off && level > size"}, ""},
		{guard{"whole", "tank.go", ". ^TestFull$", "\t\tlevel = size", ""}, ""},
		{guard{"not held", "tank.go", ". ^TestFull$", "level < 0", "!off && level < 0"}, "passes without"},
		{guard{"no test", "tank.go", ". ^TestEmpty$", "return level", "_ = off; return level"}, "no test ran"},
		{guard{"six", "tank.go", ". ^TestFull$", "level", ""}, "stands 6 times"},
		{guard{"none", "tank.go", ". ^TestFull$", "absent", ""}, "stands 0 times"},
		{guard{"no file", "tanks.go", ". ^TestFull$", "level", ""}, "no such file"},
		{guard{"syntax", "other/tank.go", "./other ^TestFull$", "level > size", "level = off"}, "does not build"},
		{guard{"fails", "broken/tank.go", "./broken ^TestFull$", "level < 0", "!off && level < 0"}, "fails with its guards"},
	}
	var all []guard
	for _, row := range rows {
		all = append(all, row.g)
	}
	for i, err := range checkAll(t.Context(), dir, all) {
		if want := rows[i].want; want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", all[i].mode, err, want)
		}
	}
	if got := pick(all, "none,no test"); len(got) != 2 || len(pick(all, "")) != len(all) {
		t.Errorf("picked %v", got)
	}
}

// Every guard is of a failure that README.md lists, or of a bound, and is in one group.
func TestGroups(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	picked := 0
	for name, modes := range groups {
		picked += len(pick(guards, name))
		for _, mode := range modes {
			if name != "bounds" && !strings.Contains(string(page), "\n| "+mode+" |") {
				t.Errorf("README.md has no row %s", mode)
			}
			if len(pick(guards, mode)) == 0 {
				t.Errorf("%s, of %s, has no guard", mode, name)
			}
		}
	}
	if picked != len(guards) {
		t.Errorf("the groups have %d guards, of %d", picked, len(guards))
	}
}
