package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp/kb"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/admin"
	"github.com/quotient-go/quotient/internal/carried"
	"github.com/quotient-go/quotient/internal/tested"
	"github.com/quotient-go/quotient/policy"
)

// TestList looks at the list of limiters: its order, what is open, the filter, and what is left out.
func TestList(t *testing.T) {
	inChromium(t, map[string]func(p *tab){
		"trouble first":                 troubleFirst,
		"nothing jumps":                 nothingJumps,
		"trouble out of sight":          troubleOutOfSight,
		"open and closed":               openAndClosed,
		"filter":                        filterByName,
		"charts that can have values":   chartsThatCanHaveValues,
		"a key that learns":             aKeyThatLearns,
		"four calm limiters on a phone": fourOnAPhone,
		"from none to fifty":            fromNoneToFifty,
		"trouble of a minute":           troubleOfAMinute,
		"history is trouble":            historyIsTrouble,
	})
}

const (
	order    = `$$("section.limiter").filter((n) => n.checkVisibility()).map((n) => n.id.slice(8)).join()`
	unfolded = `$$("section.limiter").filter((n) => n.querySelector(".body").checkVisibility()).map((n) => n.id.slice(8)).join()`
)

// drained takes all that a key has, and gets a refusal.
func drained(l *quotient.Limiter, key string) {
	for l.Allow(key) {
	}
}

// waits makes callers wait until the test ends.
func (p *tab) waits(l *quotient.Limiter, callers int) {
	ctx, cancel := context.WithTimeout(context.Background(), loadEnds)
	var group sync.WaitGroup
	p.t.Cleanup(func() { cancel(); group.Wait() })
	for range callers {
		group.Go(func() { _, _ = l.Acquire(ctx, "queue") })
	}
}

func troubleFirst(p *tab) {
	lent, err := quotient.New(quotient.Rates(quotient.PerSecond(400)), quotient.Replicas(4),
		quotient.Demand(10, time.Second))
	must(p.t, err)
	file := admin.FileState{Path: "quotient.toml", Loaded: time.Now(), Differs: []string{"c-differs: limit"}}
	reg := p.idle([]string{"a-calm", "c-differs", "d-dry", "e-refuses"},
		admin.File(func() admin.FileState { return file }))
	queue := limiter(p.t, quotient.Limit{InFlight: 3})
	must(p.t, reg.Add("f-waits", queue))
	must(p.t, reg.Add("b-stale", lent))
	src := &carried.Source{Replicas: 4, Every: 100 * time.Millisecond}
	ctx, cancel := context.WithTimeout(context.Background(), loadEnds)
	var group sync.WaitGroup
	p.t.Cleanup(func() { cancel(); group.Wait() })
	group.Go(func() { _ = lent.Follow(ctx, src) })
	p.poll("reports are there", func() bool { return lent.Stats().Fleet.Replicas > 0 })
	src.Silence()
	get := func(name string) *quotient.Limiter { l, _ := reg.Get(name); return l }
	get("d-dry").SetDryRun(true)
	p.open()
	p.waits(queue, 2) // of one slot, one waits
	drained(get("e-refuses"), "k")
	p.until("trouble is first, by its kind", order+` === "e-refuses,f-waits,d-dry,c-differs,b-stale,a-calm"`)
	p.until("only the calm one is closed", unfolded+` === "e-refuses,f-waits,d-dry,c-differs,b-stale"`)
	p.scroll("a-calm")
	p.until("the line of the calm one has its figures", `$("#limiter-a-calm header").words.match(/^a-calm .*\d\/s refused \d\/s admitted$/)`)
	p.until("badges say what is wrong", `["d-dry Dry run", "c-differs Differs from the file"].every((text) => $("#limiters").words.includes(text))`)
}

