package browser

import (
	"fmt"
	"strings"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/quotient-go/quotient"
)

// senselessNumbers: no dialog goes on to its review with a field that is empty, no number, negative or huge.
func senselessNumbers(p *tab) {
	l := p.alone()
	rate := quotient.Rates(quotient.PerSecond(30))
	must(p.t, l.SetPlan("paid", &rate))
	must(p.t, l.Override("k", &rate))
	before := l.Stats().Version
	senseless := []string{"", "NaN", "-5", "1e99", "Infinity", "ten"}
	// true: it may be empty
	numbers := map[string]bool{"Events": false, "Per seconds": false, "Burst": true, "In flight": true}
	replicas := map[string]bool{
		"Replicas": false, "This one counts as": true, "This is replica number": true,
		"For how many minutes": true,
	}
	dialogs := map[string]map[string]bool{
		"Change replicas":          replicas,
		"Change limit":             numbers,
		"Change the plan paid":     numbers,
		"Change the override of k": numbers,
	}
	p.until("there is an override",
		`document.querySelector('#limiter-api button[aria-label="Change the override of k"]')`)
	for button, fields := range dialogs {
		p.click("main", button)
		for label, optional := range fields {
			old := p.held(label)
			for _, text := range senseless {
				if text == "" && optional {
					continue
				}
				p.put(label, text)
				p.press(kb.Enter)
				p.until(fmt.Sprintf("%s: %s %q is refused at the field", button, label, text),
					fmt.Sprintf(`!%s &&
					%s === document.activeElement &&
					document.activeElement.getAttribute("aria-invalid") === "true" &&
					/^Enter a (whole )?number .*\.$/.test(%s)`, compared, fieldOf(label), focusedError))
			}
			p.put(label, old)
		}
		p.press(kb.Enter)
		p.until(button+" can be reviewed with what was there", compared)
		if text := value[string](p, compared); strings.Contains(text, "NaN") {
			p.t.Errorf("%s: the review has %q", button, text)
		}
		p.press(kb.Escape)
	}
	if got := l.Stats().Version; got != before {
		p.t.Errorf("something was changed: version %d after %d", got, before)
	}
	p.calm()
}

// focusedError is the message at the field that has the focus.
const focusedError = `document.getElementById(document.activeElement.id + "-error").textContent`

// fieldOf is the field with a label in the open dialog.
func fieldOf(label string) string {
	const labels = `[...document.querySelectorAll("dialog[open] label")]`
	return fmt.Sprintf(`%s.find((l) => l.textContent === %q)?.control`, labels, label)
}

// held is what a field holds.
func (p *tab) held(label string) string {
	p.t.Helper()
	p.until("there is a field "+label, fieldOf(label))
	return value[string](p, fieldOf(label)+".value")
}

// put puts a text, which may be empty, into a field that keeps the focus.
func (p *tab) put(label, text string) {
	p.t.Helper()
	p.until("there is a field "+label, fieldOf(label))
	put := fmt.Sprintf(`{ const field = %s; field.value = %q; field.focus(); }`, fieldOf(label), text)
	p.do(chromedp.Evaluate[chromedp.Void](put))
}

// whatOnlyTheServerFinds is found before the review too, and several wrong fields are named at a time.
func whatOnlyTheServerFinds(p *tab) {
	l := p.alone()
	before := l.Stats().Version
	p.click("#limiter-api", "Change limit")
	p.put("Events", "1e12")
	p.put("Per seconds", "1e-6")
	p.press(kb.Enter)
	p.until("the server's reason is at the field",
		`document.activeElement.dataset.field === "rates[0].events" &&
		document.activeElement.getAttribute("aria-invalid") === "true" && `+focusedError+` !== ""`)
	p.calm("answer 400", "network error: Failed to load resource")
	p.put("Per seconds", "x")
	p.put("Burst", "1.5")
	p.put("Events", "-1")
	p.press(kb.Enter)
	p.until("each wrong field has its message, and the first has the focus",
		`[...document.querySelectorAll("dialog[open] [aria-invalid]")].map((n) => n.dataset.field).join() ===
			"rates[0].events,rates[0].per_seconds,rates[0].burst" &&
		document.activeElement.dataset.field === "rates[0].events"`)
	p.pick("Deny everything")
	p.press(kb.Enter)
	p.until("fields that are not shown do not count", compared+`?.includes("deny everything")`)
	if got := l.Stats().Version; got != before {
		p.t.Errorf("something was changed: version %d after %d", got, before)
	}
	p.calm()
}

// whatOnlyTheLimiterFinds: the review shows it too, also where there is nothing to fill in.
func whatOnlyTheLimiterFinds(p *tab) {
	reg := p.idle(nil)
	l := limiter(p.t, quotient.Limit{InFlight: 30}, quotient.MaxKeys(1))
	must(p.t, reg.Add("api", l))
	for i := range 3 {
		must(p.t, l.SetLimit(quotient.Rates(quotient.Rate{Unit: fmt.Sprint("unit", i), Events: 9,
			Per: time.Second})))
	}
	must(p.t, l.SetLimit(quotient.Limit{Rates: []quotient.Rate{quotient.PerSecond(300)}, InFlight: 30}))
	for _, key := range []string{"busy", "k"} {
		permit, _ := l.TryAcquire(key)
		p.t.Cleanup(permit.Release)
	}
	before := l.Stats().Version
	p.open()
	p.click("#limiter-api", "Change limit")
	p.enter("Unit", "fourth")
	p.press(kb.Enter)
	p.until("a fourth unit is refused", `document.querySelector("dialog[open] [role=alert]")?.innerText
		.includes("one more than the 3 units") && document.querySelector("dialog[open] input")`)
	p.press(kb.Escape)
	p.explainKey("k")
	p.click("dialog[open]", "Reset this key")
	p.until("a key that shares one limit with others is not reset",
		`document.querySelector("dialog[open] [role=alert]")?.innerText
		.includes("shares one limit") && !document.querySelector("dialog[open] .compare")`)
	if got := l.Stats().Version; got != before {
		p.t.Errorf("something was changed: version %d after %d", got, before)
	}
	p.calm("answer 422", "network error: Failed to load resource")
}
