package browser

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/admin"
	"github.com/quotient-go/quotient/internal/carried"
	"github.com/quotient-go/quotient/internal/tested"
)

// TestPageInRareCases looks at the page where few operators get, each time of an idle service of its own.
func TestPageInRareCases(t *testing.T) {
	inChromium(t, map[string]func(p *tab){
		"events far apart":                  eventsFarApart,
		"tokens that cannot be one":         tokensThatCannotBeOne,
		"override beyond the shown":         overrideBeyondTheShown,
		"deny plus plans":                   denyPlusPlans,
		"plans":                             plans,
		"a broken file":                     brokenFile,
		"tables":                            tables,
		"leases":                            leases,
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
	p.long()
	l := p.alone(admin.EventsEvery(9 * time.Second))
	p.run(`{
		window.begun = performance.now();
		new MutationObserver(() => { window.lost ||= document.body.classList.contains("stale"); }).observe(document.body, { attributes: true });
	}`)
	l.SetDryRun(true)
	p.until("the page's patience has ended", `performance.now() - begun > 8600`)
	p.until("the next state has come", `window.lost || $("#limiter-api .dry").checkVisibility()`)
	if value[bool](p, `Boolean(window.lost)`) {
		p.t.Error("the service is well, and the page said that the connection was lost")
	}
}

// tokensThatCannotBeOne: what cannot be sent in a header field is refused at once, and can be corrected;
// space around a token is none of it.
func tokensThatCannotBeOne(p *tab) {
	reg := p.idle([]string{"api"}, admin.Token(secret))
	p.do(chromedp.Navigate(p.origin))
	invalid := func(want bool) string {
		return fmt.Sprintf(`$("#token-dialog[open]") && $("#token").getAttribute("aria-invalid") === "%v" && ($("#token-error").textContent !== "") === %v`, want, want)
	}
	submit := func(text string) {
		p.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`$("#token").value = %q`,
			text)), chromedp.KeyEvent(kb.Enter))
	}
	p.until("a token is asked for", invalid(false))
	p.press(kb.Escape)
	p.until("there is no way round", invalid(false))
	for _, text := range []string{secret + "\u200b", "not-a-secret-…", "", "two words"} {
		submit(text)
		p.until("it is asked for again", invalid(true)+
			` && $("#token-error").textContent.startsWith("A token has letters")`)
	}
	submit("a-wrong-one-0123456789")
	p.until("a wrong one is refused",
		invalid(true)+` && $("#token-error").textContent.includes("did not accept")`)
	submit("  " + secret + " ")
	p.until("the page is live", `$("#link").dataset.state === "live" && !$("dialog[open]")`)
	p.click("#limiter-api", "Turn dry run on")
	p.click("dialog[open]", "Apply change")
	l, _ := reg.Get("api")
	p.poll("the token counts for changes", func() bool { return l.DryRun() })
	p.calm("answer 401", "network error: Failed to load resource")
}

const compared = `$("dialog[open] .compare")?.words`

// explainKey asks for any key of the limiter api.
func (p *tab) explainKey(key string) {
	p.t.Helper()
	p.until("there is a form", `$("#limiter-api form.ask")`)
	p.run(fmt.Sprintf(`{
		const form = $("#limiter-api form.ask");
		form.querySelector("input").value = %q;
		form.requestSubmit();
	}`, key))
	p.until("the key is explained", `$("dialog[open] pre")`)
}

// overrideBeyondTheShown: an override that the state does not show is known all the same, by whichever way
// the operator comes to its key.
func overrideBeyondTheShown(p *tab) {
	l := p.alone()
	own := quotient.Rates(quotient.PerSecond(7))
	for i := range 1001 {
		must(p.t, l.Override(fmt.Sprintf("k%05d", i), &own, 0))
	}
	p.explainKey("k01000")
	p.click("dialog[open]", "Override this key")
	p.until("it can be removed", `$('dialog[open] input[value="remove"]')`)
	p.pick("Remove the override")
	p.click("dialog[open]", "Review change")
	p.until("the old limit is shown", compared+`?.match(/its own limit → the limiter's own Rate 1 second: 7 \/ s → second: 300 \/ s/)`)
	p.press(kb.Escape)
	p.click("#limiter-api", "Override a key")
	p.enter("Key", "k01000", "Events", "8")
	p.click("dialog[open]", "Review change")
	p.until("the old limit is shown again", compared+`?.includes("7 / s → second: 8 / s")`)
	p.click("dialog[open]", "Apply change")
	p.poll("it is set", func() bool {
		o := l.Explain("k01000").Limit
		return len(o.Rates) == 1 && o.Rates[0].Events == 8
	})
}