// nothingJumps: while the focus or the pointer is in a limiter, none moves, opens or closes.
func nothingJumps(p *tab) {
	reg := p.idle([]string{"a", "b", "c"})
	p.open()
	refuse := func(name string) { l, _ := reg.Get(name); drained(l, "k") }
	kept := fmt.Sprintf(`%s === "a,b,c" && %s === "" && !$("#held").hidden`, order, unfolded)
	p.run(`$("#limiter-a .fold").focus()`)
	refuse("b")
	p.until("the order is kept for the focus", kept)
	p.run(`focused.blur()`)
	p.until("the order follows", order+` === "b,a,c" && `+unfolded+` === "b" && $("#held").hidden`)

	p.scroll("a")
	at := value[[]float64](p, `(() => { const r = $("#limiter-a header").getBoundingClientRect(); return [r.x + 300, r.y + 20]; })()`)
	move := func(x, y float64) {
		call(p, input.DispatchMouseEvent,
			input.DispatchMouseEventParams{Type: input.DispatchMouseEventTypeMouseMoved, X: x, Y: y})
	}
	move(at[0], at[1])
	p.until("the pointer is there", `$("#limiters").matches(":hover")`)
	l, _ := reg.Get("a")
	l.SetDryRun(true)
	refuse("c")
	p.until("the order is kept for the pointer", order+` === "b,a,c" && !$("#held").hidden`)
	move(1, 1)
	p.until("the order follows again", order+` === "b,c,a"`)
}

// troubleOutOfSight: while the order is kept, a button leads to new trouble that cannot be seen, and moves
// nothing.
func troubleOutOfSight(p *tab) {
	p.long()
	reg := p.idle(names(60))
	p.open()
	refuse := func(name string) { l, _ := reg.Get(name); drained(l, "k") }
	const unseen = `$("#unseen button")`
	const top = `$("#limiter-l-000 .fold").getBoundingClientRect().top`
	p.run(`$("#limiter-l-000 .fold").focus()`)
	before := value[float64](p, top)
	refuse("l-050")
	p.until("one is named", unseen+`.checkVisibility() && `+unseen+
		`.textContent === "Out of sight: limiter l-050 is in trouble"`)
	refuse("l-001") // in sight
	refuse("l-055")
	p.until("more are counted", unseen+`.textContent === "Out of sight: 2 limiters are in trouble"`)
	tested.Want(p.t, "where the list is", value[float64](p, top), before)
	p.run(axeCore(p.t))
	p.accessible("trouble out of sight")
	p.run(unseen + `.focus()`)
	p.until("the order is kept for the button", `!$("#held").hidden`)
	p.press(kb.Enter)
	p.until("the first of them has the focus, and can be seen",
		`focused.id === "limiter-l-050" &&
		focused.getBoundingClientRect().bottom < innerHeight`)
	p.until("what can be seen is not counted",
		unseen+`.textContent === "Out of sight: limiter l-001 is in trouble"`)
	p.click("main", "Out of sight: limiter l-001 is in trouble")
	p.until("it leads up too", `focused.id === "limiter-l-001"`)
	p.run(`focused.blur()`)
	p.until("the order follows", order+`.startsWith("l-001,l-050,l-055,l-000,")`)
}

// openAndClosed: a button opens and closes a limiter; the choice is kept for the tab, whatever becomes of
// the limiter.
func openAndClosed(p *tab) {
	reg := p.idle([]string{"a", "b", "c"})
	p.open()
	p.until("all are closed", unfolded+` === ""`)
	p.tabTo("b")
	p.press(kb.Enter)
	p.until("one is open", unfolded+` === "b" && focused.getAttribute("aria-expanded") === "true"`)
	p.until("the button names what it opens",
		`$("#" + focused.getAttribute("aria-controls")).checkVisibility()`)
	l, _ := reg.Get("a")
	drained(l, "k")
	p.run(`focused.blur()`)
	p.until("trouble opens another", unfolded+` === "a,b"`)
	p.click("#limiter-a", "a")
	p.until("it is closed by hand", unfolded+` === "b"`)
	p.open()
	p.until("both choices are kept over a reload", order+` === "a,b,c" && `+unfolded+` === "b"`)
	p.calm()

	p.idle([]string{"alone"})
	p.open()
	p.until("one that is alone is open", unfolded+` === "alone" && !$("#bar").checkVisibility()`)
}

