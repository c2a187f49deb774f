package browser

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/admin"
	"github.com/quotient-go/quotient/policy"
)

const (
	largestPicture = 400 << 10 // bytes
	history        = 2 * time.Minute
)

// TestPictures leaves pictures of the page, phone and desktop, light and dark, where the flag wants them. It
// waits until the charts are full. The font is that of the system; the pictures of the documentation were
// taken with Inter.
func TestPictures(t *testing.T) {
	if *screenshots == "" {
		t.Skip("no directory for pictures: run make browser")
	}
	browser := startChromium(t)
	s := startFleetOfPictures(t)
	p := openTab(t, browser, s.url())
	p.open()
	full := time.NewTimer(history)
	defer full.Stop()
	<-full.C
	for _, theme := range []string{"light", "dark"} {
		p.theme(theme)
		p.shot("page-desktop-"+theme, 1440, 1590, 1)
		p.shot("page-phone-"+theme, phoneWide, phoneTall, 2)
	}
	p.calm()
}

// shot takes a picture of the top of the page in a window of that size.
func (p *tab) shot(name string, width, height int64, scale float64) {
	p.t.Helper()
	call(p, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: width, Height: height, DeviceScaleFactor: scale, Mobile: width < 600,
	})
	p.do(chromedp.Evaluate[chromedp.Void](`scrollTo(0, 0)`))
	p.until("keys are shown", `document.querySelector("#limiter-api .acts button[aria-label^=Explain]")`)
	next := `new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))`
	p.do(chromedp.Evaluate[chromedp.Void](next, chromedp.EvalAwaitPromise))
	picture := call(p, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: "png"}).Data
	if len(picture) > largestPicture {
		p.t.Errorf("the picture %s has %d bytes, more than %d", name, len(picture), largestPicture)
	}
	// #nosec G306 -- a picture for all readers
	must(p.t, os.WriteFile(filepath.Join(*screenshots, name+".png"), picture, 0o644))
}

// startFleetOfPictures starts a service with one limiter that refuses some requests, and four that are calm.
func startFleetOfPictures(t *testing.T) *service {
	t.Helper()
	var reg quotient.Registry
	add := func(name string, limit quotient.Limit, opts ...quotient.Option) *quotient.Limiter {
		l, err := quotient.New(limit,
			append(opts, quotient.StartPool(quotient.Pool{Replicas: 12, Ordinal: 5}))...)
		must(t, err)
		must(t, reg.Add(name, l))
		return l
	}
	rate := func(name string, events float64, burst int) quotient.Limit {
		return quotient.Rates(named(name, quotient.PerSecond(events), burst))
	}
	slots := rate("requests", 2400, 600)
	slots.InFlight = 480
	api := add("api", slots)
	paid, free, partner := rate("requests", 1200, 400), rate("requests", 240, 48), rate("requests", 900, 300)
	paid.InFlight, free.InFlight, partner.InFlight = 240, 48, 120
	must(t, api.SetPlan("free", &free))
	must(t, api.SetPlan("paid", &paid))
	must(t, api.Override("org-partner", &partner))
	calm := map[string]*quotient.Limiter{
		"checkout": add("checkout", rate("orders", 1800, 600)),
		"webhooks": add("webhooks", rate("calls", 3600, 900)),
	}
	exports := add("exports", quotient.Limit{InFlight: 240})
	search := add("search", rate("queries", 1200, 300), quotient.Policy(policy.AIMD{}))

	s := new(service)
	s.mount(t, &reg, admin.EventsEvery(time.Second), admin.Replica("api-7d4b9-x2kqf"))
	ctx, cancel := context.WithTimeout(context.Background(), 2*history)
	var group sync.WaitGroup
	t.Cleanup(func() { cancel(); group.Wait() })
	group.Go(func() { every(ctx, 5*time.Millisecond, func(i int) { apiTraffic(ctx, &group, api, i) }) })
	group.Go(func() {
		every(ctx, 15*time.Millisecond, func(i int) {
			for name, l := range calm {
				if swing(i, 2400, len(name)) > float64(i%10)/10 {
					l.Allow("shop-" + strconv.Itoa(i%40))
				}
			}
			if permit, d := exports.TryAcquire("org-" + strconv.Itoa(i%9)); d.OK {
				hold(ctx, &group, permit, time.Duration(60+i%70)*time.Millisecond)
			}
			if permit, d := search.TryAcquire("shard-" + strconv.Itoa(i%4)); d.OK {
				permit.Done(policy.Feedback{Outcome: policy.Success})
			}
		})
	})
	return s
}

// apiTraffic is 200 requests a second of some organisations. The one on the free plan has more than it may,
// for a while in each minute.
func apiTraffic(ctx context.Context, group *sync.WaitGroup, api *quotient.Limiter, i int) {
	key, plan := "org-"+[]string{"acme", "globex", "partner", "initech", "hooli", "acme"}[i%6], "paid"
	if swing(i, 6000, 0) < float64(i%7)/9 {
		return
	}
	if i%6 == 4 || i%6 == 3 {
		plan = "free"
	}
	n := 1
	if key == "org-hooli" {
		n = 1 + int(2.2*swing(i, 9000, 2))
	}
	for range n {
		if permit, d := api.TryAcquire(key, quotient.Plan(plan)); d.OK {
			hold(ctx, group, permit, time.Duration(20+i%60)*time.Millisecond)
		}
	}
}

// swing rises and falls between 0.35 and 1 within so many steps.
func swing(i, steps, shift int) float64 {
	x := 2*math.Pi*float64(i)/float64(steps) + float64(shift)
	return 0.675 + 0.25*math.Sin(x) + 0.075*math.Sin(5*x)
}
