package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

const preamble = `# Failure modes

<!-- Generated from internal/guards/guards.txt by make docs. Edit that file. -->

Each of these was seen in a rate limiter, a proxy or a library that people run. For each the page
says what quotient must do, and where the code holds it. ` + "`make guards`" + ` takes each guard out
and requires that the named test fails. A mode without a guard says so.
`

// page renders the failure modes as Markdown.
func page(modes []mode) []byte {
	var b bytes.Buffer
	b.WriteString(preamble)
	section := ""
	for _, m := range modes {
		if m.section != section {
			section = m.section
			fmt.Fprintf(&b, "\n## %s\n", section)
		}
		fmt.Fprintf(&b, "\n**%s. %s.** %s\n", m.id, strings.TrimSuffix(m.title, "."), m.must)
		if len(m.guards) == 0 {
			b.WriteString("\n- not guarded yet\n")
			continue
		}
		b.WriteByte('\n')
		b.WriteString(strings.Join(guardLines(m.guards), ""))
	}
	return b.Bytes()
}

// guardLines names where guards are and what holds them, each pair once.
func guardLines(guards []guard) []string {
	var lines []string
	for _, g := range guards {
		test := strings.TrimSuffix(strings.TrimPrefix(g.test, "^"), "$")
		line := fmt.Sprintf("- `%s`, held by `%s` in `%s`\n", g.file, test, g.pkg)
		if !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return lines
}