// denyPlusPlans: of a limiter that denies keys in no plan the page does not say that it denies everything, and nobody is
// given no limit at all by mistake.
func denyPlusPlans(p *tab) {
	l := p.alone()
	rate := quotient.Rates(quotient.PerSecond(30))
	must(p.t, l.SetLimit(quotient.Limit{Deny: true}))
	const badge = `$$("#limiter-api .badge").find((n) => n.checkVisibility() && /^Denies/.test(n.textContent))`
	for _, step := range []struct {
		plan func() error
		text string
		red  bool
	}{
		{func() error { return nil }, "Denies everything", true},
		{func() error { return l.Override("k", &rate, 0) }, "Denies keys without a limit of their own", false},
		{func() error { return l.SetPlan("paid", &rate) }, "Denies keys in no plan", false},
	} {
		must(p.t, step.plan())
		p.until("the page says: "+step.text, fmt.Sprintf(`%s?.textContent === %q && %[1]s.classList.contains("denies") === %[3]t &&
			$("#limiter-api table").innerText.includes(%[2]q)`, badge, step.text, step.red))
	}
	p.click("#limiter-api", "Override a key")
	p.enter("Key", "new")
	p.press(kb.Enter)
	p.until("nothing typed is no limit", `focused.dataset.field === "rates[0].events" && fieldError.startsWith("Enter a number above 0")`)
	p.click("dialog[open]", "Remove rate 1")
	p.click("dialog[open]", "Review change")
	p.until("neither is nothing at all", `focused.dataset.field === "in_flight" && fieldError.includes("choose “No limit”")`)
	p.pick("No limit")
	p.press(kb.Enter)
	const red = `getComputedStyle($("dialog[open] .bad")).color === getComputedStyle($("dialog[open] .alert")).color`
	p.until("it is a choice of its own", compared+`?.match(/Limit that of its plan, or the limiter's own → no limit/) && `+red)
	tested.Want(p.t, "the key before it was confirmed", l.Explain("new").Overridden, false)
	p.click("dialog[open]", "Apply change")
	p.poll("the key has no limit", func() bool {
		e := l.Explain("new")
		return e.Overridden && e.Limit.String() == (quotient.Limit{}).String()
	})
	p.click("#limiter-api", "Change limit")
	p.until("what holds is chosen", `$("dialog[open] input:checked").value === "deny"`)
	p.pick("No limit")
	p.apply()
	p.poll("the limiter has no limit", func() bool { return !l.Stats().Limit.Deny && len(l.Stats().Limit.Rates) == 0 })
}

// plans are listed, set, changed and taken off, and a key has the name of its plan beside it.
func plans(p *tab) {
	l := p.alone()
	const part = `$$("#limiter-api .part").find((n) => n.querySelector("h3").textContent === "Plans")`
	p.until("it is said that there is none",
		part+`.innerText.includes("No plan:") && !`+part+`.querySelector("table").checkVisibility()`)
	p.until("they stand between rules and keys", `$$("#limiter-api h3").filter((n) => n.checkVisibility()).map((n) => n.textContent).join() === "Rules,Plans,Keys,Overrides"`)
	limit := func(name string) string {
		if plan, ok := l.Stats().Plans[name]; ok {
			return plan.Limit.String()
		}
		return "none"
	}
	p.click("#limiter-api", "Add a plan")
	p.enter("Plan", "Paid", "Events", "600", "Burst", "900")
	p.press(kb.Enter)
	p.until("the error is next to the field", `focused.dataset.field === "plan" && fieldError.startsWith("Enter 1 to 64 of a-z")`)
	p.enter("Plan", "paid")
	p.press(kb.Enter)
	p.until("old and new are shown",
		compared+`?.match(/Plan paid unchanged Limit no such plan → .*600 \/ s/)`)
	tested.Want(p.t, "the plan without a confirmation", limit("paid"), "none")
	p.click("dialog[open]", "Apply change")
	p.until("it is listed, with this replica's third",
		part+`.words.match(/paid 600 \/ s \(burst 900\) 200\/s/)`)
	l.TryAcquire("customer", quotient.Plan("paid"))
	l.TryAcquire("other")
	const badges = `$$("#limiter-api th.key .badge").map((n) => n.parentElement.words).join()`
	p.until("the key has a badge", badges+` === "customer paid"`)
	p.explainKey("customer")
	p.until("its plan is named", `$("dialog[open] pre").innerText.includes("(plan paid)")`)
	p.press(kb.Escape)
	p.click("#limiter-api", "Change the plan paid")
	p.until("its limit is there", `$('dialog[open] [data-field="rates[0].events"]')?.value === "600" && $('dialog[open] [data-field="plan"]').readOnly`)
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
}

