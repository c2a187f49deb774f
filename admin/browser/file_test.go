package browser

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/quotient-go/quotient/admin"
)

// brokenFile: the page shows the file, is red from a bad load to the next good one, and marks what operators
// changed by hand.
func brokenFile(p *tab) {
	const panel, red = `document.getElementById("file").innerText.replace(/\s+/g, " ")`,
		`document.querySelector("#file .file-error")`
	var now atomic.Pointer[admin.FileState]
	loaded := time.Now().Add(-3 * time.Minute)
	well := admin.FileState{Path: "/etc/quotient/quotient.toml", Loaded: loaded, Reloads: 4}
	now.Store(&well)
	p.idle([]string{"api", "other"}, admin.File(func() admin.FileState { return *now.Load() }))
	p.open()
	p.until("the file is shown",
		panel+`.match(/File \/etc\/quotient\/quotient.toml Loaded 3 min ago, at .* Reloads 4 Failures 0$/)`)
	marks := func(limiter string) string {
		return fmt.Sprintf(`document.querySelector("#limiter-%s .differs")`, limiter)
	}
	p.until("nothing is red, and nothing is marked",
		fmt.Sprintf("!%s.checkVisibility() && !%s?.checkVisibility()", red, marks("api")))

	broken := well
	broken.Failures, broken.ErrorAt = 2, time.Now().Add(-4*time.Second)
	broken.Error = "quotient.toml:3:7: limiters.api.rate: unknown field (did you mean " +
		"rates?)\nquotient.toml:9:1: " + hostile
	broken.Differs = []string{"api: limit, override /" + strings.Repeat("x", 400), "gone: dry run"}
	now.Store(&broken)
	p.until("it is said that it is broken", panel+`.match(/Failures 2 .*The file is broken: the last load failed \d+ s ago, at .*\. The settings from before are still in force\. quotient\.toml:3:7: limiters\.api\.rate: unknown field/)`)
	p.until("the error is text",
		fmt.Sprintf(`%s.querySelector("[role=alert]").innerText.endsWith(%q)`, red, hostile))
	p.until("it is red", `getComputedStyle(`+red+`).color === getComputedStyle(Object.assign(document.body.appendChild(document.createElement("p")), { className: "error" })).color`)
	p.until("the limiter is marked", marks("api")+
		`?.innerText.startsWith("Differs from the file: limit, override /xx") && !`+marks("other")+
		`?.checkVisibility()`)
	p.until("one that is gone is named", panel+`.endsWith("Differs from the file: gone (dry run)") && `+panel+
		`.includes("Changed by hand 2 limiters")`)
	p.until("the line of the limiter says so",
		`document.querySelector("#limiter-api header").innerText.includes("Differs from the file")`)
	p.names("a broken file", "alert", "region")
	for _, theme := range []string{"light", "dark"} {
		p.theme(theme)
		p.contrast("a broken file, " + theme)
	}
	for _, width := range []int64{360, 1440} {
		p.size(width, 800)
		p.narrow(fmt.Sprintf("a broken file, %d px", width))
	}

	mended := broken
	mended.Loaded, mended.Reloads, mended.Differs = time.Now(), 5, nil
	now.Store(&mended)
	p.until("it is not red any more, and the error is still to be read",
		`!`+red+`.checkVisibility() && `+panel+
			`.match(/Reloads 5 Failures 2 Last error, mended since quotient\.toml:3:7/)`)
	p.until("nothing is marked", `!`+marks("api")+`?.checkVisibility()`)
	now.Store(&well) // as where a good load forgets the error
	p.until("there is no error", panel+`.endsWith("Failures 0") && !`+red+`.checkVisibility()`)
	p.calm()
}

// tables: what the program shows beside its limiters is text in place, and a row that stays is the same row.
func tables(p *tab) {
	var now atomic.Pointer[[]admin.Table]
	show := func(tables ...admin.Table) { now.Store(&tables) }
	overhead := func(count string) admin.Table {
		return admin.Table{Title: "Overhead", Columns: []string{"Count", "p50", "p99"},
			Rows: [][]string{{count, "11 µs", "92 µs"}}}
	}
	upstreams := admin.Table{
		Title: "Upstreams", Columns: []string{"URL", "State", "Last error"}, More: 7,
		Rows: [][]string{
			{"http://10.0.0.1:8080", "healthy", ""},
			{hostile, "down", strings.Repeat("connection refused ", 12)},
		},
	}
	show(overhead("1"), upstreams)
	p.idle([]string{"api"}, admin.Tables(func() []admin.Table { return *now.Load() }))
	p.open()
	text := func(name string) string { // its caption, which cannot be seen, repeats the title
		return fmt.Sprintf(`document.querySelector('#tables section[aria-label="%s"]')?.innerText.replace(/\s+/g, " ").replace("%[1]s %[1]s", "%[1]s")`, name)
	}
	p.until("there is no file", `!document.getElementById("file").checkVisibility()`)
	p.until("the overhead is shown", text("Overhead")+` === "Overhead Count p50 p99 1 11 µs 92 µs"`)
	p.until("upstreams are shown", text("Upstreams")+
		`.startsWith("Upstreams URL State Last error http://10.0.0.1:8080 healthy")`)
	p.until("cells are text",
		fmt.Sprintf(`%s.includes(%q) && !document.querySelector("#tables img")`, text("Upstreams"), hostile))
	p.until("what is left out is counted", text("Upstreams")+`.endsWith("7 more rows are not shown.")`)
	p.names("tables", "table", "columnheader", "rowheader", "region")
	for _, theme := range []string{"light", "dark"} {
		p.theme(theme)
		p.contrast("tables, " + theme)
	}
	for _, width := range []int64{360, 1440} {
		p.size(width, 800)
		p.narrow(fmt.Sprintf("tables, %d px", width))
	}

	p.do(chromedp.Evaluate[chromedp.Void](
		`window.row = document.querySelector('#tables section[aria-label="Upstreams"] tbody tr')`))
	upstreams.Rows = append(slices.Clone(upstreams.Rows), []string{"http://10.0.0.2:8080", "healthy", ""})
	upstreams.Rows[0] = []string{"http://10.0.0.1:8080", "down", "refused"}
	show(overhead("2"), upstreams)
	p.until("numbers move", text("Overhead")+`.includes("2 11 µs")`)
	p.until("the row is the same one",
		`row.isConnected && row.innerText.includes("down") && row.parentElement.rows.length === 3`)
	upstreams.Rows, upstreams.More = nil, 0
	show(upstreams)
	p.until("a table is gone, and the other is empty",
		`!(`+text("Overhead")+`) && `+text("Upstreams")+` === "Upstreams Nothing yet."`)
	show()
	p.until("there is none", `document.getElementById("tables").childElementCount === 0`)
	p.calm()
}
