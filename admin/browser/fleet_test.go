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
	"github.com/quotient-go/quotient/internal/tested"
	"github.com/quotient-go/quotient/policy"
)

// hostile is a key that would run a script on a page that takes text for markup.
const hostile = `<img src=x onerror=alert(1)>`

// loadEnds is when the load ends by itself, whatever becomes of the test.
const loadEnds = 5 * time.Minute

// service is a process with three limiters under load and the admin handler before them.
type service struct {
	api, jobs, search *quotient.Limiter
	handler           *admin.Handler
	addr              string // of the listener; it stays when the service is stopped and started again
	stop              func()
}

// startService starts a service that ends with the test.
func startService(t *testing.T, opts ...admin.Option) *service {
	t.Helper()
	s := &service{
		api: limiter(t, quotient.Limit{Rates: []quotient.Rate{named("requests", quotient.PerSecond(300), 60)},
			InFlight: 40}),
		jobs: limiter(t, quotient.Rates(named("starts", quotient.PerMinute(3600), 6)),
			quotient.MaxWaiting(9, 20)),
		search: limiter(t, quotient.Rates(named("queries", quotient.PerSecond(90), 30)),
			quotient.Policy(policy.AIMD{})),
	}
	var reg quotient.Registry
	for name, l := range map[string]*quotient.Limiter{"api": s.api, "jobs": s.jobs, "search": s.search} {
		must(t, reg.Add(name, l))
	}
	own := quotient.Rates(named("requests", quotient.PerSecond(30), 30))
	must(t, s.api.Override("tenant-basic", &own, 0))
	deny := quotient.Limit{Deny: true}
	must(t, s.api.Override("tenant-blocked", &deny, 0))
	for name, events := range map[string]float64{"free": 45, "paid": 450} {
		plan := quotient.Rates(named("requests", quotient.PerSecond(events), int(events)))
		must(t, s.api.SetPlan(name, &plan))
	}
	s.mount(t, &reg, opts...)
	s.load(t)
	return s
}

func limiter(t *testing.T, limit quotient.Limit, opts ...quotient.Option) *quotient.Limiter {
	t.Helper()
	opts = append(opts, quotient.StartPool(quotient.Pool{Replicas: 3, Ordinal: 2}))
	l, err := quotient.New(limit, opts...)
	must(t, err)
	return l
}

func named(name string, rate quotient.Rate, burst int) quotient.Rate {
	rate.Name, rate.Burst = name, burst
	return rate
}

var must = tested.Must

// load asks the limiters until the test ends.
func (s *service) load(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), loadEnds)
	var group sync.WaitGroup
	t.Cleanup(func() { cancel(); group.Wait() })
	keys := []string{"tenant-basic", "tenant-gold", "tenant-gold", "tenant-silver", hostile, "tenant-blocked"}
	plans := map[string]string{"tenant-gold": "paid", "tenant-silver": "free"}
	group.Go(func() {
		// The load swells and falls within ten seconds; at its height not everything fits.
		every(ctx, 4*time.Millisecond, func(i int) {
			if math.Sin(float64(i)/400)+float64(i%7)/7 < -0.25 {
				return
			}
			for j := range 2 {
				key := keys[(i+3*j)%len(keys)]
				if permit, d := s.api.TryAcquire(key, quotient.Plan(plans[key])); d.OK {
					hold(ctx, &group, permit, time.Duration(20+i%30)*time.Millisecond)
				}
			}
		})
	})
	for worker := range 12 { // more than have room in the queue of one key
		group.Go(func() { s.work(ctx, "queue-"+strconv.Itoa(worker%12/11)) })
	}
	group.Go(func() { s.query(ctx) })
}

// work waits for one turn after the other.
func (s *service) work(ctx context.Context, key string) {
	every(ctx, 25*time.Millisecond, func(int) {
		if permit, err := s.jobs.Acquire(ctx, key); err == nil {
			permit.Release()
		}
	})
}

// query plays an upstream that answers 429 now and then.
func (s *service) query(ctx context.Context) {
	every(ctx, 20*time.Millisecond, func(i int) {
		permit, d := s.search.TryAcquire("index-" + strconv.Itoa(i%3))
		if !d.OK {
			return
		}
		said := policy.Feedback{Outcome: policy.Success}
		if i%60 < 6 {
			said.Outcome = policy.Throttled
		}
		permit.Done(said)
	})
}

// hold keeps a permit for a while, as a request that is at work does.
func hold(ctx context.Context, group *sync.WaitGroup, permit quotient.Permit, d time.Duration) {
	group.Go(func() {
		defer permit.Release()
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	})
}

// every calls do with 0, 1, 2 … after each pause, until ctx ends.
func every(ctx context.Context, pause time.Duration, do func(i int)) {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-tick.C:
			do(i)
		case <-ctx.Done():
			return
		}
	}
}

const (
	largestPicture = 400 << 10 // bytes
	history        = 2 * time.Minute
)

// TestPictures leaves pictures of the page, phone and desktop, light and dark, where the flag wants them. It
// waits until the charts are full. The font is that of the system; the pictures of the documentation were
// taken with Inter.
func TestPictures(t *testing.T) {
	if *screenshots == "" {
		t.Skip("no directory for pictures: run make browser PICTURES=docs/pictures")
	}
	s := startFleetOfPictures(t)
	p := openTab(t, s.url())
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
	p.run(`scrollTo(0, 0)`)
	p.until("keys are shown", `$("#limiter-api .acts button[aria-label^=Explain]")`)
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
	must(t, api.Override("org-partner", &partner, 0))
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