// keysThatAreNoText: each has a line of its own, is explained, and loses its override and no other's.
func keysThatAreNoText(p *tab) {
	p.long()
	l := p.alone()
	deny := quotient.Limit{Deny: true}
	for _, key := range []string{"\x80", "\x81"} {
		must(p.t, l.Override(key, &deny, 0))
		l.Allow(key)
	}
	p.until("there are two", `$$('#limiter-api button[aria-label^="Remove the override"]').length === 2`)
	p.click("#limiter-api", "Remove the override of \uFFFD")
	p.until("the old limit is shown", compared+`?.includes("deny everything → 300 / s")`)
	p.click("dialog[open]", "Apply change")
	p.poll("the first is gone", func() bool { return !l.Explain("\x80").Overridden })
	tested.Not(p.t, !l.Explain("\x81").Overridden, "the other one is gone too")
	const overridden = `$$('#limiter-api button[aria-label^="Explain "]').filter((b) => b.closest("tr").innerText.includes("override"))`
	p.until("one of the hottest keys has a limit of its own", overridden+".length === 1")
	p.run(overridden + "[0].click()")
	p.until("its own limit is explained", `$("dialog[open] pre")?.innerText.startsWith("\"\\x81\"")`)
}

// leaveAfter applies the change in the dialog and closes it before the answer can be there.
func (p *tab) leaveAfter() {
	p.t.Helper()
	p.run(`{
		$$("dialog[open] button").find((b) => b.textContent === "Apply change").click();
		$("#dialog").close();
	}`)
}

// closedWhileSending: the result of a change is shown, also when its dialog has been closed.
func closedWhileSending(p *tab) {
	l := p.alone()
	p.click("#limiter-api", "Turn dry run on")
	p.until("it is to be confirmed", compared)
	deny := quotient.Limit{Deny: true}
	must(p.t, l.Override("x", &deny, 0)) // another client
	p.leaveAfter()
	p.until("the refusal is said", `$("#notice").innerText.match(/^Turn dry run on for api on this replica .*: failed\. .*Nothing was changed by you\.$/)`)
	tested.Not(p.t, l.DryRun(), "it was made")
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
	p.until("it is said what was changed", `$("#notice").innerText.match(/^Change the replica count of all limiters on this replica .*: stopped\. Changed already: a\.$/)`)
	for name, l := range reg.All() {
		tested.Want(p.t, name+" has nine replicas", l.Stats().Pool.Replicas == 9, name == "a")
	}
}

// decimalComma: half of the world's decimal comma is no group of thousands.
func decimalComma(p *tab) {
	l := p.alone()
	p.click("#limiter-api", "Change limit")
	p.enter("Events", "1,5")
	p.press(kb.Enter)
	p.until("the error is next to the field", `focused.dataset.field === "rates[0].events" && fieldError.startsWith("Enter a number")`)
	p.enter("Events", "1,500.5")
	p.apply()
	p.poll("thousands may be set apart", func() bool { return l.Stats().Limit.Rates[0].Events == 1500.5 })
}

func removedLimiter(p *tab) {
	reg := p.idle([]string{"api", "other"})
	p.open()
	p.click("#limiter-other", "Change limit")
	p.until("the form is there", `$("dialog[open] .rates")`)
	reg.Remove("other")
	p.until("the limiter is gone", `!$("#limiter-other")`)
	p.click("dialog[open]", "Review change")
	p.until("it is said", `$("#dialog-alert").innerText.includes("There is no limiter of that name")`)
	p.calm("answer 404", "network error: Failed to load resource")
}