// slash strikes a key as a keyboard does: its character follows unless the page has taken the stroke.
func (p *tab) slash() {
	p.t.Helper()
	call(p, input.DispatchKeyEvent,
		input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: "/", Code: "Slash",
			Text: "/"})
	call(p, input.DispatchKeyEvent,
		input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyUp, Key: "/", Code: "Slash"})
}

func filterByName(p *tab) {
	p.idle([]string{"api", "rapid", "jobs"})
	p.open()
	p.until("all are there", `$("#count").innerText === "3 of 3"`)
	p.slash()
	p.until("the filter has the focus", `focused.id === "filter" && focused.value === ""`)
	p.press("A", "p", "i")
	p.until("names are matched", order+` === "api,rapid" && $("#count").innerText === "2 of 3"`)
	p.press("/")
	p.until("a stroke is text in the field", `focused.value === "Api/"`)
	p.until("none is left", order+` === "" && $("#nothing").checkVisibility()`)
	p.press(kb.Escape)
	p.until("Escape clears it", order+` === "api,jobs,rapid" && $("#filter").value === "" && !$("#nothing").checkVisibility()`)
	p.unfold("api")
	p.click("#limiter-api", "Change limit")
	p.until("the dialog is there", `$("dialog[open] input")`)
	p.slash()
	p.until("the filter leaves a dialog alone", `focused.closest("dialog")`)
}

// chartsThatCanHaveValues: the others are absent, in the charts, the tiles, the line and the table of keys.
func chartsThatCanHaveValues(p *tab) {
	var reg quotient.Registry
	queue := limiter(p.t, quotient.Limit{InFlight: 3})
	for name, l := range map[string]*quotient.Limiter{
		"rate": limiter(p.t, quotient.Rates(quotient.PerSecond(300))), "slots": queue,
		"open":   limiter(p.t, quotient.Limit{}),
		"learns": limiter(p.t, quotient.Rates(quotient.PerSecond(300)), quotient.Policy(policy.AIMD{})),
	} {
		l.Allow("k")
		must(p.t, reg.Add(name, l))
	}
	p.serve(&reg)
	p.open()
	see := func(limiter, charts, columns string) {
		p.unfold(limiter)
		p.scroll(limiter)
		const texts = `$$("#limiter-%s %s").filter((n) => n.checkVisibility()).map((n) => n.textContent).join()`
		p.until(limiter+" has "+charts, fmt.Sprintf(texts+" === %q", limiter, ".chart .name", charts))
		p.until(limiter+" has "+columns, fmt.Sprintf(`$$("#limiter-%s table").find((n) => n.caption.textContent.startsWith("Keys,")).tHead.textContent === %q`, limiter, columns))
	}
	see("open", "Admitted", "KeyUsedLeft")
	p.until("two figures fill their row", `(() => {
		const row = $("#limiter-open .tiles");
		const shown = [...row.children].filter((n) => n.checkVisibility());
		return shown.length === 2 && row.getBoundingClientRect().right - shown[1].getBoundingClientRect().right < 30;
	})()`)
	see("rate", "Admitted,Refused", "KeyUsedLeftAdmitted/minRefused/min")
	see("slots", "Admitted,Refused,In flight", "KeyUsedIn flightLeftAdmitted/minRefused/min")
	see("learns", "Admitted,Refused,In flight,Upstream 429s", "KeyUsedIn flightLeftAdmitted/minRefused/minPace")
	p.waits(queue, 2)
	p.until("the one with a queue is first", order+`.startsWith("slots,")`)
	see("slots", "Admitted,Refused,Waiting,In flight", "KeyUsedWaitingIn flightLeftAdmitted/minRefused/min")
	p.fits("all sorts of limiters")
}

