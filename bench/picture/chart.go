package main

import (
	"fmt"
	"strings"
)

// Sizes of the chart, in pixels, from its top.
const (
	chartHeight = 224
	plotLeft    = margin + 30
	plotRight   = pictureWidth - margin
	plotTop     = 52
	plotBase    = 170
	actGap      = 22
	labelTop    = plotBase + 15
	labelLine   = 13
	letter      = 5.9 // about the width of one in a label
)

// shares are the parts of the chart's width that the acts get when there are two. The first has fewer
// seconds, and is the story.
var shares = []float64{0.4, 0.6}

// A plot is one act in the chart.
type plot struct {
	act   *act
	left  float64
	width float64 // of one second
	scale float64 // pixels for one request a second
}

// x is where the n-th second begins; the first is 1.
func (p plot) x(n float64) float64 { return p.left + (n-1)*p.width }

// y is the height of a rate.
func (p plot) y(rate float64) float64 { return plotBase - rate*p.scale }

// plots lays out the acts side by side.
func (f *film) plots() []plot {
	most := 0.0
	for _, a := range f.Acts {
		most = max(most, a.Limit*1.1)
		for _, s := range a.Seconds {
			most = max(most, float64(s.total()))
		}
	}
	all := make([]plot, len(f.Acts))
	left, room := float64(plotLeft), float64(plotRight-plotLeft-actGap*(len(f.Acts)-1))
	for n := range f.Acts {
		share := 1.0
		if len(f.Acts) > 1 {
			share = shares[n]
		}
		a := &f.Acts[n]
		all[n] = plot{act: a, left: left, width: room * share / float64(len(a.Seconds)),
			scale: (plotBase - plotTop) / most}
		left += room*share + actGap
	}
	return all
}

// total is what all replicas sent in a second.
func (s second) total() (n int) {
	for _, sent := range s.Sent {
		n += sent
	}
	return n
}

// chart draws what arrived each second, one replica above the other, and the limit. A cover that moves to the
// right hides the seconds that are still to come.
func (d *drawing) chart() {
	plots := d.film.plots()
	d.print(`<svg class="sans" x="0" y="%d" width="%d" height="%d">`+"\n", chartTop, pictureWidth,
		chartHeight)
	d.print(`<path class="edge" d="M0 .5H%d"/>`+"\n", pictureWidth)
	d.legend()
	d.print("<g>\n")
	var shown []float64 // right ends of the seconds, in order
	for _, p := range plots {
		for _, s := range p.act.Seconds {
			d.column(p, s)
			shown = append(shown, p.x(float64(s.N+1)))
		}
		d.limitLine(p)
	}
	d.animate("later", func(f frame) string {
		x := float64(plotLeft)
		if f.Seconds > 0 {
			x = shown[f.Seconds-1]
		}
		return fmt.Sprintf("transform: translateX(%.1fpx)", x)
	})
	d.print(`<rect class="cover later" x="0" y="%d" width="%d" height="%d"/>`+"\n</g>\n", plotTop-8,
		pictureWidth, plotBase-plotTop+9)
	d.grid(plots)
	for n, p := range plots {
		d.labels(n, p)
	}
	d.print("<path class=\"edge\" d=\"M%d.5 %dV%d\"/>\n</svg>\n", pictureWidth-1, plotTop-8, plotBase)
}

// legend names the chart, its colours and its line.
func (d *drawing) legend() {
	replicas := 0
	for _, a := range d.film.Acts {
		replicas = max(replicas, a.Replicas)
	}
	d.print(`<text class="b" x="%d" y="20">Requests that reached the upstream, each second</text>`+"\n",
		margin)
	x := plotRight - 62
	d.print(`<path class="limit" d="M%d 16h18"/><text x="%d" y="20">its limit</text>`+"\n", x-10, x+14)
	for r := replicas; r > 0; r-- {
		x -= 82
		d.print(`<rect class="p%d" x="%d" y="11" width="10" height="10"/>`, r, x-10)
		d.print(`<text x="%d" y="20">replica %d</text>`+"\n", x+4, r)
	}
}

