package main

import (
	"encoding/xml"
	"fmt"
	"strings"
)

// Sizes of the picture, in pixels.
const (
	pictureWidth = 860
	margin       = 20
	cellWidth    = 7.5
	lineHeight   = 16
	barTop       = 38 // of the terminal, below its title
	screenHeight = rows*lineHeight + 10
	chartTop     = barTop + screenHeight + 8
	totalHeight  = chartTop + chartHeight
)

// mostBytes bounds the picture: it is loaded with the first page that a reader sees.
const mostBytes = 150_000

// A drawing is a picture in the making. Rules are its style, Body its elements.
type drawing struct {
	film *film
	rule strings.Builder
	body strings.Builder
}

// draw draws a recording. The same recording gives the same bytes.
func draw(rec *recording) ([]byte, error) {
	f, err := newFilm(rec)
	if err != nil {
		return nil, err
	}
	d := &drawing{film: f}
	d.title(rec.Command)
	if err := d.terminal(); err != nil {
		return nil, err
	}
	d.chart()
	var svg strings.Builder
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d"
  role="img" aria-labelledby="fleet-title fleet-desc">
<title id="fleet-title">%s</title>
<desc id="fleet-desc">%s</desc>
<style>
%s%s%s</style>
<rect class="panel" x=".5" y=".5" width="%d" height="%d" rx="8"/>
%s</svg>
`, pictureWidth, totalHeight, escape("A recording of "+rec.Command), escape(f.describe()),
		look, d.rule.String(), still, pictureWidth-1, totalHeight-1, d.body.String())
	if svg.Len() > mostBytes {
		return nil, fmt.Errorf("the picture has %d bytes, more than %d", svg.Len(), mostBytes)
	}
	return []byte(svg.String()), nil
}

// look is what does not depend on the recording.
const look = `svg { --panel: #ffffff; --edge: #d0d7de; --text: #24292f; --dim: #57606a;
--red: #cf222e; --good: #1a7f37;
--p1: #0969da; --p2: #bf8700; --p3: #8250df; --p4: #2da44e; --i2: #7d4e00; --i4: #1a7f37 }
@media (prefers-color-scheme: dark) { svg { --panel: #0d1117; --edge: #30363d; --text: #e6edf3; --dim: #8b949e;
--red: #ff7b72; --good: #3fb950;
--p1: #58a6ff; --p2: #d29922; --p3: #bc8cff; --p4: #3fb950; --i2: #d29922; --i4: #3fb950 } }
text { font: 12.5px ui-monospace, SFMono-Regular, Menlo, "DejaVu Sans Mono", "Liberation Mono", Consolas, monospace;
fill: var(--text) }
.sans, .sans text {
font: 12px system-ui, -apple-system, "Segoe UI", "Noto Sans", Helvetica, Arial, sans-serif }
.sans text.small { font-size: 11px }
.panel, .cover { fill: var(--panel) }
.panel, .edge { stroke: var(--edge) }
.edge { fill: none }
.b { font-weight: 600 }
.d { fill: var(--dim) }
.r { fill: var(--red); font-weight: 600 }
.g { fill: var(--good); font-weight: 600 }
.p1 { fill: var(--p1) }
.p2 { fill: var(--p2) }
.p3 { fill: var(--p3) }
.p4 { fill: var(--p4) }
tspan.p2 { fill: var(--i2) }
tspan.p4 { fill: var(--i4) }
.limit { fill: none; stroke: var(--red); stroke-width: 2 }
.mark { stroke: var(--dim); stroke-dasharray: 2 3 }
.end { text-anchor: end }
`

// still is for readers that want no motion. They see the last frame, which is replayed at no pace.
const still = `@media (prefers-reduced-motion: reduce) { * { animation: none !important }
.pace { display: none } }
`

// escape makes text fit to stand in XML.
func escape(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a strings.Builder does not fail
	return b.String()
}

// print writes elements.
func (d *drawing) print(format string, args ...any) { fmt.Fprintf(&d.body, format, args...) }

// animate gives a class the values that it has from each frame on. The result of value for the last frame is
// shown to readers that want no motion.
func (d *drawing) animate(class string, value func(frame) string) {
	frames := d.film.Frames
	last := ""
	fmt.Fprintf(&d.rule, "@keyframes %s {", class)
	for _, f := range frames {
		if v := value(f); v != last {
			fmt.Fprintf(&d.rule, " %s { %s }", d.film.percent(f.At), v)
			last = v
		}
	}
	fmt.Fprintf(&d.rule, " }\n.%s { %s; animation: %[1]s %[3]gs step-end infinite }\n", class, last,
		d.film.Length.Seconds())
}

// title draws the bar above the terminal: the command, and how fast it is replayed.
func (d *drawing) title(command string) {
	d.print(`<path class="edge" d="M0 %d.5H%d"/>`+"\n", barTop-8, pictureWidth)
	d.print(`<text x="%d" y="20"><tspan class="d">$ </tspan>%s</text>`+"\n", margin, escape(command))
	for n := range d.film.Acts {
		class, speed := fmt.Sprintf("pace%d", n+1), "in real time"
		if times := paces[n].Times; times != 1 {
			speed = fmt.Sprintf("replayed %d times as fast", times)
		}
		d.animate(class, func(f frame) string { return visible(f.Act == n) })
		d.print(`<text class="sans end d pace %s" x="%d" y="20">%s</text>`+"\n", class,
			pictureWidth-margin, speed)
	}
}

func visible(yes bool) string {
	if yes {
		return "opacity: 1"
	}
	return "opacity: 0"
}

// terminal draws all lines below each other. A cover hides those that were not printed yet, and the whole
// moves up when there are more than the terminal has rows.
func (d *drawing) terminal() error {
	d.print(`<svg x="0" y="%d" width="%d" height="%d">`+"\n<g class=\"screen\">\n", barTop, pictureWidth,
		screenHeight)
	style := ""
	for i, l := range d.film.Lines {
		var all []piece
		var err error
		if all, style, err = pieces(l.Text, style); err != nil {
			return fmt.Errorf("line %d: %w", i+1, err)
		}
		d.line(i, all)
	}
	move := func(rows int) string { return fmt.Sprintf("transform: translateY(%dpx)", rows*lineHeight) }
	d.animate("screen", func(f frame) string { return move(-max(0, f.Lines-rows)) })
	d.animate("below", func(f frame) string { return move(f.Lines) })
	d.print(`<rect class="cover below" x="1" y="0" width="%d" height="%d"/>`+"\n</g>\n</svg>\n",
		pictureWidth-2, screenHeight+lineHeight)
	return nil
}

// line draws one line of the terminal.
func (d *drawing) line(i int, all []piece) {
	base := i*lineHeight + 12
	var words, bars strings.Builder
	for _, p := range all {
		class := ""
		if p.Style != "" {
			class = fmt.Sprintf(` class="%s"`, p.Style)
		}
		x := margin + float64(p.Column)*cellWidth
		if p.bar() {
			fmt.Fprintf(&bars, `<rect%s x="%g" y="%d" width="%g" height="10"/>`, class, x, base-9,
				float64(p.width())*cellWidth)
			continue
		}
		fmt.Fprintf(&words, `<tspan%s x="%g">%s</tspan>`, class, x, escape(p.Text))
	}
	if words.Len() > 0 {
		d.print(`<text y="%d">%s</text>%s`+"\n", base, words.String(), bars.String())
	}
}
