package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/quotient-go/quotient/admin"
	"github.com/quotient-go/quotient/internal/needed"
)

// scroll brings a limiter into sight.
func (p *tab) scroll(limiter string) {
	p.t.Helper()
	p.run(fmt.Sprintf(`document.getElementById("limiter-%s").scrollIntoView()`, limiter))
}

// unfold opens a limiter by hand, unless it is open.
func (p *tab) unfold(limiter string) {
	p.t.Helper()
	fold := fmt.Sprintf(`$("#limiter-%s .fold")`, limiter)
	p.until("there is "+limiter, fold)
	p.run(fmt.Sprintf(`if (%s.getAttribute("aria-expanded") === "false") %[1]s.click()`, fold))
}

// tabTo presses Tab until the button of that name has the focus.
func (p *tab) tabTo(name string) {
	p.t.Helper()
	for range 60 {
		p.press(kb.Tab)
		if value[string](p, `focused.matches("button") ? focused.textContent : ""`) == name {
			if !value[bool](p, `focused.matches(":focus-visible") && getComputedStyle(focused).outlineStyle === "solid"`) {
				p.t.Errorf("the focus on %q cannot be seen", name)
			}
			return
		}
	}
	p.t.Fatalf("Tab does not lead to %q", name)
}

// choose chooses in the list with that label.
func (p *tab) choose(label, option string) {
	p.t.Helper()
	list := fmt.Sprintf(`$$("dialog[open] label").find((l) => l.textContent === %q)?.control`, label)
	p.until("there is a list "+label, list)
	p.run(fmt.Sprintf("{ const list = %s; list.selectedIndex = "+
		"[...list.options].findIndex((o) => o.textContent === %q); list.dispatchEvent(new Event('change')); }", list, option))
}

// pick picks the radio button with that label.
func (p *tab) pick(label string) {
	p.t.Helper()
	radio := fmt.Sprintf(`$$("dialog[open] label.option").find((l) => l.textContent === %q)?.control`, label)
	p.until("there is a button "+label, radio)
	p.run(radio + ".focus(); " + radio + ".click()")
}

// fits requires contrast in both themes, and that a small phone and a wide screen have room.
func (p *tab) fits(where string) {
	p.t.Helper()
	for _, theme := range []string{"light", "dark"} {
		p.theme(theme)
		p.contrast(where + ", " + theme)
	}
	for _, width := range []int64{360, 1440} {
		p.size(width, 800)
		p.narrow(fmt.Sprintf("%s, %d px", where, width))
	}
}

// dialogs opens each kind of dialog over the page in turn, and closes it.
func (p *tab) dialogs(look func(button string), buttons ...string) {
	p.t.Helper()
	for _, button := range buttons {
		p.click("#limiter-api", button)
		p.until("the dialog is filled", `$("#dialog-body").children.length > 0`)
		look(button)
		p.press(kb.Escape)
		p.until("the dialog is closed", `!$("dialog[open]")`)
	}
}

// keysShown waits for the rows of keys, which come with a request of their own.
func (p *tab) keysShown() {
	p.t.Helper()
	p.until("keys are shown", `$("#limiter-api .acts button[aria-label^=Explain]")`)
}

// TestLooks asks the browser for what a person would see, and for what it tells a screen reader: of the page
// and of each dialog, in both themes, on a small phone and a wide screen, and where the system forces its
// colours. The rules of axe-core hold too.
func TestLooks(t *testing.T) {
	t.Parallel()
	chromium(t)
	for name, test := range map[string]func(p *tab){
		"contrast and width": looks,
		"rules light":        func(p *tab) { p.long(); rules(p) },
		"rules dark phone": func(p *tab) {
			p.long()
			p.size(phoneWide, phoneTall)
			p.theme("dark")
			rules(p)
		},
		"forced colours light": func(p *tab) { p.long(); forcedColours(p, "light") },
		"forced colours dark":  func(p *tab) { p.long(); forcedColours(p, "dark") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startService(t, fleetOf(t))
			s.jobs.SetDryRun(true)
			test(openTab(t, s.url()))
		})
	}
}

func looks(p *tab) {
	p.long()
	p.open()
	p.keysShown()
	for _, theme := range []string{"light", "dark"} {
		p.theme(theme)
		p.size(1440, 900)
		p.contrast("page, " + theme)
		for _, width := range []int64{360, 390, 768, 1440} {
			p.size(width, 800)
			p.narrow(fmt.Sprintf("page, %d px", width))
		}
		p.size(360, 740)
		p.dialogs(func(button string) {
			p.contrast(button + ", " + theme)
			p.narrow(button)
		}, "Change limit", "Turn dry run on", "Explain tenant-gold")
	}
	p.calm()
}

