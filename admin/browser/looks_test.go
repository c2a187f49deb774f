package browser

import (
	"fmt"
	"slices"
	"strings"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// scroll brings a limiter into sight.
func (p *tab) scroll(limiter string) {
	p.t.Helper()
	p.do(chromedp.Evaluate[chromedp.Void](
		fmt.Sprintf(`document.getElementById("limiter-%s").scrollIntoView()`, limiter)))
}

// unfold opens a limiter by hand, unless it is open.
func (p *tab) unfold(limiter string) {
	p.t.Helper()
	fold := fmt.Sprintf(`document.querySelector("#limiter-%s .fold")`, limiter)
	p.until("there is "+limiter, fold)
	p.do(chromedp.Evaluate[chromedp.Void](
		fmt.Sprintf(`if (%s.getAttribute("aria-expanded") === "false") %[1]s.click()`, fold)))
}

// tabTo presses Tab until the button of that name has the focus.
func (p *tab) tabTo(name string) {
	p.t.Helper()
	for range 60 {
		p.press(kb.Tab)
		if value[string](p,
			`document.activeElement.matches("button") ? document.activeElement.textContent : ""`) == name {
			if !value[bool](p, `document.activeElement.matches(":focus-visible") && getComputedStyle(document.activeElement).outlineStyle === "solid"`) {
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
	list := fmt.Sprintf(
		`[...document.querySelectorAll("dialog[open] label")].find((l) => l.textContent === %q)?.control`,
		label)
	p.until("there is a list "+label, list)
	p.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf("{ const list = %s; list.selectedIndex = "+
		"[...list.options].findIndex((o) => o.textContent === %q); }", list, option)))
}

// pick picks the radio button with that label.
func (p *tab) pick(label string) {
	p.t.Helper()
	radio := fmt.Sprintf(`[...document.querySelectorAll("dialog[open] label.option")].find((l) => l.textContent === %q)?.control`, label)
	p.until("there is a button "+label, radio)
	p.do(chromedp.Evaluate[chromedp.Void](radio + ".focus(); " + radio + ".click()"))
}

// withNames are the roles that say nothing to a listener without a name.
var withNames = []string{"button", "textbox", "checkbox", "radio", "combobox", "link", "image", "img",
	"dialog", "alertdialog", "region", "navigation", "table", "figure", "meter", "group", "heading"}

// everythingHasAName asks the browser for what it tells a screen reader, of the page and of each dialog.
func everythingHasAName(p *tab, _ *service) {
	p.scroll("api")
	p.until("keys are shown", `document.querySelector("#limiter-api .acts button[aria-label^=Explain]")`)
	p.names("the page", "main", "banner", "search", "searchbox", "status", "button", "link", "region",
		"heading", "table", "columnheader", "rowheader", "figure", "textbox")
	for button, roles := range map[string][]string{
		"Change limit":        {"dialog", "textbox", "radio", "checkbox", "button"},
		"Override a key":      {"dialog", "textbox", "radio"},
		"Turn dry run on":     {"dialog", "table", "button"},
		"Explain tenant-gold": {"dialog", "table", "button"},
	} {
		p.click("#limiter-api", button)
		p.until("the dialog is filled", `document.querySelector("#dialog-body").children.length > 0`)
		p.names(button, roles...)
		p.click("dialog[open]",
			map[bool]string{true: "Close", false: "Cancel"}[strings.HasPrefix(button, "Explain")])
		p.until("the dialog is closed", `!document.querySelector("dialog[open]")`)
	}
}

// names requires that each node of a role in withNames has a name, and that there is one of each role.
func (p *tab) names(where string, roles ...string) {
	p.t.Helper()
	found := make(map[string]int)
	for _, node := range call(p, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{}).Nodes {
		if node.Ignored || node.Role == nil {
			continue
		}
		role := strings.Trim(string(node.Role.Value), `"`)
		name := ""
		if node.Name != nil {
			name = strings.Trim(string(node.Name.Value), `"`)
		}
		found[role]++
		if slices.Contains(withNames, role) && strings.TrimSpace(name) == "" {
			p.t.Errorf("%s: a %s has no name (node %d)", where, role, node.BackendDOMNodeID)
		}
	}
	for _, role := range roles {
		if found[role] == 0 {
			p.t.Errorf("%s: there is no %s: %v", where, role, found)
		}
	}
}

// looks checks what a person would see: enough contrast in both themes, and nothing that is wider than a
// small phone.
func looks(p *tab, _ *service) {
	p.scroll("api")
	p.until("keys are shown", `document.querySelector("#limiter-api .acts button[aria-label^=Explain]")`)
	for _, theme := range []string{"light", "dark"} {
		p.theme(theme)
		p.size(1440, 900)
		p.contrast("page, " + theme)
		for _, width := range []int64{360, 390, 768, 1440} {
			p.size(width, 800)
			p.narrow(fmt.Sprintf("page, %d px", width))
		}
		p.size(360, 740)
		for _, button := range []string{"Change limit", "Turn dry run on", "Explain " + "tenant-gold"} {
			p.click("#limiter-api", button)
			p.until("the dialog is filled", `document.querySelector("#dialog-body").children.length > 0`)
			p.contrast(button + ", " + theme)
			p.narrow(button)
			p.click("dialog[open]",
				map[bool]string{true: "Close", false: "Cancel"}[strings.HasPrefix(button, "Explain")])
		}
	}
}

// narrow requires that the page does not scroll sideways, and that no text is cut off in what cannot scroll.
func (p *tab) narrow(where string) {
	p.t.Helper()
	if over := value[int](p, `document.documentElement.scrollWidth - innerWidth`); over > 0 {
		p.t.Errorf("%s: %d px too wide", where, over)
	}
	for _, cut := range value[[]string](p,
		`[...document.querySelectorAll(".brand, h1, h2, h3, p, dd, dt, button, .chart span, label, .option, legend")]
		.filter((e) => e.checkVisibility() && !e.closest(".scroll") && getComputedStyle(e).clipPath === "none")
		.filter((e) => e.getBoundingClientRect().right > innerWidth + 1 || e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== "inline")
		.map((e) => e.textContent.slice(0, 60))`) {
		p.t.Errorf("%s: cut off: %q", where, cut)
	}
}

// leastContrast is the contrast that WCAG 2.2 requires of text (1.4.3, level AA).
const leastContrast = 4.5

// contrast requires it of all text that can be seen.
func (p *tab) contrast(where string) {
	p.t.Helper()
	type text struct {
		Text  string  `json:"text"`
		Ratio float64 `json:"ratio"`
	}
	all := value[[]text](p, contrastScript)
	if len(all) < 8 {
		p.t.Errorf("%s: only %d texts were looked at", where, len(all))
	}
	for _, x := range all {
		if x.Ratio < leastContrast {
			p.t.Errorf("%s: %q has a contrast of %.2f, want %v", where, x.Text, x.Ratio, leastContrast)
		}
	}
}

// contrastScript computes the contrast of each text with what lies behind it: colours of the elements around
// it, one over the other, with their opacity.
const contrastScript = `(() => {
	const box = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
	const rgba = (colour) => {
		box.clearRect(0, 0, 1, 1);
		box.fillStyle = colour;
		box.fillRect(0, 0, 1, 1);
		const [r, g, b, a] = box.getImageData(0, 0, 1, 1).data;
		return [r, g, b, a / 255];
	};
	const over = (front, back) => front.slice(0, 3).map((c, i) => c * front[3] + back[i] * (1 - front[3])).concat(1);
	const chain = (e) => (e ? [...chain(e.parentElement), e] : []);
	const light = (c) => {
		const [r, g, b] = c.slice(0, 3).map((v) => v / 255).map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
		return 0.2126 * r + 0.7152 * g + 0.0722 * b;
	};
	const root = document.querySelector("dialog[open]") ?? document.body;
	const walk = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
	const found = [];
	while (walk.nextNode()) {
		const e = walk.currentNode.parentElement;
		const style = getComputedStyle(e);
		if (walk.currentNode.data.trim() === "" || !e.checkVisibility({ checkVisibilityCSS: true }) || style.clipPath !== "none" || e.closest(".skip")) continue;
		let back = [255, 255, 255, 1];
		let seen = 1;
		for (const outer of chain(e)) {
			const s = getComputedStyle(outer);
			back = over(rgba(s.backgroundColor), back);
			seen *= Number(s.opacity);
		}
		const front = over([...rgba(style.color).slice(0, 3), rgba(style.color)[3] * seen], back);
		const [high, low] = [light(front), light(back)].sort((a, b) => b - a);
		found.push({ text: walk.currentNode.data.trim().slice(0, 40), ratio: (high + 0.05) / (low + 0.05) });
	}
	return found;
})()`
