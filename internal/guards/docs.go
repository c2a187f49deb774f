package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

const preamble = `# Failure modes

<!-- Generated from internal/guards/guards.txt by make docs. Edit that file. -->

Each failure was seen in a rate limiter, a proxy or a library that people run. A guard is code that prevents
one, and has a test. ` + "`make guards`" + ` removes each guard in turn and requires that its test fails.
[guards.txt](../internal/guards/guards.txt) lists guards and tests.
`

const header = "| | failure | what quotient must do | guards | tests in |\n| --- | --- | --- | --- | --- |\n"

// page renders the failure modes as Markdown, a table for each section.
func page(modes []mode) []byte {
	var b bytes.Buffer
	b.WriteString(preamble)
	section := ""
	for _, m := range modes {
		if m.section != section {
			section = m.section
			fmt.Fprintf(&b, "\n## %s\n\n%s", section, header)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", m.id, cell(m.title), cell(m.must), guardCells(m.guards))
	}
	return b.Bytes()
}

// cell is a text that ends no cell of a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

// guardCells counts the guards and names the packages of their tests, each once, in the order of the table.
func guardCells(guards []guard) string {
	if len(guards) == 0 {
		return "none yet |"
	}
	var packages []string
	for _, g := range guards {
		name := "root"
		if g.pkg != "." {
			name = "`" + strings.TrimPrefix(g.pkg, "./") + "`"
		}
		if !slices.Contains(packages, name) {
			packages = append(packages, name)
		}
	}
	return fmt.Sprintf("%d | %s", len(guards), strings.Join(packages, ", "))
}
