package main

import (
	"encoding/xml"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// sample is a small run of two acts. It holds what XML and the terminal treat in their own ways.
func sample() *recording {
	rec := &recording{Command: `fleet <"&'>`}
	say := func(at time.Duration, texts ...string) {
		for _, text := range texts {
			rec.Lines = append(rec.Lines, line{at, text})
		}
	}
	second := func(n, a, b int) string {
		return fmt.Sprintf("%3d s  \x1b[36m%4d\x1b[0m\x1b[2m   16\x1b[0m\x1b[2m   0\x1b[0m"+
			"  \x1b[33m%4d\x1b[0m   17   0   \x1b[1m%4d\x1b[0m    0  "+
			"\x1b[36m█\x1b[0m\x1b[36m█\x1b[0m\x1b[33m█\x1b[0m│", n, a, b, a+b)
	}
	heads := []string{
		"       \x1b[36m█ replica 1  \x1b[0m  \x1b[33m█ replica 2  \x1b[0m   \x1b[1m    fleet\x1b[0m",
		"       \x1b[2msent wait 429\x1b[0m  \x1b[2msent wait 429\x1b[0m" +
			"   \x1b[2msent  429\x1b[0m  \x1b[2m 100/s\x1b[0m",
	}
	say(0, "", "\x1b[1mOne limit, no store.\x1b[0m 2 processes want <60> & \"more\", 'yes'.", "")
	say(0, heads...)
	say(1000*time.Millisecond, second(1, 60, 50))
	say(1500*time.Millisecond, "\x1b[1m── 1.0 s  replica 2 is killed (pid 7)\x1b[0m; told: 1 in 4.32 ms")
	say(2000*time.Millisecond, "  2 s  \x1b[36m 100\x1b[0m\x1b[2m   16\x1b[0m\x1b[2m   0\x1b[0m"+
		"  \x1b[2m    ·        \x1b[0m   \x1b[1m 100\x1b[0m    0  █│")
	say(2010*time.Millisecond, "", "\x1b[2m  dim over", "  two lines\x1b[0m",
		"\x1b[1;32mEvery bound held.\x1b[0m", "")
	say(2100*time.Millisecond, "", "\x1b[1mA limit that moves.\x1b[0m The upstream changes its limit.",
		"2 processes want 60.")
	say(2100*time.Millisecond, heads...)
	say(2300*time.Millisecond, "\x1b[1m── 0.0 s  all want more\x1b[0m")
	say(3300*time.Millisecond, second(1, 40, 60), "\x1b[1m── 1.0 s  the limit halves\x1b[0m")
	say(4300*time.Millisecond, second(2, 20, 30))
	say(5300*time.Millisecond, second(3, 30, 20))
	say(5400*time.Millisecond, "  scene           limit", "  all want more     100/s   1.000",
		"  the limit halves   50/s   1.000", "The fleet followed.", "")
	return rec
}

// A node is an element of a picture.
type node struct {
	XMLName  xml.Name
	Attrs    []xml.Attr `xml:",any,attr"`
	Text     string     `xml:",chardata"`
	Children []node     `xml:",any"`
}

func (n node) attr(name string) string {
	for _, a := range n.Attrs {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

// each calls visit for the node and all below it.
func (n node) each(visit func(node)) {
	visit(n)
	for _, c := range n.Children {
		c.each(visit)
	}
}

// all are the nodes of a kind, with a class if one is named.
func (n node) all(kind, class string) (found []node) {
	n.each(func(c node) {
		if c.XMLName.Local == kind &&
			(class == "" || slices.Contains(strings.Fields(c.attr("class")), class)) {
			found = append(found, c)
		}
	})
	return found
}

func parsePicture(t *testing.T, svg []byte) node {
	t.Helper()
	var root node
	if err := xml.Unmarshal(svg, &root); err != nil {
		t.Fatal(err)
	}
	return root
}

func number(t *testing.T, text string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func drawn(t *testing.T, rec *recording) (node, *film) {
	t.Helper()
	svg, err := draw(rec)
	if err != nil {
		t.Fatal(err)
	}
	f, err := newFilm(rec)
	if err != nil {
		t.Fatal(err)
	}
	return parsePicture(t, svg), f
}
