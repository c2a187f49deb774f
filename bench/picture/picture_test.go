package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

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
			cells := int(number(t, bar.attr("width")) / cellWidth)
			put(bar.attr("y"), bar.attr("x"), strings.Repeat("█", cells), 9)
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

// values are what an animation shows from each part of the replay on, in percent.
type values map[float64]string

// The rules of a picture's style that animate it.
var (
	keyframes = regexp.MustCompile(`@keyframes (\S+) \{((?: [0-9.]+% \{ [^}]* \})+) \}`)
	keyframe  = regexp.MustCompile(`([0-9.]+)% \{ ([^}]*) \}`)
	played    = regexp.MustCompile(
		`(?m)^\.(\S+) \{ ([^;{}]*); animation: (\S+) ([0-9.]+)s step-end infinite \}$`)
)

// animations are those of each class, what stands still without them, and how long they take.
func animations(t *testing.T, root node) (frames map[string]values, rest map[string]string,
	seconds map[string]float64) {
	t.Helper()
	frames, rest, seconds = map[string]values{}, map[string]string{}, map[string]float64{}
	style := root.all("style", "")[0].Text
	for _, m := range keyframes.FindAllStringSubmatch(style, -1) {
		frames[m[1]] = values{}
		for _, k := range keyframe.FindAllStringSubmatch(m[2], -1) {
			frames[m[1]][number(t, k[1])] = k[2]
		}
	}
	for _, m := range played.FindAllStringSubmatch(style, -1) {
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
func (all values) at(percent float64) string {
	last, value := -1.0, ""
	for at, v := range all {
		if at <= percent && at > last {
			last, value = at, v
		}
	}
	return value
}

// The replay takes as long as its acts at their paces and the pauses after them, in all of its animations. A
// picture without motion shows its last frame.
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
		if last := frames[class].at(100); rest[class] != last {
			t.Errorf("%s rests at %q and ends at %q", class, rest[class], last)
		}
		if _, begins := frames[class][0]; !begins {
			t.Errorf("%s has no value at the start", class)
		}
	}
	style := root.all("style", "")[0].Text
	for _, want := range []string{"(prefers-reduced-motion: reduce) { * { animation: none", "scheme: dark)"} {
		if !strings.Contains(style, want) {
			t.Errorf("the style has no %s", want)
		}
	}
}

// Each line is covered until the instant at which it was printed, at the pace of its act. Once the terminal
// is full the newest line stands at its bottom.
func TestLinesAppearWhenTheyWerePrinted(t *testing.T) {
	for name, rec := range map[string]*recording{"sample": sample(), "fleet": committed(t)} {
		root, f := drawn(t, rec)
		frames, _, seconds := animations(t, root)
		shift := func(class string, at float64) int {
			var n int
			value := frames[class].at(100 * at / seconds[class])
			if _, err := fmt.Sscanf(value, "transform: translateY(%dpx)", &n); err != nil {
				t.Fatal(value, err)
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
					t.Errorf("%s: line %d of %v: %d lines are shown before and %d after", name, i+1,
						f.Lines[i].At, before, after)
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

// A picture in a page may hold no script, no foreign element and nothing from elsewhere: it would not be
// shown.
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
	style := root.all("style", "")[0].Text
	for _, loads := range []string{"url(", "@import", "@font-face"} {
		if strings.Contains(style, loads) {
			t.Errorf("the style has %s", loads)
		}
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

// The picture of the pages is what this program draws from the recording beside it, and nothing else. It is
// small, and replays in a time that a reader has.
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
		t.Error("docs/pictures/fleet.svg is not that of fleet.cast: go run ./bench/picture -redraw")
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
	texts := []string{"\x1b[1mOnce more.\x1b[0m 1 processes", "       █ replica 1",
		"       sent wait 429   sent  429  100/s"}
	for n := range seconds {
		texts = append(texts, fmt.Sprintf("%3d s    36   17   0", n+1))
	}
	return texts
}

// However a line is coloured, its pieces put together are the line.
func TestPropertyPiecesKeepTheLine(t *testing.T) {
	part := rapid.SampledFrom([]string{" ", "  ", "a", "<", "█", "██", "│", "é", "\x1b[36m", "\x1b[1;31m",
		"\x1b[0m"})
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
