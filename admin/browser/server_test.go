package browser

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/admin"
	"github.com/quotient-go/quotient/admin/pods"
	"github.com/quotient-go/quotient/internal/tested"
)

// TestPageAndItsServer looks at what the page knows of the one process that it speaks to.
func TestPageAndItsServer(t *testing.T) {
	inChromium(t, map[string]func(p *tab){
		"the replica has a name":         replicaHasAName,
		"a group's replicas":             replicasOfAGroup,
		"the pods of the fleet":          podsOfTheFleet,
		"what a reader sees":             whatAReaderSees,
		"a reload keeps the token":       reloadKeepsTheToken,
		"storage is forbidden":           storageIsForbidden,
		"the token is revoked":           tokenIsRevoked,
		"the token is revoked meanwhile": tokenIsRevokedMeanwhile,
		"two minutes come with the load": historyComesWithTheLoad,
		"under a prefix":                 underAPrefix,
		"numbers that make no sense":     senselessNumbers,
		"what only the server finds":     whatOnlyTheServerFinds,
		"what only the limiter finds":    whatOnlyTheLimiterFinds,
	})
}

// fleetOf has a page show three pods beside itself: one does not answer, and one believes in another pool.
func fleetOf(t *testing.T) admin.Option {
	t.Helper()
	list := ""
	for _, name := range []string{"pod-b", "pod-c"} {
		var reg quotient.Registry
		for limiterName, rates := range map[string]float64{"api": 300, "jobs": 60, "search": 90} {
			l := limiter(t, quotient.Rates(quotient.PerSecond(rates)))
			must(t, reg.Add(limiterName, l))
			if name == "pod-c" {
				must(t, l.SetPool(quotient.Pool{Replicas: 2}, 0))
			}
		}
		h, err := admin.New(&reg, admin.Replica(name), admin.Logger(slog.New(slog.DiscardHandler)))
		must(t, err)
		list += startServer(t, h) + ","
	}
	all, err := pods.Parse(list+"http://127.0.0.1:1", nil)
	must(t, err)
	return admin.WithPeers(all, nil)
}

// podsOfTheFleet: one row a pod, with what it has otherwise, those without an answer first; no more than that where the service knows of no others.
func podsOfTheFleet(p *tab) {
	p.alone()
	p.until("there is no part for pods", `$("#peers").hidden`)
	l := p.alone(admin.Replica("pod-a"), fleetOf(p.t))
	p.until("each pod has a row", `$$("#peers tbody th").map((n) => n.querySelector("bdi").textContent).join() === "127.0.0.1:1,pod-b,pod-c,pod-a"`)
	row := func(name, like string) {
		p.until(name+" is "+like, fmt.Sprintf(`$$("#peers tbody tr").find((n) => n.querySelector("bdi").textContent === %q).words.match(/%s/)`, name, like))
	}
	row("127.0.0.1:1", `no answer Get .*connection refused – – – – – –`)
	row("pod-c", `differs api: replicas 2, others 3; jobs: replicas 2, others 3; .* 2 50 % 0\/s 0\/s .* ago`)
	row("pod-a", `this one differs jobs: not there; search: not there 3 33.3 %`)
	p.until("it is said how many differ", `$("#peers [role=status]").textContent === "4 pods, 1 without an answer, 3 with something that others have otherwise"`)
	drained(l, "k")
	row("pod-a", `3 33.3 % [1-9].*\/s`)
	p.fits("pods")
}

const dialogTitle = `$("dialog[open] h2")?.textContent.replace(/[\u2068\u2069]/g, "")`

