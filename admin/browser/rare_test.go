package browser

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/admin"
)

// TestPageInRareCases looks at the page where few operators get, each time of an idle service of its own.
func TestPageInRareCases(t *testing.T) {
	inChromium(t, map[string]func(p *tab){
		"events far apart":                  eventsFarApart,
		"tokens that cannot be one":         tokensThatCannotBeOne,
		"override beyond the shown":         overrideBeyondTheShown,
		"plans":                             plans,
		"a broken file":                     brokenFile,
		"tables":                            tables,
		"leases":                            leases,
		"no leases":                         noLeases,
		"keys that are no text":             keysThatAreNoText,
		"together":                          together,
		"closed while a change is sent":     closedWhileSending,
		"closed between two changes":        closedBetweenChanges,
		"decimal comma":                     decimalComma,
		"limiter removed behind its dialog": removedLimiter,
	})
}

// idle starts a service of limiters of 300 a second with these names, and makes it the tab's.
func (p *tab) idle(names []string, opts ...admin.Option) *quotient.Registry {
	p.t.Helper()
	reg := new(quotient.Registry)
	for _, name := range names {
		must(p.t,
			reg.Add(name, limiter(p.t, quotient.Rates(quotient.PerSecond(300)), quotient.MaxKeys(10_000))))
	}
	p.serve(reg, opts...)
	return reg
}

// alone is idle with one limiter, whose page is open.
func (p *tab) alone(opts ...admin.Option) *quotient.Limiter {
	p.t.Helper()
	l, _ := p.idle([]string{"api"}, opts...).Get("api")
	p.open()
	return l
}

// eventsFarApart: no event for longer than the page's patience is no loss, since the stream is not silent.
func eventsFarApart(p *tab) {
	l := p.alone(admin.EventsEvery(9 * time.Second))
	p.do(chromedp.Evaluate[chromedp.Void](`{
		window.begun = performance.now();
		new MutationObserver(() => { window.lost ||= document.body.classList.contains("stale"); }).observe(document.body, { attributes: true });
	}`))
	l.SetDryRun(true)
	p.until("the page's patience has ended", `performance.now() - begun > 8600`)
	p.until("the next state has come",
		`window.lost || document.querySelector("#limiter-api .dry").checkVisibility()`)
	if value[bool](p, `Boolean(window.lost)`) {
		p.t.Error("the service is well, and the page said that the connection was lost")
	}
	p.calm()
}

// tokensThatCannotBeOne: what cannot be sent in a header field is refused at once, and can be corrected;
// space around a token is none of it.
func tokensThatCannotBeOne(p *tab) {
	const secret = "not-a-secret-0123456789"
	p.idle([]string{"api"}, admin.Token(secret))
	p.do(chromedp.Navigate(p.origin))
	invalid := func(want bool) string {
		return fmt.Sprintf(`document.querySelector("#token-dialog[open]") && document.getElementById("token").getAttribute("aria-invalid") === "%v" && (document.getElementById("token-error").textContent !== "") === %v`, want, want)
	}
	submit := func(text string) {
		p.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`document.getElementById("token").value = %q`,
			text)), chromedp.KeyEvent(kb.Enter))
	}
	p.until("a token is asked for", invalid(false))
	for _, text := range []string{secret + "\u200b", "not-a-secret-…", "", "two words"} {
		submit(text)
		p.until("it is asked for again", invalid(true)+
			` && document.getElementById("token-error").textContent.startsWith("A token has letters")`)
	}
	submit("a-wrong-one-0123456789")
	p.until("a wrong one is refused",
		invalid(true)+` && document.getElementById("token-error").textContent.includes("did not accept")`)
	submit("  " + secret + " ")
	p.until("the page is live",
		`document.getElementById("link").dataset.state === "live" && !document.querySelector("dialog[open]")`)
	p.calm("answer 401", "network error: Failed to load resource")
}

const compared = `document.querySelector("dialog[open] .compare")?.innerText.replace(/\s+/g, " ")`

// explainKey asks for any key of the limiter api.
func (p *tab) explainKey(key string) {
	p.t.Helper()
	p.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`{
		const form = document.querySelector("#limiter-api form.ask");
		form.querySelector("input").value = %q;
		form.requestSubmit();
	}`, key)))
	p.until("the key is explained", `document.querySelector("dialog[open] pre")`)
}

