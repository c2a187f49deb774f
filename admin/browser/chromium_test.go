package browser

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// patience is how long a test waits for anything on a page; nothing that goes well takes as long.
const patience = 30 * time.Second

// A tab is one page of the browser. It notes the browser's complaints.
type tab struct {
	t      *testing.T
	ctx    context.Context
	origin string

	mu         sync.Mutex
	complaints []string
}

// show brings the tab to the front: the page rests while it cannot be seen.
func (p *tab) show() {
	p.t.Helper()
	call(p, page.BringToFront, cdp.Empty{})
}

// call sends a command of the browser's protocol.
func call[P, R any](p *tab, cmd cdp.Command[P, R], params P) R {
	p.t.Helper()
	answer, err := chromedp.Call(p.ctx, cmd, params)
	must(p.t, err)
	return answer
}

func (p *tab) size(width, height int64) {
	p.t.Helper()
	call(p, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 600,
	})
}

// theme makes the system prefer a theme.
func (p *tab) theme(name string) { p.t.Helper(); p.prefer(name, "none") }

// prefer makes the system prefer a theme, and force its colours ("active") or not ("none").
func (p *tab) prefer(theme, forced string) {
	p.t.Helper()
	call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: theme}, {Name: "prefers-reduced-motion", Value: "reduce"},
		{Name: "forced-colors", Value: forced},
	}})
}

// note keeps errors, warnings, refused policies, failed requests, and requests that leave the origin.
func (p *tab) note(event any) {
	text := ""
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		text = fmt.Sprintf("console %s: %v", e.Type, e.Args)
	case *runtime.EventExceptionThrown:
		text = fmt.Sprintf("exception: %+v", e.ExceptionDetails)
	case *log.EventEntryAdded:
		text = fmt.Sprintf("%s %s: %s %s", e.Entry.Source, e.Entry.Level, e.Entry.Text, e.Entry.URL)
	case *network.EventRequestWillBeSent:
		if strings.HasPrefix(e.Request.URL, p.origin) {
			return
		}
		text = "request to another origin: " + e.Request.URL
	case *network.EventResponseReceived:
		if e.Response.Status < 400 {
			return
		}
		text = fmt.Sprintf("answer %d: %s", e.Response.Status, e.Response.URL)
	case *network.EventLoadingFailed:
		if e.Canceled {
			return
		}
		text = "loading failed: " + e.ErrorText
	default:
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.complaints = append(p.complaints, text)
}

// calm requires that the browser has complained of nothing but what contains one of the expected texts, and
// of each of those; it then forgets.
func (p *tab) calm(expected ...string) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, want := range expected {
		if !slices.ContainsFunc(p.complaints, func(text string) bool {
			return strings.Contains(text, want)
		}) {
			p.t.Errorf("the browser did not complain of %q", want)
		}
	}
	for _, text := range p.complaints {
		if !slices.ContainsFunc(expected, func(want string) bool { return strings.Contains(text, want) }) {
			p.t.Errorf("the browser complained: %s", text)
		}
	}
	p.complaints = nil
}

// long skips a test that takes long, unless the flag wants it.
func (p *tab) long() {
	p.t.Helper()
	if !*all {
		p.t.Skip("it takes long: run make browser")
	}
}

func (p *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	must(p.t, chromedp.Do(p.ctx, steps...))
}

// words are what the tests' expressions are made of, beside what a page has.
const words = `
	window.$ = (selector) => document.querySelector(selector);
	window.$$ = (selector) => [...document.querySelectorAll(selector)];
	Object.defineProperties(window, {
		focused: { get: () => document.activeElement },
		fieldError: { get: () => document.getElementById(document.activeElement.id + "-error").textContent },
	});
	window.holds = (is, patience) => new Promise((done, fail) => {
		const ends = performance.now() + patience;
		const look = () => {
			let thrown = null; // where what it looks at is not there yet
			try {
				if (is()) return done(true);
			} catch (error) { thrown = error; }
			if (performance.now() < ends) setTimeout(look, 30);
			else if (thrown) fail(thrown);
			else done(false);
		};
		look();
	});
	Object.defineProperty(Element.prototype, "words", { get() { return this.innerText.replace(/\s+/g, " "); } });`

// onLoad runs a script in each document before the page's own, until the test ends.
func (p *tab) onLoad(script string) {
	p.t.Helper()
	id := call(p, page.AddScriptToEvaluateOnNewDocument,
		page.AddScriptToEvaluateOnNewDocumentParams{Source: script}).Identifier
	p.t.Cleanup(func() {
		call(p, page.RemoveScriptToEvaluateOnNewDocument,
			page.RemoveScriptToEvaluateOnNewDocumentParams{Identifier: id})
	})
}

// run runs statements on the page.
func (p *tab) run(statements string) {
	p.t.Helper()
	p.do(chromedp.Evaluate[chromedp.Void](statements))
}

// open loads the page and waits for numbers.
func (p *tab) open() {
	p.t.Helper()
	p.do(chromedp.Navigate(p.origin))
	p.until("the page is live", `$("#link").dataset.state === "live"`)
}

// value is what an expression is worth on the page.
func value[T any](p *tab, expression string) T {
	p.t.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression))
	must(p.t, err)
	return v
}

// until waits until an expression is true on the page. The page itself looks, so that nothing is sent meanwhile.
func (p *tab) until(what, expression string) {
	p.t.Helper()
	wait := fmt.Sprintf("holds(() => %s, %d)", expression, patience.Milliseconds())
	held, err := chromedp.Run(p.ctx, chromedp.Evaluate[bool](wait, chromedp.EvalAwaitPromise))
	must(p.t, err)
	if !held {
		p.never(what)
	}
}

// poll waits until something is so that the page does not know.
func (p *tab) poll(what string, is func() bool) {
	p.t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			p.never(what)
		}
	}
}

func (p *tab) never(what string) {
	p.t.Helper()
	p.t.Fatalf("it never came to be that %s; the page says:\n%s", what, value[string](p,
		`($("dialog[open]") ?? document.body).innerText.slice(0, 3000)`))
}

// press types keys, each to whatever has the focus.
func (p *tab) press(keys ...string) {
	p.t.Helper()
	for _, key := range keys {
		p.do(chromedp.KeyEvent(key))
	}
}

// click clicks the button with that name within what a selector finds.
func (p *tab) click(within, name string) {
	p.t.Helper()
	button := fmt.Sprintf(`$$(%q).find((b) => (b.getAttribute("aria-label") ?? b.textContent) === %q)`, within+" button", name)
	p.until("there is a button "+name, button+" !== undefined")
	p.run(button + ".focus(); " + button + ".click()")
}

// enter puts texts into the fields with these labels in the open dialog, in place of what stands there.
func (p *tab) enter(labelsAndTexts ...string) {
	p.t.Helper()
	for pair := range slices.Chunk(labelsAndTexts, 2) {
		field := fieldOf(pair[0])
		p.until("there is a field "+pair[0], field)
		p.do(chromedp.Evaluate[chromedp.Void](field+".focus(); "+field+".select()"), chromedp.KeyEvent(pair[1]))
	}
}

// apply has the change reviewed from the field that has the focus, and makes it.
func (p *tab) apply() {
	p.t.Helper()
	p.press(kb.Enter)
	p.click("dialog[open]", "Apply change")
}