// aKeyThatLearns has its pace, how much of it is used, and a badge.
func aKeyThatLearns(p *tab) {
	p.long()
	reg := p.idle(nil)
	l := limiter(p.t, quotient.Rates(quotient.PerSecond(90)), quotient.Policy(policy.AIMD{}))
	must(p.t, reg.Add("api", l))
	permit, _ := l.TryAcquire("fresh")
	permit.Release()
	permit, d := l.TryAcquire("slow")
	if !d.OK {
		p.t.Fatal(d)
	}
	permit.Done(policy.Feedback{Outcome: policy.Throttled}) // 30 a second become 15
	p.open()
	const row = `$$("#limiter-api tr").find((n) => n.cells[0]?.innerText.startsWith("slow"))`
	p.until("the key has its pace", row+`?.words.match(/slow learning .*15\/s \d+ % used/)`)
	p.until("another has nothing learned", `$$("#limiter-api tr").find((n) => n.cells[0]?.innerText.startsWith("fresh"))?.innerText.includes("learning") === false`)
	p.until("the limiter has the badge", `$("#limiter-api .title").innerText.includes("Learning")`)
	ctx, cancel := context.WithTimeout(context.Background(), loadEnds)
	var group sync.WaitGroup
	p.t.Cleanup(func() { cancel(); group.Wait() })
	group.Go(func() { every(ctx, 5*time.Millisecond, func(int) { drained(l, "slow") }) })
	p.until("its use is of its pace", `$("#limiter-api .tiles").innerText.includes("of its pace of 15/s")`)
	p.explainKey("slow")
	p.until("what is learned is explained", `$$("dialog[open] table").some((n) => n.words.match(/Pace Used At most Forgotten 15\/s \d+ % 30\/s in \d+ min/))`)
}

const (
	phoneWide   = 390
	phoneTall   = 844
	calmTallest = 2500 // px that a page of four calm limiters has on a phone, at most
)

func fourOnAPhone(p *tab) {
	p.size(phoneWide, phoneTall)
	reg := p.idle([]string{"api", "jobs", "search"})
	slots := limiter(p.t, quotient.Limit{Rates: []quotient.Rate{quotient.PerSecond(300)}, InFlight: 40})
	must(p.t, reg.Add("uploads", slots))
	for _, l := range reg.All() {
		for i := range 9 {
			l.Allow("tenant-" + string(rune('a'+i)))
		}
	}
	p.open()
	p.until("the four are there", order+` === "api,jobs,search,uploads" && `+unfolded+` === ""`)
	if got := value[int](p, `document.documentElement.scrollHeight`); got >= calmTallest {
		p.t.Errorf("the page is %d px high, want less than %d", got, calmTallest)
	}
	p.unfold("uploads")
	p.scroll("uploads")
	const keys = `$$("#limiter-uploads table").find((n) => n.caption.textContent.startsWith("Keys,"))`
	p.until("the keys are there", keys+`.tBodies[0].rows.length === 9`)
	p.until("each is a card with the names of its numbers", fmt.Sprintf(`[...%s.tBodies[0].rows].every((n) => getComputedStyle(n).display === "grid" && getComputedStyle(n.cells[2], "::before").content === '"In flight"')`, keys))
	if wide := value[[]string](p, `$$("main, main *").filter((n) => n.scrollWidth > n.clientWidth + 1 && /auto|scroll/.test(getComputedStyle(n).overflowX)).map((n) => n.className)`); len(wide) > 0 {
		p.t.Errorf("these scroll sideways: %q", wide)
	}
	p.narrow("a phone")
}

// fromNoneToFifty: without a limiter the page shows the lines that add one, which package admin compiles. It
// follows as limiters come and go.
func fromNoneToFifty(p *tab) {
	p.long()
	reg := p.idle(nil)
	p.open()
	p.until("it says what to do", `$("#none").innerText.includes('limiters.Add("api", api)')`)
	p.until("it links the documentation", `$("#none a").href.endsWith("/docs")`)
	p.fits("no limiter")
	for i := range 50 {
		must(p.t, reg.Add(fmt.Sprintf("limiter-%02d", i), limiter(p.t, quotient.Limit{InFlight: 1 + i})))
	}
	p.until("there are fifty, each as one line", `$$("section.limiter").length === 50 &&
		!$("#none").checkVisibility() &&
		!$("section.limiter .body:not([hidden])")`)
	p.unfold("limiter-00")
	p.unfold("limiter-49")
	p.scroll("limiter-49")
	const last = `$("#limiter-limiter-49 `
	p.until("the last one is shown", last+`table").innerText.includes("50 slots")`)
	p.until("what can be seen is drawn", last+`.figure").textContent !== "–"`)
	p.fits("fifty limiters")
	reg.Remove("limiter-07")
	p.until("one is gone", `$$("section.limiter").length === 49 &&
		!$("#limiter-limiter-07")`)
}