// overrideBeyondTheShown: an override that the state does not show is known all the same, by whichever way
// the operator comes to its key.
func overrideBeyondTheShown(p *tab) {
	l := p.alone()
	own := quotient.Rates(quotient.PerSecond(7))
	for i := range 1001 {
		must(p.t, l.Override(fmt.Sprintf("k%05d", i), &own))
	}
	p.explainKey("k01000")
	p.click("dialog[open]", "Override this key")
	p.until("it can be removed", `document.querySelector('dialog[open] input[value="remove"]')`)
	p.pick("Remove the override")
	p.click("dialog[open]", "Review change")
	p.until("the old limit is shown", compared+`?.includes("7 / s → the limiter's own")`)
	p.press(kb.Escape)
	p.click("#limiter-api", "Override a key")
	p.enter("Key", "k01000")
	p.enter("Events", "8")
	p.click("dialog[open]", "Review change")
	p.until("the old limit is shown again", compared+`?.includes("7 / s → second: 8 / s")`)
	p.click("dialog[open]", "Apply change")
	p.poll("it is set", func() bool {
		o := l.Overrides()["k01000"]
		return len(o.Rates) == 1 && o.Rates[0].Events == 8
	})
	p.calm()
}

// plans are listed, set, changed and taken off, and a key has the name of its plan beside it.
func plans(p *tab) {
	l := p.alone()
	const part = `[...document.querySelectorAll("#limiter-api .part")].find((n) => n.querySelector("h3").textContent === "Plans")`
	p.until("it is said that there is none",
		part+`.innerText.includes("No plan:") && !`+part+`.querySelector("table").checkVisibility()`)
	p.until("they stand between rules and keys", `[...document.querySelectorAll("#limiter-api h3")].filter((n) => n.checkVisibility()).map((n) => n.textContent).join() === "Rules,Plans,Hottest keys,Overrides"`)
	limit := func(name string) string {
		for _, plan := range l.Stats().Plans {
			if plan.Name == name {
				return plan.Limit.String()
			}
		}
		return "none"
	}
	p.click("#limiter-api", "Add a plan")
	p.enter("Plan", "Paid")
	p.enter("Events", "600")
	p.enter("Burst", "900")
	p.press(kb.Enter)
	p.until("the error is next to the field", `document.activeElement.dataset.field === "plan" && document.getElementById(document.activeElement.id + "-error").textContent.startsWith("Enter 1 to 64 of a-z")`)
	p.enter("Plan", "paid")
	p.press(kb.Enter)
	p.until("old and new are shown",
		compared+`?.match(/Plan paid unchanged Limit no such plan → .*600 \/ s/)`)
	if got := limit("paid"); got != "none" {
		p.t.Errorf("without a confirmation there is a plan of %s", got)
	}
	p.click("dialog[open]", "Apply change")
	p.until("it is listed, with this replica's third",
		part+`.innerText.replace(/\s+/g, " ").match(/paid 600 \/ s \(burst 900\) 200\/s/)`)
	l.TryAcquire("customer", quotient.Plan("paid"))
	l.TryAcquire("other")
	const badges = `[...document.querySelectorAll("#limiter-api th.key .badge")].map((n) => n.parentElement.innerText.replace(/\s+/g, " ")).join()`
	p.until("the key has a badge", badges+` === "customer paid"`)
	p.explainKey("customer")
	p.until("its plan is named",
		`document.querySelector("dialog[open] pre").innerText.includes("(plan paid)")`)
	p.press(kb.Escape)
	p.click("#limiter-api", "Change the plan paid")
	p.until("its limit is there", `document.querySelector('dialog[open] [data-field="rates[0].events"]')?.value === "600" && document.querySelector('dialog[open] [data-field="plan"]').readOnly`)
	p.enter("Events", "450")
	p.press(kb.Enter)
	p.until("old and new are shown",
		compared+`?.match(/Plan paid unchanged .*600 \/ s \(burst 900\) → .*450 \/ s \(burst 900\)/)`)
	p.click("dialog[open]", "Apply change")
	p.poll("it has changed", func() bool { return strings.Contains(limit("paid"), "450") })
	p.click("#limiter-api", "Remove the plan paid")
	p.until("old and new are shown", compared+`?.match(/450 \/ s \(burst 900\) → no such plan/)`)
	p.click("dialog[open]", "Apply change")
	p.poll("it is off", func() bool { return limit("paid") == "none" })
	p.until("the page shows it", part+`.innerText.includes("No plan:") && `+badges+` === ""`)
	p.calm()
}

