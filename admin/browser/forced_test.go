package browser

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// TestForcedColours: where the system forces its colours, backgrounds are gone. Charts, badges, the focus
// and what is disabled can be seen all the same, in light and dark.
func TestForcedColours(t *testing.T) {
	browser := startChromium(t)
	s := startService(t)
	s.jobs.SetDryRun(true)
	for _, theme := range []string{"light", "dark"} {
		t.Run(theme, func(t *testing.T) {
			p := openTab(t, browser, s.url())
			p.prefer(theme, "active")
			p.open()
			p.until("colours are forced", `matchMedia("(forced-colors: active)").matches`)
			p.until("there are charts",
				`document.querySelector("#limiter-api .chart path.line")?.getAttribute("d").includes("L")`)
			p.until("keys are shown",
				`document.querySelector("#limiter-api .acts button[aria-label^=Explain]")`)
			for _, what := range value[[]string](p, cannotBeSeen) {
				t.Errorf("it cannot be seen: %s", what)
			}
			p.contrast("forced colours, " + theme)
			disabledCanBeSeen(p)
		})
	}
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
	const swatches = new Set([...document.querySelectorAll("#limiter-api .swatch")].map((n) => getComputedStyle(n).backgroundColor));
	if (swatches.size < 2) missing.push("two series of one colour: " + [...swatches]);
	return missing;
})()`

// disabledCanBeSeen looks at a button while its change is being sent, and at a field with an error.
func disabledCanBeSeen(p *tab) {
	p.click("#limiter-api", "Change limit")
	p.until("the form is there", `document.querySelector("dialog[open] .rates")`)
	p.until("the dialog has an edge",
		`getComputedStyle(document.getElementById("dialog")).borderTopStyle === "solid"`)
	p.do(chromedp.Evaluate[chromedp.Void](
		`document.querySelector("dialog[open] footer .primary").disabled = true`))
	p.until("a disabled button is grey, at full strength", `(() => {
		const probe = document.body.appendChild(document.createElement("i"));
		probe.style.color = "GrayText";
		const grey = getComputedStyle(probe).color;
		probe.remove();
		const s = getComputedStyle(document.querySelector("dialog[open] footer .primary"));
		return s.color === grey && s.borderTopColor === grey && s.opacity === "1";
	})()`)
	p.do(chromedp.Evaluate[chromedp.Void](
		`document.querySelector("dialog[open] input[type=text]").setAttribute("aria-invalid", "true")`))
	p.until("a field with an error differs from others", `parseFloat(getComputedStyle(document.querySelector('dialog[open] [aria-invalid="true"]')).borderTopWidth) >= 3`)
	p.press(kb.Escape)
}
