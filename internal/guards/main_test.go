package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fixture is a module with one guard that a test holds and one that no test notices.
var fixture = map[string]string{
	"go.mod": "module fixture\n\ngo 1.26.0\n",
	"tank.go": "package fixture\n\nfunc fill(level, size int) int {\n\tif level > size {\n\t\tlevel = size\n\t}\n" +
		"\tif level < 0 {\n\t\tlevel = 0\n\t}\n\treturn level\n}\n",
	"tank_test.go": "package fixture\n\nimport \"testing\"\n\nfunc TestFull(t *testing.T) {\n" +
		"\tif fill(3, 2) != 2 {\n\t\tt.Fatal()\n\t}\n}\n",
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	for name, text := range fixture {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GOWORK", "off")
	rows := []struct{ guard, want string }{
		{"level > size", ""},
		{"level = size", "does not build"}, // by its replacement
		{"level < 0", "passes without"},
		{"level", "stands 6 times"},
		{"absent", "stands 0 times"},
	}
	var all []guard
	for _, row := range rows {
		replace := "false"
		if row.want == "does not build" {
			replace = "level ="
		}
		all = append(all, guard{mode: row.guard, file: "tank.go", test: ". ^TestFull$", find: row.guard, replace: replace})
	}
	all = append(all, guard{mode: "no test", file: "tank.go", test: ". ^TestEmpty$", find: "level > size", replace: "false"})
	rows = append(rows, struct{ guard, want string }{"no test", "no test ran"})
	i := 0
	for g, err := range checkAll(t.Context(), dir, all) {
		want := rows[i].want
		if i++; want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", g.mode, err, want)
		}
	}
	if i != len(rows) {
		t.Errorf("%d of %d guards were checked", i, len(rows))
	}
	if got := pick(all, "absent,no test"); len(got) != 2 || len(pick(all, "")) != len(all) {
		t.Errorf("picked %v", got)
	}
}
