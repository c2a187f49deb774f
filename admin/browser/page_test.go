package browser

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/tested"
)

var all = flag.Bool("all", false, "run what takes long too")

var screenshots = flag.String("screenshots", "", "a `directory` to leave pictures of the page in")

// TestPage looks at the page of a service under load, and uses it.
func TestPage(t *testing.T) {
	t.Parallel()
	chromium(t)
	for name, test := range map[string]func(p *tab, s *service){
		"numbers move":               numbersMove,
		"hostile keys are text":      hostileKeysAreText,
		"replicas by keyboard alone": replicasByKeyboard,
		"replicas for a while":       replicasForAWhile,
		"limit":                      changeLimit,
		"override":                   changeOverride,
		"override for a while":       overrideForAWhile,
		"who is refused":             whoIsRefused,
		"reset":                      resetKey,
		"dry run":                    changeDryRun,
		"conflict":                   conflict,
		"theme is remembered":        themeIsRemembered,
		"connection lost and found":  lostAndFound,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startService(t)
			p := openTab(t, s.url())
			p.open()
			test(p, s)
			p.calm()
		})
	}
}

func numbersMove(p *tab, s *service) {
	p.until("trouble has opened all three", `$$("section.limiter .chart").length === 15`)
	for _, chart := range []string{"Admitted", "Refused", "In flight"} {
		drawn := fmt.Sprintf(`$$("#limiter-api .chart").find((c) => c.querySelector(".name").textContent === %q)`, chart)
		p.until("there is a line for "+chart,
			drawn+`.querySelector("path.line")?.getAttribute("d").includes("L")`)
		before := value[string](p, drawn+`.querySelector("path.line").getAttribute("d")`)
		p.until(chart+" moves",
			fmt.Sprintf(`%s.querySelector("path.line").getAttribute("d") !== %q`, drawn, before))
		p.until(chart+" has a value", drawn+`.querySelector(".value").textContent.match(/[1-9]/)`)
		p.until(chart+" has a text",
			fmt.Sprintf(`%s.querySelector("svg").getAttribute("aria-label").startsWith(%q)`, drawn,
				chart+", last 2 minutes: now "))
	}
	p.until("the values of an instant are shown by keyboard", `(() => {
		const chart = $$("#limiter-api .chart")[1];
		chart.querySelector("svg").focus();
		return chart.querySelector(".tip").innerText.match(/^\d+:\d\d:\d\d.* · [\d.]+ per second · (denied|rate) [\d.]+/) !== null;
	})() || void focused.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowLeft" }))`)
	p.until("and under the pointer", `(() => {
		const frame = $("#limiter-api .chart .frame");
		const tip = frame.querySelector(".tip");
		frame.dispatchEvent(new PointerEvent("pointermove", { clientX: frame.getBoundingClientRect().right - 2 }));
		const shown = tip.innerText.includes("per second");
		frame.dispatchEvent(new PointerEvent("pointerleave"));
		return shown && !tip.checkVisibility();
	})()`)
	p.until("the reasons of refusals are named", `["rate", "denied"].every((r) => $("#limiter-api .charts").innerText.includes(r))`)
	p.scroll("jobs")
	p.until("callers wait", `Number($("#limiter-jobs .figure").textContent) > 0`)
	p.until("the queue is full", `$("#limiter-jobs .charts").innerText.includes("queue full")`)
	p.scroll("search")
	p.until("upstream answers 429", `$$("#limiter-search .chart").at(-1).querySelector("svg").getAttribute("aria-label").match(/highest [1-9]/)`)
	tested.Not(p.t, s.search.Stats().Throttled == 0, "the upstream never answered 429")
	p.until("the fleet is shown", `$(".pool").words.includes("3 replicas all limiters This one number 2 Source configured")`)
	p.until("rules are shown", `$("#limiter-api table").words.match(/requests 300\/s 100\/s 20 in-flight 40 slots 1[34] slots/)`)
	p.until("a rate of minutes stays one", `$("#limiter-jobs table").words.includes("starts 3,600/min 1,200/min 2")`)
}