// replicaHasAName: title, header and the title of each dialog name it.
func replicaHasAName(p *tab) {
	p.long()
	l := p.alone(admin.Replica("pod-7"))
	rate := quotient.Rates(quotient.PerSecond(30))
	must(p.t, l.Override("k", &rate, 0))
	must(p.t, l.SetPlan("paid", &rate))
	l.Allow("k")
	p.until("the title names it", `document.title === "pod-7 · quotient"`)
	p.until("the header names it", `$("header #replica").innerText === "pod-7"`)
	p.until("there is an override", `$('#limiter-api button[aria-label="Remove the override of k"]')`)
	p.until("no heading speaks of the fleet", `!$$("h2").some((h) => /fleet/i.test(h.textContent))`)
	p.until("the keys are there", `$('#limiter-api button[aria-label="Explain k"]')`)
	for button, title := range map[string]string{
		"Change limit":             "Change the limit of api",
		"Change replicas":          "Change the replica count of api",
		"Add a plan":               "Add a plan to api",
		"Change the plan paid":     "Change plan paid of api",
		"Override a key":           "Override a key of api",
		"Change the override of k": "Change an override of api",
		"Turn dry run on":          "Confirm: Turn dry run on for api",
		"Remove the plan paid":     "Confirm: Remove plan paid of api",
		"Remove the override of k": "Confirm: Remove an override of api",
	} {
		p.click("main", button)
		p.until(button+" names it", fmt.Sprintf(`%s === %q`, dialogTitle, title+" on this replica (pod-7)"))
		p.press(kb.Escape)
	}
	p.click("main", "Explain k")
	p.until("so does what is to be read", `$("#dialog-about").textContent.includes("pod-7")`)
	p.click("dialog[open]", "Reset this key")
	p.until("a reset names it", dialogTitle+` === "Confirm: Reset a key of api on this replica (pod-7)"`)
	p.press(kb.Escape)
	p.size(360, 800)
	p.narrow("a named replica")
	p.until("the phone names it", `$("header #replica").checkVisibility()`)
}

// replicasOfAGroup: the button of a card changes the limiters of the card, and no other.
func replicasOfAGroup(p *tab) {
	reg := p.idle([]string{"a", "b", "c", "d"})
	for _, name := range []string{"c", "d"} {
		l, _ := reg.Get(name)
		must(p.t, l.SetPool(quotient.Pool{Replicas: 8, Ordinal: 5}, 0))
	}
	p.open()
	p.until("there are two cards", `$$(".pool").length === 2`)
	p.run(`$$(".pool")
		.find((n) => n.innerText.includes("c, d")).querySelector("button").click()`)
	p.until("the dialog is of that card", dialogTitle+`
		?.startsWith("Change the replica count of c, d on this replica") && focused.value === "8"`)
	p.until("its limiters are chosen, and others can be",
		`[...$("dialog[open] select").options].map((o) => o.textContent).join("; ") ===
			"c, d; all limiters; a; b; c; d" && $("dialog[open] select").selectedIndex === 0`)
	p.enter("Replicas", "9")
	last, _ := reg.Get("d")
	last.SetDryRun(true)
	p.click("dialog[open]", "Review change")
	p.until("the review finds that one of them has changed",
		`$("dialog[open] [role=alert]")?.innerText.includes("Another client changed it")`)
	p.click("dialog[open]", "Reload")
	p.until("the values are there again", fieldOf("Replicas")+`?.value === "8"`)
	p.enter("Replicas", "9")
	p.click("dialog[open]", "Review change")
	p.until("old and new are shown", compared+`?.match(/Limiters c, d unchanged Replicas 8 → 9/)`)
	p.click("dialog[open]", "Apply change")
	p.until("it is said", `$("#notice").textContent === "Replica count of c, d set to 9."`)
	for name, want := range map[string]int{"a": 3, "b": 3, "c": 9, "d": 9} {
		l, _ := reg.Get(name)
		tested.Want(p.t, "replicas of "+name, l.Stats().Pool.Replicas, want)
	}
}

const secret, readerSecret = "not-a-secret-0123456789", "reads-only-0123456789"

// unlock gives the page a token.
func (p *tab) unlock(token string) {
	p.t.Helper()
	p.until("a token is wanted", `$("#token-dialog[open]") &&
		focused.id === "token"`)
	p.do(chromedp.KeyEvent(token), chromedp.KeyEvent(kb.Enter))
	p.until("the page is live", `$("#link").dataset.state === "live" &&
		!$("dialog[open]")`)
}

// forget makes the page forget its token. It then loads itself again.
func (p *tab) forget() {
	p.t.Helper()
	p.until("the token can be forgotten", `$("#forget").checkVisibility()`)
	p.run(`{
		window.old = true;
		setTimeout(() => $("#forget").click());
	}`)
	p.poll("the page has loaded itself again", func() bool {
		again, err := chromedp.Run(p.ctx, chromedp.Evaluate[bool](`window.old === undefined &&
			document.readyState === "complete"`))
		return again && err == nil // an error: it is between two documents
	})
}