// narrow requires that the page does not scroll sideways, and that no text is cut off in what cannot scroll.
func (p *tab) narrow(where string) {
	p.t.Helper()
	if over := value[int](p, `document.documentElement.scrollWidth - innerWidth`); over > 0 {
		p.t.Errorf("%s: %d px too wide", where, over)
	}
	for _, cut := range value[[]string](p,
		`$$(".brand, h1, h2, h3, p, dd, dt, button, .chart span, label, .option, legend")
		.filter((e) => e.checkVisibility() && !e.closest(".scroll") && getComputedStyle(e).clipPath === "none")
		.filter((e) => e.getBoundingClientRect().right > innerWidth + 1 || e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== "inline")
		.map((e) => e.textContent.slice(0, 60))`) {
		p.t.Errorf("%s: cut off: %q", where, cut)
	}
}

// contrast requires what WCAG 2.2 requires of text (1.4.3, level AA) of all text that can be seen.
func (p *tab) contrast(where string) {
	p.t.Helper()
	if *all {
		p.run(axeCore(p.t))
		p.accessible(where, "color-contrast")
	}
}

// forcedColours: where the system forces its colours, backgrounds are gone. Charts, badges, the focus and what
// is disabled can be seen all the same.
func forcedColours(p *tab, theme string) {
	p.prefer(theme, "active")
	p.open()
	p.until("colours are forced", `matchMedia("(forced-colors: active)").matches`)
	p.until("there are charts", `$("#limiter-api .chart path.line")?.getAttribute("d").includes("L")`)
	p.until("one has two series", `$$("#limiter-api .swatch").length > 1`)
	p.keysShown()
	missing := value[[]string](p, cannotBeSeen) // series and keys come and go with the load
	for end := time.Now().Add(patience / 3); len(missing) > 0 && time.Now().Before(end); {
		missing = value[[]string](p, cannotBeSeen)
	}
	for _, what := range missing {
		p.t.Errorf("it cannot be seen: %s", what)
	}
	p.contrast("forced colours, " + theme)
	disabledCanBeSeen(p)
	p.calm()
}

// cannotBeSeen lists what has no colour of its own against what lies behind it. In forced colours that is
// the canvas.
const cannotBeSeen = `(() => {
	const colour = (name) => {
		const probe = Object.assign(document.body.appendChild(document.createElement("i")), { className: "probe" });
		probe.style.color = name;
		const got = getComputedStyle(probe).color;
		probe.remove();
		return got;
	};
	const canvas = colour("Canvas");
	const missing = [];
	const look = (selector, holds) => {
		const all = [...document.querySelectorAll(selector)].filter((n) => n.checkVisibility());
		if (all.length === 0) missing.push("there is no " + selector);
		for (const n of all) if (!holds(getComputedStyle(n), n)) missing.push(selector + ": " + n.outerHTML.slice(0, 120));
	};
	const edged = (s) => s.borderTopStyle === "solid" && parseFloat(s.borderTopWidth) >= 1 && s.borderTopColor !== canvas;
	look(".chart path.line", (s) => s.stroke !== canvas && s.stroke !== "none" && parseFloat(s.strokeWidth) >= 1);
	look(".chart path.area", (s) => s.fill !== canvas && s.fill !== "none" && Number(s.opacity) > 0);
	look(".chart .base", (s) => s.stroke !== canvas);
	look(".badge", edged);
	look(".swatch", edged);
	look(".dot", (s) => s.backgroundColor !== canvas);
	look("meter", edged);
	look("main button:not(.fold), .limiter, .pool, #filter, .chart", edged);
	look(".chevron", (s) => s.stroke !== canvas);
	for (const n of document.querySelectorAll("main button, main input")) {
		if (!n.checkVisibility()) continue;
		n.focus({ focusVisible: true });
		const s = getComputedStyle(n);
		if (s.outlineStyle !== "solid" || parseFloat(s.outlineWidth) < 2 || s.outlineColor === canvas) missing.push("the focus: " + n.outerHTML.slice(0, 120));
		n.blur();
	}
	const swatches = new Set($$("#limiter-api .swatch").map((n) => getComputedStyle(n).backgroundColor));
	if (swatches.size < 2) missing.push("two series of one colour: " + [...swatches]);
	return missing;
})()`

