package floors

import (
	_ "embed" // for upward.txt
	"strings"
)

// Header stands at the top of upward.txt.
const Header = `# What runs up in the root package, against the floors of table.go.
# A line is a file and an object of another file.
# The list only shrinks. go run ./internal/house -update writes it anew. The comment of package floors says
# how a reference is defended.
`

//go:embed upward.txt
var upward string

// Known returns the references that are known to run up.
func Known() []string { return Parse(upward) }

// Parse returns the lines of a list that are neither empty nor comments.
func Parse(text string) []string {
	var list []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			list = append(list, line)
		}
	}
	return list
}