// whatAReaderSees: no button that leads to a change, and a word why. A token that may write has them all.
func whatAReaderSees(p *tab) {
	reg := p.idle([]string{"api"}, admin.Token(secret), admin.ReadOnlyToken(readerSecret))
	l, _ := reg.Get("api")
	rate := quotient.Rates(quotient.PerSecond(30))
	must(p.t, l.Override("k", &rate, 0))
	must(p.t, l.SetPlan("paid", &rate))
	l.Allow("k")
	p.do(chromedp.Navigate(p.origin))
	p.unlock(readerSecret)
	const shown = `$$("main button, dialog[open] button")
		.filter((b) => b.checkVisibility()).map((b) => b.getAttribute("aria-label") ?? b.textContent)`
	const writes = shown + `
		.filter((t) => /change|override a|override this|reset|remove|add|dry run|break/i.test(t)).join()`
	p.until("the key is there", shown+`.includes("Explain k")`)
	p.until("nothing can be changed", writes+` === ""`)
	p.until("the page says so", `$("header .reads").checkVisibility()`)
	p.click("main", "Explain k")
	p.until("it can be read", `$("dialog[open] pre")`)
	p.until("nothing can be changed from there", writes+` === ""`)
	p.press(kb.Escape)
	p.size(360, 800)
	p.narrow("a reader")
	p.contrast("a reader")
	p.size(1440, 900)
	p.forget()
	p.unlock(secret)
	p.until("a writer can change things", `!$("header .reads").checkVisibility() &&
		`+shown+`.includes("Change limit") && `+shown+`.includes("Change replicas")`)
	p.calm("answer 401", "network error: Failed to load resource")
}

// reloadKeepsTheToken: in the tab's session storage and nowhere else, until it is forgotten.
func reloadKeepsTheToken(p *tab) {
	p.idle([]string{"api"}, admin.Token(secret))
	p.do(chromedp.Navigate(p.origin))
	p.until("nothing is to be forgotten", `$("#forget").hidden`)
	p.unlock(secret)
	p.calm("answer 401", "network error: Failed to load resource")
	p.open()
	p.until("no token is wanted", `!$("dialog[open]")`)
	p.calm()
	if value[bool](p,
		fmt.Sprintf(`JSON.stringify([{...localStorage}, document.cookie, location.href]).includes(%q)`,
			secret)) {
		p.t.Error("the token is kept outside the tab")
	}
	p.size(360, 800)
	p.narrow("a token that can be forgotten")
	p.forget()
	p.until("it is wanted again", `$("#token-dialog[open]")`)
	p.until("nothing of the service is left", `sessionStorage.length === 0 &&
		$$("section.limiter").length === 0 &&
		$("#token-error").textContent === ""`)
	p.calm("answer 401", "network error: Failed to load resource")
}

// storageIsForbidden: the page works, and a reload wants the token again.
func storageIsForbidden(p *tab) {
	p.long()
	p.idle([]string{"api"}, admin.Token(secret))
	script := `for (const name of ["sessionStorage", "localStorage"]) {
		Object.defineProperty(window, name, { get() { throw new DOMException("forbidden", "SecurityError"); } });
	}`
	p.onLoad(script)
	p.do(chromedp.Navigate(p.origin))
	p.unlock(secret)
	p.click("#limiter-api", "Turn dry run on")
	p.until("changes can be made", compared)
	p.do(chromedp.Navigate(p.origin))
	p.unlock(secret)
	p.forget()
	p.until("it can be forgotten", `$("#token-dialog[open]")`)
	p.calm("answer 401", "network error: Failed to load resource")
}

const anotherSecret = "another-one-0123456789"

// revocable serves one limiter behind what front makes of its handler, which changes with the token.
func (p *tab) revocable(front func(current http.Handler) http.HandlerFunc) (serve func(token string), end func()) {
	p.t.Helper()
	var reg quotient.Registry
	must(p.t, reg.Add("api", limiter(p.t, quotient.Rates(quotient.PerSecond(300)))))
	var now atomic.Pointer[admin.Handler]
	serve = func(token string) {
		h, err := admin.New(&reg, admin.Token(token), admin.Logger(slog.New(slog.DiscardHandler)))
		must(p.t, err)
		now.Store(h)
	}
	serve(secret)
	current := func(w http.ResponseWriter, r *http.Request) { now.Load().ServeHTTP(w, r) }
	server := httptest.NewServer(front(http.HandlerFunc(current)))
	p.t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	p.origin = server.URL + "/"
	p.do(chromedp.Navigate(p.origin))
	p.unlock(secret)
	return serve, server.CloseClientConnections
}