// brokenFile: the page shows the file, is red from a bad load to the next good one, and marks what operators
// changed by hand.
func brokenFile(p *tab) {
	const panel, red = `$("#file").words`, `$("#file .file-error")`
	var now atomic.Pointer[admin.FileState]
	loaded := time.Now().Add(-3 * time.Minute)
	well := admin.FileState{Path: "/etc/quotient/quotient.toml", Loaded: loaded, Reloads: 4}
	now.Store(&well)
	p.idle([]string{"api", "other"}, admin.File(func() admin.FileState { return *now.Load() }))
	p.open()
	p.until("the file is shown",
		panel+`.match(/File \/etc\/quotient\/quotient.toml Loaded 3 min ago, at .* Reloads 4 Failures 0$/)`)
	marks := func(limiter string) string {
		return fmt.Sprintf(`$("#limiter-%s .differs")`, limiter)
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
		`$("#limiter-api header").innerText.includes("Differs from the file")`)
	p.fits("a broken file")

	mended := broken
	mended.Loaded, mended.Reloads, mended.Differs = time.Now(), 5, nil
	now.Store(&mended)
	p.until("it is not red any more, and the error is still to be read",
		`!`+red+`.checkVisibility() && `+panel+
			`.match(/Reloads 5 Failures 2 Last error, mended since quotient\.toml:3:7/)`)
	p.until("nothing is marked", `!`+marks("api")+`?.checkVisibility()`)
	now.Store(&well) // as where a good load forgets the error
	p.until("there is no error", panel+`.endsWith("Failures 0") && !`+red+`.checkVisibility()`)
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
		return fmt.Sprintf(`$('#tables section[aria-label="%s"]')?.words.replace("%[1]s %[1]s", "%[1]s")`, name)
	}
	p.until("there are no file and no leases", `!$("#file").checkVisibility() && !$("#leases").checkVisibility()`)
	p.until("the overhead is shown", text("Overhead")+` === "Overhead Count p50 p99 1 11 µs 92 µs"`)
	p.until("upstreams are shown", text("Upstreams")+
		`.startsWith("Upstreams URL State Last error http://10.0.0.1:8080 healthy")`)
	p.until("cells are text", fmt.Sprintf(`%s.includes(%q) && !$("#tables img")`, text("Upstreams"), hostile))
	p.until("what is left out is counted", text("Upstreams")+`.endsWith("7 more rows are not shown.")`)
	p.fits("tables")

	p.run(`window.row = $('#tables section[aria-label="Upstreams"] tbody tr')`)
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
	p.until("there is none", `$("#tables").childElementCount === 0`)
}

// beyond what a number of JavaScript can be
const leasePeer, leaseToken = 16045690984503098046, 1767323045000000006

// leasesOf is a lease service in which one peer holds the semaphore with a hostile name, and one waits for
// it.
type leasesOf struct {
	mu      sync.Mutex
	token   uint64 // of the holder; 0: there is none
	broken  int
	semas   []admin.Semaphore
	started time.Time
}

func (l *leasesOf) Leases() admin.LeaseState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return admin.LeaseState{Leads: true, Peers: 2, Semaphores: l.semas}
}

func (l *leasesOf) Locks(semaphore string, _ int) (held, pending []admin.LeaseLock, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if semaphore != hostile {
		return nil, nil, admin.ErrNoSemaphore
	}
	lock := admin.LeaseLock{Peer: leasePeer, Count: 2, Token: l.token, Since: l.started,
		Expires: time.Now().Add(time.Minute)}
	waiter := lock
	waiter.Peer, waiter.Token = 7, 0
	if l.token == 0 {
		return nil, nil, nil
	}
	return []admin.LeaseLock{lock}, []admin.LeaseLock{waiter}, nil
}

func (l *leasesOf) Break(peer uint64, semaphore string, token uint64) (admin.LeaseLock, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if peer != leasePeer || semaphore != hostile || token != l.token || token == 0 {
		return admin.LeaseLock{}, admin.ErrNotHeld
	}
	l.broken, l.token = l.broken+1, 0
	l.semas[0].Acquired, l.semas[0].Pending = 0, 0
	return admin.LeaseLock{Peer: peer, Count: 2, Token: token}, nil
}

func (l *leasesOf) set(token uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.token = token
}

