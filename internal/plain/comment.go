package main

import (
	"path/filepath"
	"regexp"
	"strings"
)

// marks are the marks of a comment by the name of a file, or by its extension. A style sheet has its own.
var marks = map[string]string{
	".css": "/*", ".lua": "--", ".service": "#", ".sh": "#", ".toml": "#", ".yaml": "#", ".yml": "#",
	"Caddyfile": "#", "Dockerfile": "#", "Makefile": "#", "run": "#",
}

// commentMark returns the mark of a comment in a file of settings, a script or a style sheet, or "".
func commentMark(file string) string {
	if ext := filepath.Ext(file); ext != "" {
		return marks[ext]
	}
	return marks[filepath.Base(file)]
}

var (
	cssComment = regexp.MustCompile(`(?s)/\*.*?\*/`)
	cssMarks   = regexp.MustCompile(`^[\s*/]+|[\s*/]+$`)
	yamlText   = regexp.MustCompile(`^(\s*)(?:- )?(?:summary|description|title): +["']?(.*?)["']?$`)
	settings   = regexp.MustCompile(`^[\w."-]+ ?[:=] |^\[+[\w."-]+\]+$|^[\w."-]+:$`)
)

// readComments returns the comments of a file, and in YAML its summaries and descriptions. A setting that is
// commented out is code. A comment behind code need not be a sentence.
func readComments(src []byte, mark string) page {
	var p page
	if mark == "/*" {
		p.readCSS(string(src))
		return p
	}
	behind := regexp.MustCompile(`^[^"']*(?:(?:"[^"]*"|'[^']*')[^"']*)*\s` + mark + `+ +(.*)$`)
	var open []line
	flush := func() { p.sentence(open); open = nil }
	value, deep := false, 0 // within a text of YAML, and how far its key is indented
	for i, text := range strings.Split(string(src), "\n") {
		trimmed := strings.TrimSpace(text)
		comment, isComment := strings.CutPrefix(trimmed, mark)
		comment = strings.TrimSpace(strings.TrimLeft(comment, mark))
		m := yamlText.FindStringSubmatch(text)
		switch {
		case value && !isComment && len(text)-len(strings.TrimLeft(text, " ")) > deep:
			open = append(open, line{i + 1, trimmed})
			continue
		case isComment && !value && comment != "" && !settings.MatchString(comment) && comment[0] != '!':
			if at := listMark.FindString(comment); at != "" {
				flush()
				comment = comment[len(at):]
			}
			open = append(open, line{i + 1, comment})
			continue
		}
		flush()
		if value = mark == "#" && m != nil; value {
			deep = len(m[1])
			open = []line{{i + 1, strings.TrimLeft(m[2], ">|-")}}
		} else if m := behind.FindStringSubmatch(text); m != nil && !isComment {
			p.blocks = append(p.blocks, block{group: noGroup - 2, lines: []line{{i + 1, m[1]}}, cell: true})
		}
	}
	flush()
	return p
}

// readCSS adds the comments of a style sheet. An empty line ends a paragraph of one.
func (p *page) readCSS(src string) {
	for _, at := range cssComment.FindAllStringIndex(src, -1) {
		number := 1 + strings.Count(src[:at[0]], "\n")
		var open []line
		for i, text := range strings.Split(src[at[0]:at[1]], "\n") {
			text = cssMarks.ReplaceAllString(text, "")
			if text == "" {
				p.sentence(open)
				open = nil
				continue
			}
			open = append(open, line{number + i, text})
		}
		p.sentence(open)
	}
}
