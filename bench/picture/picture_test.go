package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
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
		return fmt.Sprintf("%3d s  \x1b[36m%4d\x1b[0m\x1b[2m   16\x1b[0m\x1b[2m   0\x1b[0m  \x1b[33m%4d\x1b[0m   17   0   \x1b[1m%4d\x1b[0m"+
			"    0  \x1b[36m█\x1b[0m\x1b[36m█\x1b[0m\x1b[33m█\x1b[0m│", n, a, b, a+b)
	}
	heads := []string{
		"       \x1b[36m█ replica 1  \x1b[0m  \x1b[33m█ replica 2  \x1b[0m   \x1b[1m    fleet\x1b[0m",
		"       \x1b[2msent wait 429\x1b[0m  \x1b[2msent wait 429\x1b[0m   \x1b[2msent  429\x1b[0m  \x1b[2m 100/s\x1b[0m",
	}
	say(0, "", "\x1b[1mOne limit, no store.\x1b[0m 2 processes want <60> & \"more\", 'yes'.", "")
	say(0, heads...)
	say(1000*time.Millisecond, second(1, 60, 50))
	say(1500*time.Millisecond, "\x1b[1m── 1.0 s  replica 2 is killed (pid 7)\x1b[0m; told: 1 in 4.32 ms")
	say(2000*time.Millisecond, "  2 s  \x1b[36m 100\x1b[0m\x1b[2m   16\x1b[0m\x1b[2m   0\x1b[0m  \x1b[2m    ·        \x1b[0m   \x1b[1m 100\x1b[0m    0  █│")
	say(2010*time.Millisecond, "", "\x1b[2m  dim over", "  two lines\x1b[0m", "\x1b[1;32mEvery bound held.\x1b[0m", "")
	say(2100*time.Millisecond, "", "\x1b[1mA limit that moves.\x1b[0m The upstream changes its limit.", "2 processes want 60.")
	say(2100*time.Millisecond, heads...)
	say(2300*time.Millisecond, "\x1b[1m── 0.0 s  all want more\x1b[0m")
	say(3300*time.Millisecond, second(1, 40, 60), "\x1b[1m── 1.0 s  the limit halves\x1b[0m")
	say(4300*time.Millisecond, second(2, 20, 30))
	say(5300*time.Millisecond, second(3, 30, 20))
	say(5400*time.Millisecond, "  scene           limit", "  all want more     100/s   1.000", "  the limit halves   50/s   1.000", "The fleet followed.", "")
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
		if c.XMLName.Local == kind && (class == "" || strings.Contains(" "+c.attr("class")+" ", " "+class+" ")) {
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

// printed are the lines of the terminal in a picture, put together from their pieces.
func printed(t *testing.T, root node, lines int) []string {
	t.Helper()
	grid := make([][]rune, lines)
	put := func(y, x, text string, above float64) {
		row := int((number(t, y) + above - 12) / lineHeight)
		col := (number(t, x) - margin) / cellWidth
		for i, r := range []rune(text) {
			for len(grid[row]) <= int(col)+i {
				grid[row] = append(grid[row], ' ')
			}
			grid[row][int(col)+i] = r
		}
	}
	screen := root.all("g", "screen")[0]
	for _, text := range screen.all("text", "") {
		for _, span := range text.all("tspan", "") {
			put(text.attr("y"), span.attr("x"), span.Text, 0)
		}
	}
	for _, bar := range screen.all("rect", "") {
		if bar.attr("class") != "cover below" {
			put(bar.attr("y"), bar.attr("x"), strings.Repeat("█", int(number(t, bar.attr("width"))/cellWidth)), 9)
		}
	}
	texts := make([]string, lines)
	for i, row := range grid {
		texts[i] = string(row)
	}
	return texts
}

// The picture shows what was recorded, to the letter, in the same places.
func TestPictureShowsWhatWasRecorded(t *testing.T) {
	for name, rec := range map[string]*recording{"sample": sample(), "fleet": committed(t)} {
		root, f := drawn(t, rec)
		for i, got := range printed(t, root, len(f.Lines)) {
			if want := strings.TrimRight(plain(f.Lines[i].Text), " "); got != want {
				t.Errorf("%s: line %d: drawn %q, recorded %q", name, i+1, got, want)
			}
		}
		if title := root.all("title", "")[0].Text; !strings.Contains(title, rec.Command) {
			t.Errorf("%s: title %q", name, title)
		}
	}
}

// animations are the keyframes of each class: the value from each part of the replay on.
func animations(t *testing.T, root node) (frames map[string]map[float64]string, rest map[string]string, seconds map[string]float64) {
	t.Helper()
	frames, rest, seconds = map[string]map[float64]string{}, map[string]string{}, map[string]float64{}
	style := root.all("style", "")[0].Text
	for _, m := range regexp.MustCompile(`@keyframes (\S+) \{((?: [0-9.]+% \{ [^}]* \})+) \}`).FindAllStringSubmatch(style, -1) {
		frames[m[1]] = map[float64]string{}
		for _, k := range regexp.MustCompile(`([0-9.]+)% \{ ([^}]*) \}`).FindAllStringSubmatch(m[2], -1) {
			frames[m[1]][number(t, k[1])] = k[2]
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^\.(\S+) \{ ([^;{}]*); animation: (\S+) ([0-9.]+)s step-end infinite \}$`).FindAllStringSubmatch(style, -1) {
		if m[1] != m[3] {
			t.Errorf("class %s plays %s", m[1], m[3])
		}
		rest[m[1]], seconds[m[1]] = m[2], number(t, m[4])
	}
	if len(frames) == 0 || len(frames) != len(rest) {
		t.Fatalf("%d animations, %d classes", len(frames), len(rest))
	}
	return frames, rest, seconds
}

// valueAt is what an animation shows at a part of the replay.
func valueAt(frames map[float64]string, percent float64) string {
	last, value := -1.0, ""
	for at, v := range frames {
		if at <= percent && at > last {
			last, value = at, v
		}
	}
	return value
}

// The replay takes as long as its acts at their paces and the pauses after them, in all of its animations. What
// stands still without motion is its last frame.
func TestReplayTakesTheSum(t *testing.T) {
	root, f := drawn(t, sample())
	frames, rest, seconds := animations(t, root)
	want := 2.01 + 3 + (5.4-2.01)/4 + 4
	if got := f.Length.Seconds(); math.Abs(got-want) > 1e-6 {
		t.Errorf("the replay takes %v s, want %v", got, want)
	}
	for class := range frames {
		if math.Abs(seconds[class]-want) > 1e-6 {
			t.Errorf("%s takes %v s, want %v", class, seconds[class], want)
		}
		if last := valueAt(frames[class], 100); rest[class] != last {
			t.Errorf("%s rests at %q and ends at %q", class, rest[class], last)
		}
		if _, begins := frames[class][0]; !begins {
			t.Errorf("%s has no value at the start", class)
		}
	}
	if style := root.all("style", "")[0].Text; !strings.Contains(style, "(prefers-reduced-motion: reduce) { * { animation: none") ||
		!strings.Contains(style, "(prefers-color-scheme: dark)") {
		t.Error("the picture does not mind what its reader prefers")
	}
}

// Each line is covered until the instant at which it was printed, at the pace of its act. Once the terminal is full
// the newest line stands at its bottom.
func TestLinesAppearWhenTheyWerePrinted(t *testing.T) {
	for name, rec := range map[string]*recording{"sample": sample(), "fleet": committed(t)} {
		root, f := drawn(t, rec)
		frames, _, seconds := animations(t, root)
		shift := func(class string, at float64) int {
			n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(valueAt(frames[class], 100*at/seconds[class]), "transform: translateY("), "px)"))
			if err != nil {
				t.Fatal(err)
			}
			return n / lineHeight
		}
		start := 0.0
		for n, a := range f.Acts {
			first := f.Lines[a.From].At
			for i := a.From; i < a.To; i++ {
				at := start + (f.Lines[i].At-first).Seconds()/float64(paces[n].Times)
				before, after := shift("below", max(0, at-0.03)), shift("below", at+0.001)
				if after <= i || before > i && at > 0.03 {
					t.Errorf("%s: line %d of %v: %d lines are shown before and %d after", name, i+1, f.Lines[i].At, before, after)
				}
				if up := -shift("screen", at+0.001); up != max(0, after-rows) {
					t.Errorf("%s: line %d: the terminal is %d lines up with %d shown", name, i+1, up, after)
				}
			}
			start += (f.Lines[a.To-1].At-first).Seconds()/float64(paces[n].Times) + paces[n].Pause.Seconds()
		}
	}
}

// The chart draws the numbers of the table, and the limit of each second.
func TestChartDrawsTheTable(t *testing.T) {
	for name, rec := range map[string]*recording{"sample": sample(), "fleet": committed(t)} {
		root, f := drawn(t, rec)
		chart := root.all("svg", "sans")[0].all("g", "")[0]
		var sent []float64
		for _, a := range f.Acts {
			for _, s := range a.Seconds {
				for _, n := range s.Sent {
					if n > 0 {
						sent = append(sent, float64(n))
					}
				}
			}
		}
		var bars []node
		for _, bar := range chart.all("rect", "") {
			if bar.attr("class") != "cover later" {
				bars = append(bars, bar)
			}
		}
		if len(bars) != len(sent) || len(sent) < 6 {
			t.Fatalf("%s: %d bars, %d numbers", name, len(bars), len(sent))
		}
		scale := f.plots()[0].scale
		for i, bar := range bars {
			if got := number(t, bar.attr("height")) / scale; math.Abs(got-sent[i]) > 0.06/scale {
				t.Errorf("%s: bar %d is %v high, want %v", name, i, got, sent[i])
			}
		}
	}
	f, err := newFilm(sample())
	if err != nil {
		t.Fatal(err)
	}
	want := []second{{Line: 4, N: 1, Sent: []int{60, 50}}, {Line: 6, N: 2, Sent: []int{100, 0}}}
	if got := fmt.Sprint(f.Acts[0].Seconds); got != fmt.Sprint(want) {
		t.Errorf("read %v, want %v", got, want)
	}
	for n, limit := range []float64{100, 50, 50} {
		if got := f.Acts[1].limitIn(n + 1); got != limit {
			t.Errorf("limit in second %d: %v, want %v", n+1, got, limit)
		}
	}
}

// A picture in a page may hold no script, no foreign element and nothing from elsewhere: it would not be shown.
func TestPictureStandsAlone(t *testing.T) {
	root, _ := drawn(t, committed(t))
	root.each(func(n node) {
		switch n.XMLName.Local {
		case "svg", "title", "desc", "style", "rect", "path", "text", "tspan", "g":
		default:
			t.Errorf("element %s", n.XMLName.Local)
		}
		for _, a := range n.Attrs {
			if strings.HasPrefix(a.Name.Local, "on") || a.Name.Local == "href" || a.Name.Local == "style" {
				t.Errorf("attribute %s", a.Name.Local)
			}
		}
	})
	if style := root.all("style", "")[0].Text; strings.Contains(style, "url(") || strings.Contains(style, "@import") || strings.Contains(style, "@font-face") {
		t.Error("the style loads something")
	}
}

// committed is the recording that the picture of the pages was drawn from.
func committed(t *testing.T) *recording {
	t.Helper()
	rec, err := readCast("fleet.cast")
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// The picture of the pages is what this program draws from the recording beside it, and nothing else. It is small, and
// replays in a time that a reader has.
func TestPictureIsThatOfTheRecording(t *testing.T) {
	rec := committed(t)
	svg, err := draw(rec)
	if err != nil {
		t.Fatal(err)
	}
	shown, err := os.ReadFile("../../docs/pictures/fleet.svg")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(svg, shown) {
		t.Error("docs/pictures/fleet.svg is not drawn from bench/picture/fleet.cast: run go run ./bench/picture -redraw")
	}
	_, f := drawn(t, rec)
	if len(f.Acts) != 2 || f.Length < 20*time.Second || f.Length > 25*time.Second {
		t.Errorf("%d acts in %v, want 2 in 20 to 25 seconds", len(f.Acts), f.Length)
	}
}

// A recording that would make a large, empty or endless picture is refused.
func TestDrawRefuses(t *testing.T) {
	add := func(texts ...string) *recording {
		rec := sample()
		for _, text := range texts {
			rec.Lines = append(rec.Lines, line{rec.Lines[len(rec.Lines)-1].At, text})
		}
		return rec
	}
	late := sample()
	late.Lines[len(late.Lines)-2].At += 5 * time.Minute
	late.Lines[len(late.Lines)-1].At += 5 * time.Minute
	many := make([]string, 300)
	for i := range many {
		many[i] = strings.Repeat("a  ", columns/3)
	}
	for why, rec := range map[string]*recording{
		"no line of the fleet's table": {Lines: []line{{0, "hello"}}},
		"bytes, more than 150000":      add(many...),
		"does not fit into 109":        add(strings.Repeat("x", columns+1)),
		"no colour of the fleet":       add("\x1b[45mpink\x1b[0m"),
		"not between 0 and a minute":   late,
		"second 9 follows second 3":    add("  9 s    36   17   0"),
		"A third.\": no line":          add("\x1b[1mA third.\x1b[0m 3 processes"),
		"invalid syntax":               add("  4 s  oops"),
		"made for 1 to 2":              add(plays(1)...),
	} {
		if _, err := draw(rec); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("error %v, want one with %q", err, why)
		}
	}
}

// plays are the lines of another act.
func plays(seconds int) []string {
	texts := []string{"\x1b[1mOnce more.\x1b[0m 1 processes", "       █ replica 1", "       sent wait 429   sent  429  100/s"}
	for n := range seconds {
		texts = append(texts, fmt.Sprintf("%3d s    36   17   0", n+1))
	}
	return texts
}

// However a line is coloured, its pieces put together are the line.
func TestPropertyPiecesKeepTheLine(t *testing.T) {
	part := rapid.SampledFrom([]string{" ", "  ", "a", "<", "█", "██", "│", "é", "\x1b[36m", "\x1b[1;31m", "\x1b[0m"})
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(part, 0, 40).Draw(t, "parts"), "")
		all, _, err := pieces(text, "")
		if err != nil {
			t.Fatal(err)
		}
		var got []rune
		for _, p := range all {
			if strings.TrimSpace(p.Text) != p.Text || p.Text == "" || strings.Contains(p.Text, "  ") {
				t.Fatalf("piece %q", p.Text)
			}
			if p.bar() && strings.Trim(p.Text, "█") != "" || !p.bar() && strings.Contains(p.Text, "█") {
				t.Fatalf("piece %q is half a bar", p.Text)
			}
			if p.Column < len(got) {
				t.Fatalf("piece %q lies on another", p.Text)
			}
			got = append(got, []rune(strings.Repeat(" ", p.Column-len(got))+p.Text)...)
		}
		if want := strings.TrimRight(plain(text), " "); string(got) != want {
			t.Fatalf("%q became %q", want, string(got))
		}
	})
}
