package browser

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/admin"
)

// TestPageUnderStress looks at the page with many limiters, odd names, odd clocks and odd servers.
func TestPageUnderStress(t *testing.T) {
	inChromium(t, map[string]func(p *tab){
		"a thousand limiters":        aThousand,
		"many in trouble":            manyInTrouble,
		"odd names":                  oddNames,
		"a filter outlives the rest": filterOutlives,
		"the clock is set back":      clockSetBack,
		"the stream is of another":   streamOfAnother,
		"a proxy's answers":          proxysAnswers,
		"small and odd numbers":      smallNumbers,
		"a key from right to left":   rightToLeft,
		"long and hostile names":     longNames,
	})
}

// names are n names of limiters.
func names(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("l-%03d", i)
	}
	return list
}

// mostElements is how many elements the page of a thousand calm limiters has, at most.
const mostElements = 30_000

func aThousand(p *tab) {
	p.long()
	var reg quotient.Registry
	for _, name := range names(1000) {
		must(p.t, reg.Add(name, limiter(p.t, quotient.Rates(quotient.PerSecond(300)), quotient.MaxKeys(16))))
	}
	p.serve(&reg, admin.EventsEvery(time.Second))
	p.open()
	if got := value[int](p, `$$("*").length`); got > mostElements {
		p.t.Errorf("the page has %d elements, more than %d", got, mostElements)
	}
	p.slash()
	p.press("9", "9", "9")
	p.until("one is found", order+` === "l-999" && $("#count").innerText === "1 of 1,000"`)
	p.unfold("l-999")
	p.until("it has its charts", `$("#limiter-l-999 .chart").checkVisibility()`)
	for name, l := range reg.All() {
		if name < "l-500" {
			must(p.t, l.SetPool(quotient.Pool{Replicas: 4}, 0))
		}
	}
	p.until("long lists are cut short", `$$(".pool").length === 2 && $(".pool .whose").textContent.endsWith("l-011 and 488 more")`)
}

func manyInTrouble(p *tab) {
	p.long()
	reg := p.idle(names(30))
	for _, l := range reg.All() {
		l.SetDryRun(true)
	}
	p.open()
	p.until("the first twenty are open",
		order+`.startsWith("l-000,l-001") && `+unfolded+`.split(",").length === 20`)
}

// oddNames are names of what JavaScript's objects have, and of what the page calls its parts.
func oddNames(p *tab) {
	s := p.stage("__proto__", "constructor", "a", "a-body", "a-title")
	s.state.History = &admin.History{AgeSeconds: []float64{1}, Limiters: map[string]admin.LimiterHistory{}}
	s.send(0)
	p.open()
	p.until("all are there", order+` === "__proto__,a,a-body,a-title,constructor"`)
	p.until("each id is of one element", `(() => { const ids = $$("[id]").map((n) => n.id); return new Set(ids).size === ids.length; })()`)
}

// filterOutlives: a filter that hides the last limiter can be seen and cleared.
func filterOutlives(p *tab) {
	reg := p.idle([]string{"a", "b"})
	p.open()
	p.slash()
	p.press("b")
	p.until("one is shown", order+` === "b"`)
	reg.Remove("b")
	p.until("the filter is there", order+` === "" && $("#nothing").checkVisibility() && $("#filter").checkVisibility()`)
	p.press(kb.Escape)
	p.until("the other one is shown", order+` === "a" && `+unfolded+` === "a"`)
}

// clockSetBack: the charts go on at once, and do not wait until the clock is where it was.
func clockSetBack(p *tab) {
	s := p.stage("a")
	s.send(3600)
	p.open()
	s.show(3601)
	s.show(3602)
	admit := func(second float64, n uint64) {
		l := s.state.Limiters["a"]
		l.Admitted += n
		s.state.Limiters["a"] = l
		s.show(second)
	}
	admit(10, 5)
	admit(11, 7)
	p.until("the rate is of the new time", `$("#limiter-a .chart .value").textContent === "7"`)
	admit(12, 8)
	const line = `$("#limiter-a .chart path.line").getAttribute("d")`
	p.until("only samples of the new time are drawn", line+`.split(",").length === 3`)
}