// tokenIsRevoked: a token that the service no longer takes is removed from the tab, and another one is wanted
// at once. Here the request for keys is refused first, while the page waits to connect again; and nothing is
// asked for as long as there is no token.
func tokenIsRevoked(p *tab) {
	var away, keys atomic.Int64
	serve, end := p.revocable(func(current http.Handler) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path == "/state" && away.Load() > 0:
				away.Store(2)
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			case r.URL.Path == "/keys" && away.Load() == 1: // the page has not been told yet that it is to wait
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			case r.URL.Path == "/keys" && away.Swap(0) > 0:
				keys.Store(0)
			}
			if r.URL.Path == "/keys" {
				keys.Add(1)
			}
			current.ServeHTTP(w, r)
		}
	})
	p.until("the keys are asked for", `$("#limiter-api .ask").checkVisibility()`)
	serve(anotherSecret)
	away.Store(1)
	end()
	p.until("another is wanted, and the old one is gone", `$("#token-dialog[open]") &&
		$("#token-error").textContent.includes("did not accept") && sessionStorage.length === 0`)
	before := keys.Load()
	p.until("a while has passed", `(window.asked ??= performance.now()) < performance.now() - 4000`)
	if n := keys.Load(); n != before {
		p.t.Errorf("while there is no token, keys were asked for %d times", n-before)
	}
	p.unlock(anotherSecret)
	p.until("the new one is kept", `Object.values({...sessionStorage}).join() === "`+anotherSecret+`"`)
	p.calm("answer 401", "answer 503", "Failed to load resource", "loading failed")
}

// tokenIsRevokedMeanwhile: when a change is refused for its token, another one is wanted at once, though
// the stream goes on. The fields of the dialog keep their values.
func tokenIsRevokedMeanwhile(p *tab) {
	serve, _ := p.revocable(func(current http.Handler) http.HandlerFunc { return current.ServeHTTP })
	p.click("#limiter-api", "Change limit")
	p.enter("Events", "450")
	serve(anotherSecret)
	p.click("dialog[open]", "Review change")
	p.until("another token is wanted", `$("#token-dialog[open]") && focused.id === "token"`)
	p.press(anotherSecret, kb.Enter)
	p.until("the page is live", `$("#link").dataset.state === "live" && !$("#token-dialog[open]")`)
	p.until("the change is still there", fieldOf("Events")+`?.value === "450"`)
	p.click("#dialog[open]", "Review change")
	p.click("#dialog[open]", "Reload") // the tags of another handler are others
	p.until("the values are there again", fieldOf("Events")+`?.value === "300"`)
	p.click("#dialog[open]", "Review change")
	p.until("it is to be confirmed", compared)
	p.calm("answer 401", "answer 412", "network error: Failed to load resource")
}

// historyComesWithTheLoad: a page that is opened late shows what was before it.
func historyComesWithTheLoad(p *tab) {
	p.long()
	reg := p.idle([]string{"api"}, admin.EventsEvery(9_000_000_000))
	l, _ := reg.Get("api")
	const chart = `$("#limiter-api .chart `
	p.poll("the line is longer with each load, and has what was admitted before", func() bool {
		for range 9 {
			l.Allow("k")
		}
		// the service has taken samples since it listens; the stream has but one state in nine seconds
		p.open()
		p.until("there is a chart", `$("#limiter-api .chart")`)
		return value[bool](p, `(`+chart+`path.line")?.getAttribute("d") ?? "").split("L").length > 2 &&
			/highest [1-9]/.test(`+chart+`svg").getAttribute("aria-label"))`)
	})
}