func hostileKeysAreText(p *tab, _ *service) {
	p.scroll("api")
	row := fmt.Sprintf(`$$("#limiter-api table.keys th, #limiter-api .key").some((th) => th.innerText.startsWith(%q))`, hostile)
	p.until("the hostile key is in the table", row)
	p.until("it is explained", `($('#limiter-api button[aria-label="Explain tenant-gold"]'))`)
	p.run(fmt.Sprintf(`{
		const box = $("#limiter-api .ask input");
		box.value = %q;
		box.form.requestSubmit();
	}`, hostile))
	p.until("the dialog explains the key", fmt.Sprintf(`$("dialog[open] h2").textContent === "Key " + %q && $("dialog[open] pre")?.textContent.includes("requests")`, hostile))
	p.until("its rules are shown", `$("dialog[open] tbody")?.innerText.includes("requests")`)
	p.click("dialog[open]", "Override this key")
	p.until("an override is offered",
		fmt.Sprintf(`$('dialog[open] [data-field="key"]')?.value === %q`, hostile))
	p.press(kb.Escape)
	p.until("the dialog is closed", `!$("dialog[open]")`)
	tested.Want(p.t, "pictures that a key became", value[int](p, `$$("main img, dialog img").length`), 0)
}

// replicasByKeyboard uses Tab, Enter and Escape and nothing else.
func replicasByKeyboard(p *tab, s *service) {
	p.tabTo("Change replicas")
	p.press(kb.Enter)
	p.until("the dialog is open", `focused.dataset.field === "replicas"`)
	p.press(kb.Escape)
	p.until("the focus is back", `!$("dialog[open]") && focused.textContent === "Change replicas"`)
	p.press(kb.Enter)
	p.until("the dialog is open again", `focused.dataset.field === "replicas"`)
	p.do(chromedp.KeyEvent("5"), chromedp.KeyEvent(kb.Enter))
	p.until("old and new are shown", `$("dialog[open] tbody")?.words.includes("Replicas 3 → 5")`)
	p.until("the heading has the focus", `focused.id === "dialog-title"`)
	tested.Want(p.t, "the pool without a confirmation", s.api.Stats().Pool.Replicas, 3)
	p.tabTo("Apply change")
	p.press(kb.Enter)
	for _, l := range []*quotient.Limiter{s.api, s.jobs, s.search} {
		p.poll("the pool is of 5", func() bool {
			return l.Stats().Pool.Pool == quotient.Pool{Replicas: 5, Ordinal: 2}
		})
	}
	p.until("the page shows it", `$(".pool .size").textContent === "5" && $(".pool").innerText.includes("an operator")`)
	p.until("it says so", `$("#notice").textContent === "Replica count of all limiters set to 5."`)
}

func replicasForAWhile(p *tab, s *service) {
	p.click(".pool", "Change replicas")
	p.choose("For", "jobs")
	p.enter("Replicas", "4", "For how many minutes", "ten")
	p.press(kb.Enter)
	p.until("the error is next to the field",
		`focused.dataset.field === "ttl_seconds" && focused.getAttribute("aria-invalid") === "true" &&
		focused.getAttribute("aria-describedby").split(" ").some((id) => document.getElementById(id).textContent.startsWith("Enter a number from 0.001"))`)
	p.enter("For how many minutes", "10")
	p.apply()
	p.poll("the operator's count ends", func() bool {
		return !s.jobs.Stats().Pool.Until.IsZero() && s.jobs.Stats().Pool.Replicas == 4
	})
	p.until("the page says when", `$$(".pool").some((pool) => pool.innerText.includes("Ends") && pool.innerText.includes("in 9 min"))`)
	p.until("pools that differ stand apart", `$$(".pool").length === 2`)
	must(p.t, s.jobs.SetPool(quotient.Pool{Replicas: 3, Ordinal: 2}, 0))
}

