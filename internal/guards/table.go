package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// mode is one failure mode: what goes wrong elsewhere, what must happen here.
type mode struct {
	section, id, title, must string
	guards                   []guard
}

// guard is a place in the code that holds a failure mode, and the test that notices its absence.
type guard struct {
	mode          string // id of the failure mode
	file          string // relative to the module
	find, replace string // find stands exactly once in file
	pkg, test     string // package as go test takes it, regular expression for -run
}

// Keys of the table. Each stands at the start of a line. A find or replace goes on over the
// following lines until the next key; the others are one line.
const (
	keySection = "section"
	keyMode    = "mode"
	keyMust    = "must"
	keyGuard   = "guard"
	keyPackage = "package"
	keyTest    = "test"
	keyFind    = "find"
	keyReplace = "replace"
)

var keyLine = regexp.MustCompile(`^(section|mode|must|guard|package|test|find|replace):(.*)$`)

// parser reads the table line by line.
type parser struct {
	section string
	modes   []mode
	text    *string // the find or replace that goes on, or nil
	seen    map[string]bool
}

// parse reads a table and checks that every mode and guard in it is complete.
func parse(text string) ([]mode, error) {
	p := parser{seen: map[string]bool{}}
	for i, line := range strings.Split(text, "\n") {
		if err := p.line(line); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	for i := range p.modes {
		if err := p.modes[i].finish(); err != nil {
			return nil, err
		}
	}
	if len(p.modes) == 0 {
		return nil, fmt.Errorf("no failure mode in the table")
	}
	return p.modes, nil
}

func (p *parser) line(line string) error {
	if strings.HasPrefix(line, "#") {
		return nil
	}
	m := keyLine.FindStringSubmatch(line)
	switch {
	case m != nil:
		return p.field(m[1], strings.TrimSpace(m[2]))
	case p.text != nil:
		*p.text += line + "\n"
		return nil
	case strings.TrimSpace(line) == "":
		return nil
	}
	return fmt.Errorf("%q is neither a key nor part of a find or replace", line)
}

func (p *parser) field(key, value string) error {
	p.text = nil
	switch key {
	case keySection:
		p.section = value
		return nil
	case keyMode:
		return p.startMode(value)
	}
	if len(p.modes) == 0 {
		return fmt.Errorf("%s: stands before the first mode", key)
	}
	m := &p.modes[len(p.modes)-1]
	switch key {
	case keyMust:
		return setOnce(key, &m.must, value)
	case keyGuard:
		m.guards = append(m.guards, guard{mode: m.id, file: value})
		return nil
	}
	if len(m.guards) == 0 {
		return fmt.Errorf("%s: stands before the first guard of mode %s", key, m.id)
	}
	return p.guardField(&m.guards[len(m.guards)-1], key, value)
}

func (p *parser) guardField(g *guard, key, value string) error {
	switch key {
	case keyPackage:
		return setOnce(key, &g.pkg, value)
	case keyTest:
		return setOnce(key, &g.test, value)
	}
	text := &g.find
	if key == keyReplace {
		text = &g.replace
	}
	if value != "" {
		return fmt.Errorf("%s: the text starts on the next line", key)
	}
	if *text != "" {
		return fmt.Errorf("%s: given twice", key)
	}
	p.text = text
	return nil
}

func setOnce(key string, field *string, value string) error {
	if *field != "" {
		return fmt.Errorf("%s: given twice", key)
	}
	*field = value
	return nil
}

func (p *parser) startMode(value string) error {
	id, title, _ := strings.Cut(value, " ")
	if id == "" || title == "" {
		return fmt.Errorf("mode: %q is not a number and a title", value)
	}
	if p.seen[id] {
		return fmt.Errorf("mode: %s is there twice", id)
	}
	p.seen[id] = true
	p.modes = append(p.modes, mode{section: p.section, id: id, title: title})
	return nil
}

// finish checks that nothing is missing and cuts empty lines around the texts.
func (m *mode) finish() error {
	if m.must == "" {
		return fmt.Errorf("mode %s: must is missing", m.id)
	}
	for i := range m.guards {
		g := &m.guards[i]
		g.find = strings.Trim(g.find, "\n")
		g.replace = strings.Trim(g.replace, "\n")
		for _, f := range [][2]string{{keyGuard, g.file}, {keyPackage, g.pkg}, {keyTest, g.test}, {keyFind, g.find}} {
			if f[1] == "" {
				return fmt.Errorf("mode %s, guard %d: %s is missing", m.id, i+1, f[0])
			}
		}
		if strings.Contains(g.pkg, "...") {
			return fmt.Errorf("mode %s, guard %d: package: %q is not one package", m.id, i+1, g.pkg)
		}
		if _, err := regexp.Compile(g.test); err != nil {
			return fmt.Errorf("mode %s, guard %d: test: %w", m.id, i+1, err)
		}
	}
	return nil
}

// pick returns the modes whose ids are listed, separated by commas; all of them for an empty list.
func pick(modes []mode, only string) ([]mode, error) {
	if only == "" {
		return modes, nil
	}
	var picked []mode
	for id := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(modes, func(m mode) bool { return m.id == strings.TrimSpace(id) })
		if i < 0 {
			return nil, fmt.Errorf("-only: there is no mode %q", id)
		}
		picked = append(picked, modes[i])
	}
	return picked, nil
}
