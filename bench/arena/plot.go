package main

import (
	"cmp"
	"fmt"
	"image"
	"image/color"
	imagedraw "image/draw"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quotient-go/quotient/bench/arena/contenders"
	"github.com/quotient-go/quotient/bench/arena/sim"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

// picture is a run that is worth one.
type picture struct {
	scenario string
	kind     sim.Kind
	fields   sim.Fields
	drawn    []string
}

// pictured are those that docs/adaptive-controller.md shows, and where else much happens.
var pictured = []picture{
	{"S5", sim.TokenBucket, sim.NoFields, []string{contenders.Ours, "aws"}},
	{"S8", sim.TokenBucket, sim.NoFields, []string{contenders.Ours}},
	{"S13", sim.TokenBucket, sim.NoFields, []string{contenders.Ours}},
	{"N1b", sim.TokenBucket, sim.NoFields, []string{contenders.Ours}},
	{"N1b", sim.TokenBucket, sim.AllFields, []string{contenders.Ours}},
	{"N1b", sim.Window60, sim.NoFields, []string{contenders.Ours}},
	{"N1b", sim.Window60, sim.AllFields, []string{contenders.Ours}},
	{"O4", sim.TokenBucket, sim.NoFields, []string{contenders.Ours}},
	{"O7", sim.TokenBucket, sim.NoFields, []string{contenders.Ours}},
}

// file is its name for one controller.
func (p picture) file(ctrl string) string {
	return strings.ReplaceAll(strings.Join([]string{p.scenario, p.kind.String(), p.fields.String(), ctrl}, "-"), " ", "") + ".png"
}

const (
	width, height = 8 * vg.Inch, 5 * vg.Inch
	traceEvery    = 500 * time.Millisecond
)

var (
	black = color.NRGBA{A: 255}
	red   = color.NRGBA{R: 200, G: 30, B: 30, A: 255}
	blue  = color.NRGBA{R: 30, G: 80, B: 180, A: 90}
	green = color.NRGBA{R: 20, G: 120, B: 60, A: 255}
)

// draw writes the pictures of what was played.
func (c config) draw(g grid) error {
	if err := os.MkdirAll(c.plots, 0o755); err != nil {
		return err
	}
	if err := g.drawScores(filepath.Join(c.plots, "score.png")); err != nil {
		return err
	}
	for _, p := range pictured {
		if err := c.drawPicture(p); err != nil {
			return err
		}
	}
	return nil
}

// drawPicture draws a picture for each of its controllers, if its scenario and the controller were chosen.
func (c config) drawPicture(p picture) error {
	for _, s := range c.scenarios {
		for _, l := range c.contenders {
			if s.Name != p.scenario || !slices.Contains(p.drawn, l.Name) {
				continue
			}
			file := filepath.Join(c.plots, p.file(l.Name))
			if err := p.draw(s, l, c.seeds[0], file); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	return nil
}

// drawScores draws the mean score of each contender as a bar.
func (g grid) drawScores(file string) error {
	var scores plotter.Values
	var names []string
	for l, ctrl := range g.contenders {
		m := g.meanOfFamilies(func(c cell) bool { return c.contender == l })
		scores = append(scores, m.score)
		names = append(names, ctrl.Name)
	}
	p := plot.New()
	p.Title.Text = "Mean score, all scenarios"
	p.Y.Min, p.Y.Max = 0, 1
	bars, err := plotter.NewBarChart(scores, vg.Points(30))
	if err != nil {
		return err
	}
	bars.Color = color.NRGBA{R: 90, G: 130, B: 190, A: 255}
	p.Add(plotter.NewGrid(), bars)
	p.NominalX(names...)
	return p.Save(width, height, file)
}

// draw plays a run and draws what happened: above what all sent and what the upstream served, below the rate of
// each replica.
func (p picture) draw(s sim.Scenario, l sim.Contender, seed uint64, file string) error {
	res := sim.Play(s, p.kind, p.fields, l, seed, traceEvery)
	all, each := plot.New(), plot.New()
	all.Title.Text = fmt.Sprintf("%s: %s (%s; %s, fields: %s)", s.Name, s.Title, l.Name, p.kind, p.fields)
	all.Y.Label.Text, each.Y.Label.Text, each.X.Label.Text = "events/s, all", "events/s, each", "seconds"
	if err := drawAll(all, res); err != nil {
		return err
	}
	if err := drawEach(each, res); err != nil {
		return err
	}
	for _, half := range []*plot.Plot{all, each} {
		half.X.Min, half.X.Max = 0, s.Length.Seconds()
		half.X.Tick.Marker, half.Y.Tick.Marker = plain{}, plain{}
	}
	return save(file, all, each)
}

// plain are the default ticks with no more digits than needed.
type plain struct{}

// Ticks returns them.
func (plain) Ticks(from, to float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(from, to)
	for i, t := range ticks {
		if t.Label != "" {
			ticks[i].Label = strconv.FormatFloat(t.Value, 'g', 4, 64)
		}
	}
	return ticks
}

func drawAll(p *plot.Plot, res sim.Result) error {
	limit := make(plotter.XYs, len(res.Trace))
	most := 0.0
	for i, at := range res.Trace {
		limit[i] = plotter.XY{X: at.At.Seconds(), Y: at.Limit}
		most = max(most, at.Limit)
	}
	p.Y.Min, p.Y.Max = 0, 2*most
	if err := lines(p, "sent", perSecond(res.Sent, 2*most), red); err != nil {
		return err
	}
	if err := lines(p, "served", perSecond(res.Served, 2*most), green); err != nil {
		return err
	}
	p.Legend.Top = true
	return lines(p, "limit", limit, black)
}

// perSecond cuts at most, so that one burst does not flatten the picture.
func perSecond(counts []int, most float64) plotter.XYs {
	var xy plotter.XYs
	for i, n := range counts[:len(counts)-1] {
		xy = append(xy, plotter.XY{X: float64(i) + .5, Y: min(float64(n), most)})
	}
	return xy
}

// drawEach draws the rates of the replicas, and the limit divided by those that run.
func drawEach(p *plot.Plot, res sim.Result) error {
	var share plotter.XYs
	most := 0.0
	for _, at := range res.Trace {
		live := 0
		for _, x := range at.Rates {
			if x > 0 {
				live++
			}
		}
		if live == 0 {
			continue
		}
		even := at.Limit / float64(live)
		share = append(share, plotter.XY{X: at.At.Seconds(), Y: even})
		most = max(most, even)
	}
	p.Y.Min, p.Y.Max = 0, 2.5*most
	for i := range res.Trace[0].Rates {
		if xy := rateOf(res, i, 2.5*most); len(xy) > 0 {
			if err := lines(p, "", xy, blue); err != nil {
				return err
			}
		}
	}
	p.Legend.Top = true
	return lines(p, "limit / replicas", share, black)
}

func rateOf(res sim.Result, i int, most float64) (xy plotter.XYs) {
	for _, at := range res.Trace {
		if at.Rates[i] > 0 {
			xy = append(xy, plotter.XY{X: at.At.Seconds(), Y: min(at.Rates[i], most)})
		}
	}
	return xy
}

func lines(p *plot.Plot, name string, xy plotter.XYs, c color.Color) error {
	l, err := plotter.NewLine(xy)
	if err != nil {
		return err
	}
	l.Color = c
	p.Add(l)
	if name != "" {
		p.Legend.Add(name, l)
	}
	return nil
}

// save draws plots one above the other.
func save(file string, plots ...*plot.Plot) (err error) {
	img := vgimg.New(width, height)
	var rows [][]*plot.Plot
	for _, p := range plots {
		rows = append(rows, []*plot.Plot{p})
	}
	tiles := draw.Tiles{Rows: len(rows), Cols: 1, PadY: vg.Points(6), PadRight: vg.Points(6)}
	for i, row := range plot.Align(rows, tiles, draw.New(img)) {
		rows[i][0].Draw(row[0])
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	if err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(f, fewColours(img.Image())); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// fewColours is the image in 256 colours: those of the lines, faded in steps, and those that it has most of. It halves the file.
func fewColours(img image.Image) image.Image {
	seen := map[color.RGBA]int{}
	bounds := img.Bounds()
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			seen[color.RGBAModel.Convert(img.At(x, y)).(color.RGBA)]++
		}
	}
	all := slices.SortedFunc(maps.Keys(seen), func(a, b color.RGBA) int {
		return cmp.Or(seen[b]-seen[a], cmp.Compare(a.R, b.R), cmp.Compare(a.G, b.G), cmp.Compare(a.B, b.B), cmp.Compare(a.A, b.A))
	})
	var palette color.Palette
	const steps = 16
	for i := 1; i <= steps; i++ {
		faded := func(v uint8) uint8 { return uint8(255 - (255-int(v))*i/steps) }
		for _, c := range []color.NRGBA{black, red, green} {
			palette = append(palette, color.NRGBA{R: faded(c.R), G: faded(c.G), B: faded(c.B), A: 255})
		}
	}
	for _, c := range all[:min(len(all), 256-len(palette))] {
		palette = append(palette, c)
	}
	few := image.NewPaletted(bounds, palette)
	imagedraw.Draw(few, bounds, img, bounds.Min, imagedraw.Src)
	return few
}