func changeLimit(p *tab, s *service) {
	p.click("#limiter-api", "Change limit")
	p.enter("Events", "0")
	p.press(kb.Enter)
	p.until("the error is next to the field", `focused.dataset.field === "rates[0].events" && fieldError.startsWith("Enter a number above 0")`)
	tested.Want(p.t, "the limit in force after a refusal", s.api.Stats().Limit.Rates[0].Events, 300)
	p.enter("Events", "450", "In flight", "60")
	p.press(kb.Enter)
	p.until("old and new are shown", `["300 / s", "450 / s", "40", "60"].every((text) => $("dialog[open] tbody")?.innerText.includes(text))`)
	p.click("dialog[open]", "Apply change")
	p.poll("the limit is in force", func() bool {
		l := s.api.Stats().Limit
		return l.Rates[0].Events == 450 && l.InFlight == 60 && l.Rates[0].Burst == 60
	})
	p.until("the page shows it", `$("#limiter-api table").innerText.includes("450/s")`)
	p.click("#limiter-search", "Change limit")
	p.choose("Kind", "Window of the wall clock")
	p.until("a window has no burst", `!`+fieldOf("Burst")+`.checkVisibility()`)
	p.enter("Per seconds", "86400", "Zone of its days", "Europe/Berlin")
	p.click("dialog[open]", "Add a rate")
	p.do(chromedp.KeyEvent("2000"))
	p.apply()
	p.poll("there are a window and another rate", func() bool {
		rates := s.search.Stats().Limit.Rates
		return len(rates) == 2 && rates[0].Kind == quotient.Window && rates[0].Zone == "Europe/Berlin" &&
			rates[1].Events == 2000
	})
}

func changeOverride(p *tab, s *service) {
	own := func(key string) (quotient.Limit, bool) { e := s.api.Explain(key); return e.Limit, e.Overridden }
	p.click("#limiter-api", "Override a key")
	p.enter("Key", hostile, "Events", "12")
	p.apply()
	p.poll("the key has its own limit", func() bool {
		l, ok := own(hostile)
		return ok && l.Rates[0].Events == 12
	})
	p.click("#limiter-api", "Change the override of "+hostile)
	p.pick("Deny everything")
	p.press(kb.Enter)
	p.until("old and new are shown", `$("dialog[open] tbody")?.innerText.includes("12 / s") && $("dialog[open] tbody")?.innerText.includes("deny everything")`)
	p.click("dialog[open]", "Apply change")
	p.poll("the key is denied", func() bool { l, ok := own(hostile); return ok && l.Deny })
	p.click("#limiter-api", "Remove the override of "+hostile)
	p.until("old and new are shown", `$("dialog[open] tbody")?.innerText.includes("the limiter's own")`)
	p.click("dialog[open]", "Apply change")
	p.poll("the key has the limiter's limit", func() bool { _, ok := own(hostile); return !ok })
	p.until("the page shows it", `!$("#limiter-api").innerText.includes("Remove the override of <img")`)
}

