package main

import (
	"fmt"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// testLines is the most lines that a file of tests has.
const testLines = 450

// measureTests counts what is too wide and too long in the test files of all modules.
func (m *measured) measureTests(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && path != dir && (name == "testdata" || strings.ContainsRune("._", rune(name[0]))):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, "_test.go"):
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		wide := wideLines(path, src, rawLines(src))
		m.figures["lines over 110 columns in tests"] += len(wide)
		m.places = append(m.places, wide...)
		if n := strings.Count(string(src), "\n"); n > testLines {
			m.figures["test files over 450 lines"]++
			m.places = append(m.places, fmt.Sprintf("%s: %d lines", path, n))
		}
		return nil
	})
}

// rawLines finds the lines of raw strings that have more than one line, or no room on a line of their own.
func rawLines(src []byte) map[int]bool {
	written, lines := strings.Split(string(src), "\n"), map[int]bool{}
	eachToken(src, func(line int, tok token.Token, text string) {
		if tok != token.STRING || text[0] != '`' {
			return
		}
		own, more := written[line-1], strings.Count(text, "\n")
		indent := len(own) - len(strings.TrimLeft(own, "\t"))
		if more == 0 && 4*(indent+1)+utf8.RuneCountInString(text)+len(",") <= columns {
			return
		}
		for i := range more + 1 {
			lines[line+i] = true
		}
	})
	return lines
}
