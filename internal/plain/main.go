// Command plain checks that the texts of this repository are in plain English. It reads
//
//   - the comments of Go files, and their strings of several words, tests excepted: errors, logs, help
//   - Markdown pages, with the cells of their tables
//   - the page for operators: texts and shown attributes of HTML, comments and strings of scripts
//   - descriptions and titles in JSON: of the API, and of dashboards
//   - the comments of YAML, TOML, units of systemd, shell, Lua, CSS, Makefiles and Dockerfiles
//   - summaries and descriptions in YAML: of alerts
//
// It finds the words and turns of the list in words.go, and sentences of more than 30 words. It also finds
// sentences that begin with "Who", and clauses with a bare "who" as their subject. Cells and titles need not be
// sentences: only the words of the list are looked for there.
//
//	go run ./internal/plain [-columns N] [-count] PATH...
//
// A path is a file, a directory (its files of these kinds), or a directory with /... (all below it). Code
// blocks, directives, addresses of links, quotations and generated files are not read. With -columns, a line
// with a comment may not go past column N. With -count, the hits are counted by rule and not listed. The exit
// status is 1 when there are hits, and 2 when a path cannot be read.
//
// A comment of the form
//
//	//plain:ok why it must stand
//
// excuses the hits of one line, and of the line below first. Where that has none it is the last line with a
// hit above, in the same comment, since gofmt moves directives to the end of a comment. In a page the form is
// <!-- plain:ok why it must stand -->, for the line below. One run accepts five of them.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
)

// maxExcuses is how many excuses one run accepts. More of them would make the rules a matter of taste.
const maxExcuses = 5

func main() {
	columns := flag.Int("columns", 0, "the last column that a comment may use; 0: any")
	count := flag.Bool("count", false, "count the hits by rule instead of listing them")
	flag.Parse()
	files, err := expand(flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "plain:", err)
		os.Exit(2)
	}
	clean, err := run(os.Stdout, files, *columns, *count)
	if err != nil {
		fmt.Fprintln(os.Stderr, "plain:", err)
		os.Exit(2)
	}
	if !clean {
		os.Exit(1)
	}
}

// run checks the files and prints the hits. It reports whether there were none.
func run(w io.Writer, files []string, columns int, count bool) (bool, error) {
	var all []hit
	excuses := 0
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			return false, err
		}
		hits, excused, err := check(file, src, columns)
		if err != nil {
			return false, err
		}
		all = append(all, hits...)
		excuses += excused
	}
	if count {
		printCounts(w, all)
	} else {
		for _, h := range all {
			fmt.Fprintf(w, "%s:%d: %s: %s\n", h.file, h.line, h.rule, h.text)
		}
	}
	if excuses > maxExcuses {
		fmt.Fprintf(w, "%d lines are excused by plain:ok, and at most %d may be\n", excuses, maxExcuses)
	}
	return len(all) == 0 && excuses <= maxExcuses, nil
}

// printCounts prints how many hits each rule has, the most first, and their sum.
func printCounts(w io.Writer, hits []hit) {
	counts := map[string]int{}
	for _, h := range hits {
		counts[h.rule]++
	}
	rules := make([]string, 0, len(counts))
	for rule := range counts {
		rules = append(rules, rule)
	}
	slices.SortFunc(rules, func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	for _, rule := range rules {
		fmt.Fprintf(w, "%6d  %s\n", counts[rule], rule)
	}
	fmt.Fprintf(w, "%6d  in all\n", len(hits))
}