// overrideForAWhile: what is not typed over is what holds for the key, the end is shown, and all can be undone.
func overrideForAWhile(p *tab, s *service) {
	const gold = "tenant-gold" // in plan paid
	p.explainKey(gold)
	p.click("dialog[open]", "Override this key")
	p.until("the fields hold the plan's limit", fieldOf("Events")+`?.value === "450" && `+fieldOf("Burst")+`.value === "450"`)
	p.choose("How long", "For another time")
	p.enter("For how many minutes", "0")
	p.press(kb.Enter)
	p.until("the time is refused at the field", `focused.dataset.field === "ttl_seconds" && fieldError.startsWith("Enter a number from 0.001")`)
	p.choose("How long", "For 10 minutes")
	p.enter("Events", "600")
	p.press(kb.Enter)
	p.until("the review says whose limit holds now", compared+`?.match(/What holds that of plan paid → its own limit Rate 1 .*450 \/ s .*→ .*600 \/ s .*How long – → for 10 min/)`)
	p.click("dialog[open]", "Apply change")
	own := func() quotient.Explanation { return s.api.Explain(gold) }
	p.poll("the key has its own limit for a while", func() bool {
		return own().Overridden && own().Limit.Rates[0].Events == 600 && time.Until(own().Until) > 9*time.Minute
	})
	const row = `$$("#limiter-api tr").find((r) => r.querySelector('[aria-label="Change the override of tenant-gold"]'))`
	p.until("the list says when it ends", row+`?.words.match(/tenant-gold 600 \/ s .* in 9 min, at .* Change/)`)
	p.explainKey(gold)
	p.until("so does what is explained", `$("dialog[open] .facts").words.match(/Its own limit ends in 9 min, at/)`)
	p.press(kb.Escape)
	p.click("#limiter-api", "Change the override of "+gold)
	p.until("the rest of its time is chosen", fieldOf("How long")+`?.selectedOptions[0].textContent.startsWith("Until it ends, in 9 min")`)
	p.pick("Deny everything")
	p.click("dialog[open]", "Review change")
	p.click("dialog[open]", "Apply change")
	p.poll("it is denied until then", func() bool { return own().Limit.Deny && time.Until(own().Until) > 9*time.Minute })
	p.until("the page knows", `!$("dialog[open]") && $("#undo").checkVisibility()`)
	p.click(".notice", "Undo")
	p.poll("its limit is back for the rest of the time", func() bool {
		return !own().Limit.Deny && own().Limit.Rates[0].Events == 600 && time.Until(own().Until) > 9*time.Minute
	})
	p.until("it is said", `$("#notice").textContent === "Override of \u2068tenant-gold\u2069 is as it was." && $("#undo").hidden`)
	p.until("the focus has a place", `focused.id === "main"`)
	remove := func() {
		p.click("#limiter-api", "Remove the override of "+gold)
		p.until("its plan's limit would hold", compared+`?.match(/What holds its own limit → that of its plan, or the limiter's own/)`)
		p.click("dialog[open]", "Apply change")
		p.poll("it is gone", func() bool { return !own().Overridden })
	}
	beneath, over := quotient.Rates(quotient.PerSecond(3)), own().Limit
	must(p.t, s.api.Override(gold, &beneath, 0))
	must(p.t, s.api.Override(gold, &over, 10*time.Minute))
	p.until("the list says what comes after it", row+`?.words.match(/tenant-gold 600 \/ s .* in 9 min, at .*, then 3 \/ s.* Change/)`)
	remove()
	p.until("the page knows", `!$("dialog[open]") && $("#undo").checkVisibility()`)
	p.click(".notice", "Undo")
	p.poll("it is back, and what comes after it", func() bool {
		e := own()
		return e.Overridden && e.Limit.Rates[0].Events == 600 && e.Then != nil && e.Then.Rates[0].Events == 3
	})
	remove()
	limit := quotient.Rates(quotient.PerSecond(7))
	must(p.t, s.api.SetPlan("free", &limit))
	p.until("the page knows", `!$("dialog[open]") && $("#undo").checkVisibility()`)
	p.click(".notice", "Undo")
	p.until("another client was faster", `$("#notice").textContent === "Not undone: it has ended, or was changed since."`)
	p.calm("answer 412", "network error: Failed to load resource")
}

// whoIsRefused: the keys can be in the order of what was refused in the last minute.
func whoIsRefused(p *tab, s *service) {
	for range 30 {
		p.poll("a key is refused thirty times", func() bool { return !s.api.Allow("tenant-blocked") })
	}
	p.scroll("api")
	p.keysShown()
	p.run(`{
		const order = $('#limiter-api select[aria-label="Order of the keys"]');
		order.value = "refused";
		order.dispatchEvent(new Event("change"));
	}`)
	p.until("the most refused key is the first, with its numbers", `(() => {
		const cells = $("#limiter-api .keys tbody tr").cells;
		const refused = $$("#limiter-api .keys tbody tr").map((r) => Number(r.querySelector('[data-label="Refused/min"]').textContent.replace(",", "")));
		return refused[0] > 0 && refused.every((n, i) => i === 0 || n <= refused[i - 1]) &&
			cells[0].parentNode.querySelector('[data-label="Admitted/min"]').textContent.match(/^[\d,]+$/);
	})()`)
	p.explainKey("tenant-blocked")
	p.until("what is explained has them too", `$("dialog[open] .facts").words.match(/Refused in the last minute [1-9][\d,]* Admitted in the last minute 0/)`)
}

// resetKey forgives a key: the operator sees where it stands, and what that changes.
func resetKey(p *tab, s *service) {
	own := quotient.Rates(quotient.Rate{Name: "rare", Events: 3, Per: 1000 * time.Hour, Burst: 3})
	must(p.t, s.api.Override("debtor", &own, 0)) // the load does not ask for it
	for s.api.Allow("debtor") {
	}
	p.explainKey("debtor")
	p.click("dialog[open]", "Reset this key")
	p.until("old and new are shown", compared+`?.match(/Key debtor unchanged Remembered yes unchanged rare 0 left, full in .* → as of a key never seen In flight 0 unchanged Waiting 0 unchanged/)`)
	tested.Not(p.t, s.api.Check("debtor").OK, "it was forgiven before the operator said so")
	p.click("dialog[open]", "Apply change")
	p.until("the page says so", `!$("dialog[open]") && document.body.innerText.includes("Key \u2068debtor\u2069 starts fresh.")`)
	tested.Not(p.t, !s.api.Check("debtor", quotient.Weight(3)).OK, "the key stands at %v", s.api.Explain("debtor"))
	must(p.t, s.api.Override("debtor", nil, 0))
}