// disabledCanBeSeen looks at a button while its change is being sent, and at a field with an error.
func disabledCanBeSeen(p *tab) {
	p.click("#limiter-api", "Change limit")
	p.until("the form is there", `$("dialog[open] .rates")`)
	p.until("the dialog has an edge", `getComputedStyle($("#dialog")).borderTopStyle === "solid"`)
	p.run(`$("dialog[open] footer .primary").disabled = true`)
	p.until("a disabled button is grey, at full strength", `(() => {
		const probe = document.body.appendChild(document.createElement("i"));
		probe.style.color = "GrayText";
		const grey = getComputedStyle(probe).color;
		probe.remove();
		const s = getComputedStyle($("dialog[open] footer .primary"));
		return s.color === grey && s.borderTopColor === grey && s.opacity === "1";
	})()`)
	p.run(`$("dialog[open] input[type=text]").setAttribute("aria-invalid", "true")`)
	p.until("a field with an error differs from others", `parseFloat(getComputedStyle($('dialog[open] [aria-invalid="true"]')).borderTopWidth) >= 3`)
	p.press(kb.Escape)
}

// rules looks at the page, at each kind of dialog over it, at a page without a limiter and at what asks for a
// token.
func rules(p *tab) {
	script := axeCore(p.t)
	load := func() { p.run(script) }
	p.open()
	load()
	p.keysShown()
	p.accessible("page")
	p.dialogs(func(button string) { p.accessible(button) }, "Change limit", "Override a key", "Turn dry run on", "Add a plan",
		"Explain tenant-gold")
	p.click("#limiter-api", "api")
	p.until("it is closed", `!$("#limiter-api .body").checkVisibility()`)
	p.accessible("a closed limiter")
	p.idle(nil)
	p.open()
	load()
	p.accessible("no limiter")
	p.idle([]string{"api"}, admin.Token(secret))
	p.do(chromedp.Navigate(p.origin))
	p.until("a token is wanted", `$("#token-dialog[open]")`)
	load()
	p.accessible("token")
}

// accessible requires that none of the rules of axe-core is broken, nor fails to run; of all rules where none is named.
func (p *tab) accessible(where string, rules ...string) {
	p.t.Helper()
	only, least := "{}", 10
	if len(rules) > 0 {
		only, least = fmt.Sprintf(`{ runOnly: ["%s"] }`, strings.Join(rules, `", "`)), 1
	}
	type finding struct {
		Rule  string   `json:"rule"`
		Help  string   `json:"help"`
		Nodes []string `json:"nodes"`
	}
	type findings struct {
		Passed int       `json:"passed"`
		Broken []finding `json:"broken"`
	}
	got, err := chromedp.Run(p.ctx, chromedp.Evaluate[findings](
		`axe.run($("dialog[open]") ?? document, { resultTypes: ["violations"], ...`+only+` }).then(({ violations, passes }) => ({
		passed: passes.length,
		broken: violations.map(({ id, help, nodes }) => ({ rule: id, help, nodes: nodes.slice(0, 5).map((n) => n.html.slice(0, 160)) })),
	}))`, chromedp.EvalAwaitPromise))
	must(p.t, err)
	if got.Passed < least {
		p.t.Errorf("%s: only %d rules hold: the others had nothing to look at", where, got.Passed)
	}
	for _, f := range got.Broken {
		p.t.Errorf("%s: %s: %s\n\t%s", where, f.Rule, f.Help, strings.Join(f.Nodes, "\n\t"))
	}
}

var fetching sync.Mutex

// axeCore returns the script of axe-core in the version of axe/package.json. npm fetches it where it is not
// there yet.
func axeCore(t *testing.T) string {
	t.Helper()
	fetching.Lock()
	defer fetching.Unlock()
	const folder = "axe"
	var wanted struct {
		Dependencies map[string]string `json:"dependencies"`
	}
	readJSON(t, filepath.Join(folder, "package.json"), &wanted)
	module := filepath.Join(folder, "node_modules", "axe-core")
	var there struct {
		Version string `json:"version"`
	}
	if _, err := os.Stat(filepath.Join(module, "package.json")); err == nil {
		readJSON(t, filepath.Join(module, "package.json"), &there)
	}
	if there.Version != wanted.Dependencies["axe-core"] {
		fetch(t, folder)
	}
	script, err := os.ReadFile(filepath.Join(module, "axe.min.js"))
	must(t, err)
	return string(script)
}

// fetch runs npm ci in a folder.
func fetch(t *testing.T, folder string) {
	t.Helper()
	const unknown = "nothing is known about the page's accessibility"
	npm, err := exec.LookPath("npm")
	if err != nil {
		needed.Without(t, "npm", "npm is not installed: "+unknown+" (apt-get install npm)")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, npm, "ci")
	cmd.Dir = folder
	if out, err := cmd.CombinedOutput(); err != nil {
		needed.Without(t, "npm",
			fmt.Sprintf("npm ci cannot get axe-core, perhaps for want of a network: %s: %v\n%s", unknown,
				err, out))
	}
}

func readJSON(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Clean(path))
	must(t, err)
	must(t, json.Unmarshal(text, into))
}
