//go:build unix

package readme

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Every command of the cookbook is run, and prints what the page shows.
func TestCookbookCommands(t *testing.T) {
	api, operator := freeAddr(t), freeAddr(t)
	(&player{
		page: "docs/cookbook.md",
		here: strings.NewReplacer("localhost:8080", api, "localhost:9091", operator),
		server: func(command string) []string {
			if strings.HasPrefix(command, "go run ./examples/service ") {
				return []string{"localhost:8080", "localhost:9091"}
			}
			return nil
		},
		same: func(got, want string) bool { return got == want },
	}).play(t, newShell(t, root, "GOFLAGS="))
}

// Each recipe stands on the page or is named there, beside the file that has it; and each name is in its file.
func TestCookbookNamesAll(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(root, "docs", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	page, shown := read("cookbook.md"), map[string][]string{} // by file
	function, name := regexp.MustCompile(`(?m)^func (\w+)\(`), regexp.MustCompile("`(\\w+)`")
	list := regexp.MustCompile(`(?m)^- \[\w+\]\((\S+_test\.go)\):((?s:.*?))\.$`)
	for _, item := range list.FindAllStringSubmatch(page, -1) {
		code := read(item[1])
		for _, m := range name.FindAllStringSubmatch(item[2], -1) {
			if shown[item[1]] = append(shown[item[1]], m[1]); !strings.Contains(code, "\nfunc "+m[1]+"(") {
				t.Errorf("%s has no %s", item[1], m[1])
			}
		}
	}
	for _, part := range []string{"servers", "clients", "limits", "operate"} {
		file := "../examples/cookbook/" + part + "_test.go"
		for _, m := range function.FindAllStringSubmatch(read(file), -1) {
			standIn := m[1] == "complete" || m[1] == "shrink"
			if !standIn && !slices.Contains(shown[file], m[1]) && !strings.Contains(page, "\n"+m[0]) {
				t.Errorf("the page does not name %s of %s", m[1], file)
			}
		}
	}
}