// underAPrefix: behind a reverse proxy that serves it below a path, everything is found.
func underAPrefix(p *tab) {
	p.long()
	const prefix = "/ops/quotient/"
	var reg quotient.Registry
	l := limiter(p.t, quotient.Rates(quotient.PerSecond(300)))
	must(p.t, reg.Add("api", l))
	p.serve(&reg, admin.Token(secret), admin.Replica("pod-7"))
	target, err := url.Parse(p.origin)
	must(p.t, err)
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.SetXForwarded()
	}}
	mux := http.NewServeMux()
	mux.Handle(prefix, http.StripPrefix(strings.TrimSuffix(prefix, "/"), proxy))
	p.origin = startServer(p.t, mux) + prefix
	p.do(chromedp.Navigate(p.origin))
	p.unlock(secret)
	l.Allow("k")
	p.until("the keys are there", `$('#limiter-api button[aria-label="Explain k"]')`)
	p.until("so is the icon", `$("header img").naturalWidth > 0`)
	p.click("#limiter-api", "Explain k")
	p.until("a key is explained", `$("dialog[open] pre")`)
	p.press(kb.Escape)
	p.click("#limiter-api", "Change limit")
	p.enter("Events", "450")
	p.apply()
	p.poll("the limit is in force", func() bool { return l.Stats().Limit.Rates[0].Events == 450 })
	p.until("the token is of this path",
		`Object.keys({...sessionStorage}).join() === "quotient-token `+prefix+`"`)
	p.open()
	p.until("a reload keeps the token", `!$("dialog[open]")`)
	p.calm("answer 401", "network error: Failed to load resource") // nothing outside the prefix
}

// senselessNumbers: no dialog goes on to its review with a field that is empty, no number, negative or huge.
func senselessNumbers(p *tab) {
	p.long()
	l := p.alone()
	rate := quotient.Rates(quotient.PerSecond(30))
	must(p.t, l.SetPlan("paid", &rate))
	must(p.t, l.Override("k", &rate, 0))
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
	p.until("there is an override", `$('#limiter-api button[aria-label="Change the override of k"]')`)
	for button, fields := range dialogs {
		p.click("main", button)
		for label, optional := range fields {
			old := p.held(label)
			texts := senseless
			if button != "Change limit" {
				texts = senseless[2:3]
			}
			for _, text := range texts {
				if text == "" && optional {
					continue
				}
				p.put(label, text)
				p.press(kb.Enter)
				p.until(fmt.Sprintf("%s: %s %q is refused at the field", button, label, text),
					fmt.Sprintf(`!%s &&
					%s === focused &&
					focused.getAttribute("aria-invalid") === "true" &&
					/^Enter a (whole )?number .*\.$/.test(fieldError)`, compared, fieldOf(label)))
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
	tested.Want(p.t, "the version", l.Stats().Version, before)
}

// fieldOf is the field with a label in the open dialog.
func fieldOf(label string) string {
	const labels = `$$("dialog[open] label")`
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
	p.run(put)
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
		`focused.dataset.field === "rates[0].events" &&
		focused.getAttribute("aria-invalid") === "true" && fieldError !== ""`)
	p.calm("answer 400", "network error: Failed to load resource")
	p.put("Per seconds", "x")
	p.put("Burst", "1.5")
	p.put("Events", "-1")
	p.press(kb.Enter)
	p.until("each wrong field has its message, and the first has the focus",
		`$$("dialog[open] [aria-invalid]").map((n) => n.dataset.field).join() ===
			"rates[0].events,rates[0].per_seconds,rates[0].burst" &&
		focused.dataset.field === "rates[0].events"`)
	p.pick("Deny everything")
	p.press(kb.Enter)
	p.until("fields that are not shown do not count", compared+`?.includes("deny everything")`)
	tested.Want(p.t, "the version", l.Stats().Version, before)
}

// whatOnlyTheLimiterFinds: the review shows it too, also where there is nothing to fill in.
func whatOnlyTheLimiterFinds(p *tab) {
	reg := p.idle(nil)
	l := limiter(p.t, quotient.Limit{InFlight: 30}, quotient.MaxKeys(1))
	must(p.t, reg.Add("api", l))
	var units quotient.Limit
	for i := range 3 {
		units.Rates = append(units.Rates, quotient.Rate{Unit: fmt.Sprint("unit", i), Events: 9, Per: time.Second})
	}
	must(p.t, l.SetPlan("units", &units))
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
	p.until("a fourth unit is refused", `$("dialog[open] [role=alert]")?.innerText
		.includes("one more than the 3 units") && $("dialog[open] input")`)
	p.press(kb.Escape)
	p.explainKey("k")
	p.click("dialog[open]", "Reset this key")
	p.until("a key that shares one limit with others is not reset",
		`$("dialog[open] [role=alert]")?.innerText
		.includes("shares one limit") && !$("dialog[open] .compare")`)
	tested.Want(p.t, "the version", l.Stats().Version, before)
	p.calm("answer 422", "network error: Failed to load resource")
}