func changeDryRun(p *tab, s *service) {
	for _, on := range []bool{true, false} {
		words := map[bool]string{true: "on", false: "off"}
		p.click("#limiter-api", "Turn dry run "+words[on])
		p.until("old and new are shown",
			fmt.Sprintf(`$("dialog[open] strong")?.textContent.startsWith(%q)`, words[on]))
		p.click("dialog[open]", "Apply change")
		p.poll("dry run is "+words[on], func() bool { return s.api.DryRun() == on })
		p.until("the badge follows", fmt.Sprintf(`$("#limiter-api .dry").hidden !== %v`, on))
	}
}

// conflict: the review reports that another client was faster, or else Apply does.
func conflict(p *tab, s *service) {
	const said = `$("dialog[open] [role=alert]")?.innerText.includes("Another client changed it") &&
		focused.textContent === "Reload"`
	faster := func(events float64) {
		other := s.api.Stats().Limit
		other.Rates[0].Events = events
		must(p.t, s.api.SetLimit(other))
	}
	shows := func(events string) {
		p.press(kb.Enter)
		p.until("the values of now are shown",
			fmt.Sprintf(`$('dialog[open] [data-field="rates[0].events"]')?.value === %q`, events))
	}
	p.click("#limiter-api", "Change limit")
	p.enter("Events", "500")
	faster(360)
	p.press(kb.Enter)
	p.until("the review says it", said)
	shows("360")
	p.enter("Events", "500")
	p.press(kb.Enter)
	p.until("it is to be confirmed", compared)
	faster(370)
	p.click("dialog[open]", "Apply change")
	p.until("the conflict is said", said)
	tested.Want(p.t, "the limit that the other has set", s.api.Stats().Limit.Rates[0].Events, 370)
	shows("370")
	p.enter("Events", "330")
	p.apply()
	p.poll("the second attempt counts", func() bool { return s.api.Stats().Limit.Rates[0].Events == 330 })
	p.calm("answer 412", "network error: Failed to load resource")
}

func themeIsRemembered(p *tab, _ *service) {
	const ground = `getComputedStyle(document.body).backgroundColor`
	p.theme("dark")
	dark := value[string](p, ground)
	p.theme("light")
	light := value[string](p, ground)
	for _, want := range []string{light, dark} {
		p.click("header", value[string](p, `$("#theme").textContent`))
		p.until("the theme has changed", fmt.Sprintf("%s === %q", ground, want))
	}
	p.open()
	p.until("the theme is remembered",
		fmt.Sprintf(`%s === %q && $("#theme").textContent === "Theme: dark"`, ground, dark))
	p.click("header", "Theme: dark")
	tested.Not(p.t, light == dark, "light and dark are both %s", light)
}

func lostAndFound(p *tab, s *service) {
	p.until("the page is live", `$("#link-text").textContent === "Live"`)
	p.until("there is a line to have a gap",
		`$("#limiter-api .chart path.line")?.getAttribute("d").includes("L")`)
	s.stop()
	p.until("the loss is shown", `document.body.classList.contains("stale") && !$("#banner").hidden`)
	p.until("it is said", `$("#status").textContent.startsWith("Connection lost.")`)
	p.until("the next attempt is announced", `$("#banner-text").textContent.match(/cannot be reached.*Trying again in \d+ s\./)`)
	p.fits("lost")
	s.serve(p.t)
	p.click("#banner", "Retry now")
	p.until("it is live again", `!document.body.classList.contains("stale") && $("#banner").hidden`)
	p.until("it is said", `$("#status").textContent.startsWith("Connected again.")`)
	// the gap
	p.until("numbers move again",
		`$("#limiter-api .chart path.line")?.getAttribute("d").split("M").length > 2`)
	p.calm("loading failed", "net::ERR_CONNECTION_REFUSED")
}
