package browser

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/carried"
)

// othersText is the text of the part of a limiter's page about the other replicas.
const othersText = `document.querySelector("#limiter-api .facts")?.innerText.replace(/\s+/g, " ")`

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
		`document.querySelector("#limiter-api .facts").closest(".part").hidden`)

	src := &carried.Source{Replicas: 4, Every: 100 * time.Millisecond,
		Others: quotient.Terms{3, 5000, 70, 6, 20}}
	ctx, cancel := context.WithTimeout(context.Background(), loadEnds)
	var group sync.WaitGroup
	p.t.Cleanup(func() { cancel(); group.Wait() })
	group.Go(func() { _ = l.Follow(ctx, src) })
	group.Go(func() {
		every(ctx, time.Millisecond, func(int) { l.Allow("busy") })
	})
	p.until("the numbers are there", othersText+`.match(/Admitted [1-9]\d*(\.\d)?\/s here, all replicas [1-9]\d*(\.\d)?\/s Refused .* here, all replicas .* In flight 0 here, all replicas 20 Waiting 0 here, all replicas 6 Counted 4 of 4 replicas Keys reported 1, 1 by this replica Borrowed here of 1 key Oldest report .* s, at most 3 s Traffic of all limiters \d.* out, [\d.]+ KiB\/s in/)`)
	p.until("the key has more than its share", `document.querySelector("#limiter-api tbody .key .badge")?.textContent.match(/^(9\d(\.\d)?|100) % of the limit, share 25 %$/)`)
	const badge = `[...document.querySelectorAll("#limiter-api .title .badge")].filter((b) => !b.hidden).map((b) => b.textContent).join()`
	p.until("nothing warns", badge+` === ""`)
	for _, width := range []int64{360, 1440} {
		p.size(width, 900)
		p.narrow(fmt.Sprintf("what is borrowed, %d px", width))
	}
	src.Silence()
	p.until("the badge warns", badge+` === "Reports are missing: each replica keeps to its share"`)
	for _, theme := range []string{"light", "dark"} {
		p.theme(theme)
		p.contrast("no reports, " + theme)
	}
	p.size(360, 900)
	p.narrow("no reports")
	p.until("the key is back at its share", `document.querySelector("#limiter-api tbody .key") && !document.querySelector("#limiter-api tbody .key .badge")`)
	p.until("totals are unknown", othersText+`.match(/here, all replicas unknown .* Oldest report missing/)`)
	cancel()
	p.until("nothing is shown any more",
		`document.querySelector("#limiter-api .facts").closest(".part").hidden && `+badge+` === ""`)
	p.calm()
}
