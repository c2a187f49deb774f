package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// An act is a part of the output that has a title and a table.
type act struct {
	Title    string
	From, To int // its lines: from the title up to the next one
	Replicas int
	Limit    float64 // requests a second at the start
	Seconds  []second
	Events   []event
}

// A second is one line of the table.
type second struct {
	Line int   // where it stands
	N    int   // 1, 2, … from the start of the act
	Sent []int // by each replica
}

// An event is what happened between two lines of the table.
type event struct {
	Line  int
	At    float64 // seconds from the start of the act
	Title string  // as printed
	Limit float64 // from then on, if the summary of the act names one, else 0
}

// The lines of the fleet's output, without colours.
var (
	titled   = regexp.MustCompile(`^\x1b\[1m([^\x1b]+\.)\x1b\[0m (?:\d+ processes|The upstream)`)
	heads    = regexp.MustCompile(`replica \d+`)
	marked   = regexp.MustCompile(`^ +(?:sent wait 429 +)+sent +429 +([0-9.]+)/s$`)
	tabled   = regexp.MustCompile(`^ *(\d+) s  `)
	happened = regexp.MustCompile(`^── ([0-9.]+) s  ([^;]+)`)
	limited  = regexp.MustCompile(`^  (\S.*?) {2,}([0-9.]+)/s `)
)

// The columns of the table, in characters.
const (
	tableMargin = 5  // of "  1 s"
	tableCell   = 15 // of two spaces, sent, waiting and 429s
	cellMargin  = 2
	cellSent    = 6 // the end of the first number
)

// isSecond reports whether a line is one of the table.
func (a *act) isSecond(i int) bool {
	for _, s := range a.Seconds {
		if s.Line == i {
			return true
		}
	}
	return false
}

// readActs finds the acts of a recording. Lines before the first title belong to the first act.
func readActs(lines []line) ([]act, error) {
	var acts []act
	for i, l := range lines {
		if m := titled.FindStringSubmatch(l.Text); m != nil {
			from := i
			for from > 0 && plain(lines[from-1].Text) == "" {
				from--
			}
			if n := len(acts); n > 0 {
				acts[n-1].To = from
			}
			acts = append(acts, act{Title: m[1], From: from})
		}
		if len(acts) == 0 {
			continue
		}
		if err := acts[len(acts)-1].read(i, plain(l.Text)); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	if len(acts) == 0 {
		return nil, errNoTable
	}
	acts[0].From, acts[len(acts)-1].To = 0, len(lines)
	for _, a := range acts {
		if len(a.Seconds) == 0 || a.Limit == 0 || a.Replicas == 0 {
			return nil, fmt.Errorf("%q: %w", a.Title, errNoTable)
		}
	}
	return acts, nil
}

// read takes from a line what the chart needs.
func (a *act) read(i int, text string) (err error) {
	if m := marked.FindStringSubmatch(text); m != nil {
		a.Limit, err = strconv.ParseFloat(m[1], 64)
		return err
	}
	if m := happened.FindStringSubmatch(text); m != nil {
		at, err := strconv.ParseFloat(m[1], 64)
		a.Events = append(a.Events, event{Line: i, At: at, Title: strings.TrimSpace(m[2])})
		return err
	}
	if m := limited.FindStringSubmatch(text); m != nil {
		return a.limit(m[1], m[2])
	}
	if m := tabled.FindStringSubmatch(text); m != nil && a.Replicas > 0 {
		return a.second(i, m[1], text)
	}
	if n := len(heads.FindAllString(text, -1)); n > 0 && a.Replicas == 0 {
		a.Replicas = n
	}
	return nil
}

// limit notes the limit of the summary at the event that has the same title.
func (a *act) limit(title, limit string) error {
	l, err := strconv.ParseFloat(limit, 64)
	for i := range a.Events {
		if a.Events[i].Title == title {
			a.Events[i].Limit = l
		}
	}
	return err
}

// second reads a line of the table. A replica that is not there has a dot and no number.
func (a *act) second(i int, n, text string) error {
	s := second{Line: i, Sent: make([]int, a.Replicas)}
	var err error
	if s.N, err = strconv.Atoi(n); err != nil {
		return err
	}
	if s.N != len(a.Seconds)+1 {
		return fmt.Errorf("second %d follows second %d", s.N, len(a.Seconds))
	}
	cells := []rune(text)
	for r := range s.Sent {
		from := tableMargin + r*tableCell + cellMargin
		if to := tableMargin + r*tableCell + cellSent; to <= len(cells) {
			sent := strings.Trim(string(cells[from:to]), " ·")
			if sent == "" {
				continue
			}
			if s.Sent[r], err = strconv.Atoi(sent); err != nil {
				return err
			}
		}
	}
	a.Seconds = append(a.Seconds, s)
	return nil
}

// limitIn is the limit in the n-th second.
func (a *act) limitIn(n int) float64 {
	limit := a.Limit
	for _, e := range a.Events {
		if e.Limit > 0 && e.At < float64(n)-0.5 {
			limit = e.Limit
		}
	}
	return limit
}