// keysThatAreNoText: each has a line of its own, is explained, and loses its override and no other's.
func keysThatAreNoText(p *tab) {
	l := p.alone()
	deny := quotient.Limit{Deny: true}
	for _, key := range []string{"\x80", "\x81"} {
		must(p.t, l.Override(key, &deny))
		l.Allow(key)
	}
	p.until("there are two",
		`document.querySelectorAll('#limiter-api button[aria-label^="Remove the override"]').length === 2`)
	p.click("#limiter-api", "Remove the override of \uFFFD")
	p.until("the old limit is shown", compared+`?.includes("deny everything → the limiter's own")`)
	p.click("dialog[open]", "Apply change")
	p.poll("the first is gone", func() bool { _, has := l.Overrides()["\x80"]; return !has })
	if _, has := l.Overrides()["\x81"]; !has {
		p.t.Error("the other one is gone too")
	}
	const overridden = `[...document.querySelectorAll('#limiter-api button[aria-label^="Explain "]')].filter((b) => b.closest("tr").innerText.includes("override"))`
	p.until("one of the hottest keys has a limit of its own", overridden+".length === 1")
	p.do(chromedp.Evaluate[chromedp.Void](overridden + "[0].click()"))
	p.until("its own limit is explained",
		`document.querySelector("dialog[open] pre")?.innerText.startsWith("\"\\x81\"")`)
	p.calm()
}

// leaveAfter applies the change in the dialog and closes it before the answer can be there.
func (p *tab) leaveAfter() {
	p.t.Helper()
	p.do(chromedp.Evaluate[chromedp.Void](`{
		[...document.querySelectorAll("dialog[open] button")].find((b) => b.textContent === "Apply change").click();
		document.getElementById("dialog").close();
	}`))
}

// closedWhileSending: the result of a change is shown, also when its dialog has been closed.
func closedWhileSending(p *tab) {
	l := p.alone()
	p.click("#limiter-api", "Turn dry run on")
	p.until("it is to be confirmed", compared)
	deny := quotient.Limit{Deny: true}
	must(p.t, l.Override("x", &deny)) // another client
	p.leaveAfter()
	p.until("the refusal is said", `document.getElementById("notice").innerText.match(/^Turn dry run on for api on this replica .*: failed\. .*Nothing was changed by you\.$/)`)
	if l.Stats().DryRun {
		p.t.Error("it was made")
	}
	p.calm("answer 412", "network error: Failed to load resource")
}

// closedBetweenChanges: of a change of several limiters, nothing more is sent once its dialog is closed.
func closedBetweenChanges(p *tab) {
	reg := p.idle([]string{"a", "b", "c"})
	p.open()
	p.click(".pool", "Change replicas")
	p.enter("Replicas", "9")
	p.click("dialog[open]", "Review change")
	p.until("it is to be confirmed", compared)
	p.leaveAfter()
	p.until("it is said what was changed", `document.getElementById("notice").innerText.match(/^Change the replica count of all limiters on this replica .*: stopped\. Changed already: a\.$/)`)
	for name, l := range reg.All() {
		if got := l.Stats().Pool.Replicas; (got == 9) != (name == "a") {
			p.t.Errorf("%s has %d replicas", name, got)
		}
	}
	p.calm()
}

// decimalComma: half of the world's decimal comma is no group of thousands.
func decimalComma(p *tab) {
	l := p.alone()
	p.click("#limiter-api", "Change limit")
	p.enter("Events", "1,5")
	p.press(kb.Enter)
	p.until("the error is next to the field", `document.activeElement.dataset.field === "rates[0].events" && document.getElementById(document.activeElement.id + "-error").textContent.startsWith("Enter a number")`)
	p.enter("Events", "1,500.5")
	p.press(kb.Enter)
	p.click("dialog[open]", "Apply change")
	p.poll("thousands may be set apart", func() bool { return l.Stats().Limit.Rates[0].Events == 1500.5 })
	p.calm()
}

func removedLimiter(p *tab) {
	reg := p.idle([]string{"api", "other"})
	p.open()
	p.click("#limiter-other", "Change limit")
	p.until("the form is there", `document.querySelector("dialog[open] .rates")`)
	reg.Remove("other")
	p.until("the limiter is gone", `!document.getElementById("limiter-other")`)
	p.click("dialog[open]", "Review change")
	p.until("it is said",
		`document.querySelector("#dialog-alert").innerText.includes("There is no limiter of that name")`)
	p.calm("answer 404", "network error: Failed to load resource")
}