// column draws one second.
func (d *drawing) column(p plot, s second) {
	sum := 0.0
	for r, sent := range s.Sent {
		if sent == 0 {
			continue
		}
		from, to := p.y(sum), p.y(sum+float64(sent))
		d.print(`<rect class="p%d" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`, r+1,
			p.x(float64(s.N))+1, to, p.width-2, from-to)
		sum += float64(sent)
	}
	d.print("\n")
}

// limitLine draws the limit over the seconds of an act.
func (d *drawing) limitLine(p plot) {
	var path strings.Builder
	for i, s := range p.act.Seconds {
		y := p.y(p.act.limitIn(s.N))
		if i == 0 {
			fmt.Fprintf(&path, "M%.1f %.1f", p.x(1), y)
		}
		fmt.Fprintf(&path, "V%.1fH%.1f", y, p.x(float64(s.N+1)))
	}
	d.print(`<path class="limit" d="%s"/>`+"\n", path.String())
}

// grid draws the scale and the base line.
func (d *drawing) grid(plots []plot) {
	p := plots[0]
	for _, rate := range []float64{0, p.act.Limit / 2, p.act.Limit} {
		d.print(`<text class="d end" x="%d" y="%.1f"><tspan class="d">%g</tspan></text>`, plotLeft-8,
			p.y(rate)+4, rate)
	}
	for _, p := range plots {
		d.print(`<path class="edge" d="M%.1f %d.5H%.1f"/>`, p.left, plotBase,
			p.x(float64(len(p.act.Seconds)+1)))
	}
	d.print("\n")
}

// labels draws the title of an act, and what happened in it, each when it was printed.
func (d *drawing) labels(n int, p plot) {
	class := fmt.Sprintf("act%d", n+1)
	d.animate(class, func(f frame) string { return visible(f.Act >= n) })
	d.print(`<text class="d %s" x="%.1f" y="%d">%s</text>`+"\n", class, p.left, plotTop-10,
		escape(p.act.Title))
	for i, e := range p.act.Events {
		next := float64(len(p.act.Seconds))
		room := float64(margin - 8)
		if i+1 < len(p.act.Events) {
			next, room = p.act.Events[i+1].At, -4
		}
		class := fmt.Sprintf("e%d-%d", n+1, i+1)
		d.animate(class, func(f frame) string { return visible(f.Lines > e.Line) })
		x := p.x(e.At + 1)
		d.print(`<g class="%s"><path class="mark" d="M%.1f %dV%d"/>`, class, x, plotTop-4, labelTop)
		for k, words := range wrap(e.short(), (next-e.At)*p.width+room) {
			d.print(`<text class="small" x="%.1f" y="%d">%s</text>`, x+3, labelTop+k*labelLine, escape(words))
		}
		d.print("</g>\n")
	}
}

// short is the title of an event without what follows the first comma or bracket.
func (e event) short() string {
	title, _, _ := strings.Cut(e.Title, ", ")
	title, _, _ = strings.Cut(title, " (")
	return title
}

// wrap breaks text into lines that are about as wide as there is room, in pixels.
func wrap(text string, room float64) (all []string) {
	for _, word := range strings.Fields(text) {
		if n := len(all); n > 0 && float64(len(all[n-1])+1+len(word))*letter <= room {
			all[n-1] += " " + word
			continue
		}
		all = append(all, word)
	}
	return all
}

// describe says in a sentence what is seen, for readers that do not see it.
func (f *film) describe() string {
	var b strings.Builder
	for n, a := range f.Acts {
		fmt.Fprintf(&b, "Part %d, %s %d replicas share %g requests a second.", n+1,
			strings.TrimSuffix(a.Title, ".")+":", a.there(), a.Limit)
		for _, e := range a.Events {
			fmt.Fprintf(&b, " After %g s: %s.", e.At, e.Title)
		}
		least, most := a.Seconds[0].total(), 0
		for _, s := range a.Seconds {
			least, most = min(least, s.total()), max(most, s.total())
		}
		fmt.Fprintf(&b, " Together they sent %d to %d a second. ", least, most)
	}
	return strings.TrimSpace(b.String())
}

// there is how many replicas sent something in the first second.
func (a *act) there() (n int) {
	for _, sent := range a.Seconds[0].Sent {
		if sent > 0 {
			n++
		}
	}
	return n
}
