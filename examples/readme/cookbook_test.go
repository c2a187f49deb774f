//go:build unix

package readme

import (
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