// streamOfAnother: behind a load balancer the stream may be of another replica than the first answer.
func streamOfAnother(p *tab) {
	s := p.stage("a")
	s.state.Process.Replica = "pod-a"
	s.send(0)
	p.open()
	p.until("it is the first", `$("#replica").textContent === "pod-a" && document.title.startsWith("pod-a ")`)
	s.state.Process.Replica = "pod-b"
	s.show(1)
	if !value[bool](p, `$("#replica").textContent === "pod-b" && document.title.startsWith("pod-b ")`) {
		p.t.Error("the page names the other replica")
	}
}

// proxysAnswers: the page does not take a proxy's word for the service's.
func proxysAnswers(p *tab) {
	p.idle([]string{"api"})
	p.behind(map[string]http.HandlerFunc{"GET /state": func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, "no healthy upstream")
	}})
	p.do(chromedp.Navigate(p.origin))
	p.until("the proxy's answer is shown",
		`$("#banner-text").textContent.startsWith("The answer has the status 503")`)
	p.calm("answer 503", "network error: Failed to load resource")
}

// smallNumbers: a review shows what will be set, however small, and a duration as it was entered.
func smallNumbers(p *tab) {
	l := p.alone()
	p.click("#limiter-api", "Change limit")
	p.put("Events", "1.5e-10")
	p.press(kb.Enter)
	p.until("it is not shown as 0", compared+`?.includes("1.5e-10 / s")`)
	p.press(kb.Escape)
	p.click("main", "Change replicas")
	p.put("For how many minutes", "150")
	p.press(kb.Enter)
	p.until("it is not shown as 2 h", compared+`?.includes("an operator, for 150 min")`)
	p.press(kb.Escape)
	must(p.t, l.SetPool(quotient.Pool{Replicas: 10_000}, 0))
	must(p.t, l.SetLimit(quotient.Rates(quotient.PerSecond(3))))
	p.until("nor is a small share", `$("#limiter-api .pair table").innerText.includes("0.0003/s")`)
}

// rightToLeft: the direction of a key's letters does not turn the words around it.
func rightToLeft(p *tab) {
	p.long()
	l := p.alone()
	const key = "\u202Ekey"
	deny := quotient.Limit{Deny: true}
	must(p.t, l.Override(key, &deny, 0))
	l.Allow(key)
	p.until("keys stand apart from their badges", `$$("#limiter-api th.key bdi").filter((n) => n.textContent.includes("\u202E")).length === 2`)
	p.click("#limiter-api", "Remove the override of "+key)
	p.until("and from a sentence", `$("#dialog-about").textContent.includes("\u2068\u202Ekey\u2069 comes")`)
}

// longNames: a name is text, and the end of a pod's tells it from its siblings. So the header has all of it, and the page
// does not become wider.
func longNames(p *tab) {
	const pod = "checkout-and-payment-gateway-for-europe-west-deploy-7f9c8d6b5-x2x4z"
	const cut = `(() => { const n = $("#replica"); return n.scrollHeight > n.clientHeight + 1 || n.scrollWidth > n.clientWidth + 1; })()`
	for _, name := range []string{pod[4:], hostile + strings.Repeat("x", 200)} {
		p.alone(admin.Replica(name))
		p.until("the header has the name", fmt.Sprintf(`$("header #replica").textContent === %q && !$("main img, #replica img")`, name))
		for _, width := range []int64{320, 360, 768, 1440} {
			p.size(width, 800)
			if len(name) < 64 && value[bool](p, cut) {
				p.t.Errorf("at %d px the name is cut", width)
			}
			p.narrow(fmt.Sprintf("the name %s, %d px", name, width))
		}
	}
}