// leases: the page shows the semaphores that fit, who holds one, and breaks a lease after a second look; a
// lease that is another one by then stays.
func leases(p *tab) {
	l := &leasesOf{token: leaseToken, started: time.Now().Add(-5 * time.Minute)}
	l.semas = []admin.Semaphore{{Name: hostile, Max: 3, Acquired: 2, Holders: 1, Pending: 2, Waiters: 1,
		LongestPendingSeconds: 250}}
	for i := range 10_000 {
		l.semas = append(l.semas, admin.Semaphore{Name: fmt.Sprintf("s%05d", i), Max: 1})
	}
	p.idle(nil, admin.WithLeases(l))
	p.open()
	const panel = `$("#leases").words`
	p.until("the state of the service is shown",
		panel+`.includes("This process grants leases Peers 2 Semaphores 10,001")`)
	p.until("names are text",
		fmt.Sprintf(`%s.includes(%q) && !$("#leases img, #leases script")`, panel, hostile))
	p.until("the rows are bounded", `$$("#leases tbody tr").length === 100 && `+panel+
		`.includes("9,901 more semaphores are not shown.")`)
	p.until("the one that is waited for stands first", `$("#leases tbody tr").words.includes("2 of 3 1 2 1 4 min 0")`)
	p.fits("leases")

	const dialog = `$("dialog[open]")?.words`
	locks := func() {
		p.click("#leases", "Holders of "+hostile)
		p.until("holder and waiter are shown",
			fmt.Sprintf(`%s?.includes("%d token %d 2 5 min") && %[1]s.includes("Waiters, oldest first Peer")`,
				dialog, uint64(leasePeer), leaseToken))
	}
	breaks := fmt.Sprintf("Break the lease of peer %d", uint64(leasePeer))
	locks()
	p.click("dialog[open]", breaks)
	p.until("it is confirmed first", compared+`?.includes("holds 2, for 5 min")`)
	l.set(leaseToken + 1)
	p.click("dialog[open]", "Apply change")
	p.until("another lease stays", dialog+`?.includes("Another client changed it")`)
	p.click("dialog[open]", "Reload")
	p.until("it is gone", dialog+`?.includes("does not hold this lock any more")`)
	p.click("dialog[open]", "Cancel")
	p.calm("answer 412", "Failed to load resource")

	l.set(leaseToken)
	locks()
	p.click("dialog[open]", breaks)
	p.until("it is confirmed", compared)
	p.click("dialog[open]", "Apply change")
	p.until("it is broken",
		fmt.Sprintf(`$("#notice").textContent === "The lease of peer %d is broken."`, uint64(leasePeer)))
	l.mu.Lock()
	tested.Want(p.t, "leases broken", l.broken, 1)
	l.mu.Unlock()
}

// othersText is the text of the part of a limiter's page about the other replicas.
const othersText = `$("#limiter-api .facts")?.words`

// together: the page shows what the replicas have done together, what one of them borrows, and that their
// reports have ended.
func together(p *tab) {
	l, err := quotient.New(quotient.Rates(quotient.PerSecond(400)), quotient.Replicas(4),
		quotient.Demand(10, 3*time.Second))
	must(p.t, err)
	reg := new(quotient.Registry)
	must(p.t, reg.Add("api", l))
	p.serve(reg)
	p.open()
	p.until("nothing is shown of others while there are none",
		`$("#limiter-api .facts").closest(".part").hidden`)

	src := &carried.Source{Replicas: 4, Every: 100 * time.Millisecond,
		Others: [6]int64{3, 5000, 70, 6, 20}}
	ctx, cancel := context.WithTimeout(context.Background(), loadEnds)
	var group sync.WaitGroup
	p.t.Cleanup(func() { cancel(); group.Wait() })
	group.Go(func() { _ = l.Follow(ctx, src) })
	group.Go(func() {
		every(ctx, time.Millisecond, func(int) {
			for range 25 { // a busy machine leaves out most of the ticks
				l.Allow("busy")
			}
		})
	})
	p.until("the numbers are there", othersText+`.match(/Admitted [1-9][\d,.]*\/s here, all replicas [1-9][\d,.]*\/s Refused .* here, all replicas .* In flight 0 here, all replicas 20 Waiting 0 here, all replicas 6 Counted 4 of 4 replicas Keys reported 1, 1 by this replica Borrowed here of 1 key Oldest report .* s, at most 3 s Traffic of all limiters \d.* out, [\d.]+ KiB\/s in/)`)
	p.until("the key has more than its share", `$("#limiter-api tbody .key .badge")?.textContent.match(/^(9\d(\.\d)?|100) % of the limit, share 25 %$/)`)
	const badge = `$$("#limiter-api .title .badge").filter((b) => !b.hidden).map((b) => b.textContent).join()`
	p.until("nothing warns", badge+` === ""`)
	p.fits("what is borrowed")
	src.Silence()
	p.until("the badge warns", badge+` === "Reports are missing: each replica keeps to its share"`)
	p.fits("no reports")
	p.until("the key is back at its share", `$("#limiter-api tbody .key") && !$("#limiter-api tbody .key .badge")`)
	p.until("totals are unknown", othersText+`.match(/here, all replicas unknown .* Oldest report missing/)`)
	cancel()
	p.until("nothing is shown any more",
		`$("#limiter-api .facts").closest(".part").hidden && `+badge+` === ""`)
}