// staged serves the page, and the states that a test makes up. So a minute takes no time.
type staged struct {
	p      *tab
	state  admin.State
	begins time.Time
	frames chan []byte
	latest atomic.Pointer[[]byte] // what GET /state answers
}

// stage makes staged states of one second a step for limiters of these names.
func (p *tab) stage(names ...string) *staged {
	p.t.Helper()
	p.idle(names)
	s := &staged{p: p, begins: time.Now(), frames: make(chan []byte, 8)}
	answer, err := http.Get(p.origin + "state")
	must(p.t, err)
	defer answer.Body.Close()
	must(p.t, json.NewDecoder(answer.Body).Decode(&s.state))
	p.behind(map[string]http.HandlerFunc{
		"GET /state":  func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(*s.latest.Load()) },
		"GET /events": s.stream,
	})
	p.t.Cleanup(func() { close(s.frames) })
	return s
}

// at is the state of a second.
func (s *staged) at(second float64) []byte {
	s.state.Time = s.begins.Add(time.Duration(second * float64(time.Second)))
	text, err := json.Marshal(s.state)
	must(s.p.t, err)
	return text
}

// send sends the state of a second to the page.
func (s *staged) send(second float64) {
	s.p.t.Helper()
	s.state.Process.Version = fmt.Sprintf("of-second-%v", second)
	text := s.at(second)
	s.latest.Store(&text)
	s.frames <- fmt.Appendf(nil, "event: state\ndata: %s\n\n", text)
}

// show sends it, and waits until the page shows it.
func (s *staged) show(second float64) {
	s.p.t.Helper()
	s.send(second)
	s.p.until(fmt.Sprintf("second %v is shown", second),
		fmt.Sprintf(`$("#process").textContent.startsWith("of-second-%v ")`, second))
}

func (s *staged) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	for {
		select {
		case frame, more := <-s.frames:
			if !more {
				return
			}
			_, _ = w.Write(frame)
			_ = http.NewResponseController(w).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

// refuse adds refusals to a limiter's count.
func (s *staged) refuse(name string, n uint64) {
	l := s.state.Limiters[name]
	l.Refused = map[string]uint64{"rate": l.Refused["rate"] + n}
	s.state.Limiters[name] = l
}

// troubleOfAMinute: refusals count as trouble for a minute, and no longer.
func troubleOfAMinute(p *tab) {
	s := p.stage("a", "b")
	s.send(0)
	p.open()
	p.until("both are calm", order+` === "a,b" && `+unfolded+` === ""`)
	s.refuse("b", 5)
	s.show(1)
	p.until("refusals are trouble", order+` === "b,a" && `+unfolded+` === "b"`)
	s.show(2)
	s.show(60.5)
	p.until("they still are, after 59.5 s", order+` === "b,a" && `+unfolded+` === "b"`)
	s.refuse("a", 1)
	s.show(61.5)
	p.until("a minute later only others are", order+` === "a,b" && `+unfolded+` === "a"`)
	s.show(121)
	s.show(122)
	p.until("then both are calm again", unfolded+` === ""`)
}

// historyIsTrouble: what happened before the page was opened counts, at its first look.
func historyIsTrouble(p *tab) {
	s := p.stage("a", "b")
	s.state.History = &admin.History{AgeSeconds: []float64{70, 30},
		Limiters: map[string]admin.LimiterHistory{}}
	for name, refused := range map[string][]float64{"a": {9, 0}, "b": {0, 9}} {
		s.state.History.Limiters[name] = admin.LimiterHistory{
			Admitted: []float64{1, 2}, Throttled: []float64{0, 0},
			Refused: map[string][]float64{"rate": refused},
			Waiting: []uint32{0, 0}, InFlight: []uint32{0, 0},
		}
	}
	s.send(0)
	p.open()
	p.until("the refusals of the last minute are trouble", order+` === "b,a" && `+unfolded+` === "b"`)
}
