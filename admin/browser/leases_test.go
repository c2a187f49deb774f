package browser

import (
	"fmt"
	"sync"
	"time"

	"github.com/quotient-go/quotient/admin"
)

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
	const panel = `document.getElementById("leases").innerText.replace(/\s+/g, " ")`
	p.until("the state of the service is shown",
		panel+`.includes("This process grants leases Peers 2 Semaphores 10,001")`)
	p.until("names are text",
		fmt.Sprintf(`%s.includes(%q) && !document.querySelector("#leases img, #leases script")`,
			panel, hostile))
	p.until("the rows are bounded", `document.querySelectorAll("#leases tbody tr").length === 100 && `+panel+
		`.includes("9,901 more semaphores are not shown.")`)
	p.until("the one that is waited for stands first", `document.querySelector("#leases tbody tr").innerText.replace(/\s+/g, " ").includes("2 of 3 1 2 1 4 min 0")`)
	for _, theme := range []string{"light", "dark"} {
		p.theme(theme)
		p.contrast("leases, " + theme)
	}
	for _, width := range []int64{360, 1440} {
		p.size(width, 800)
		p.narrow(fmt.Sprintf("leases, %d px", width))
	}

	const dialog = `document.querySelector("dialog[open]")?.innerText.replace(/\s+/g, " ")`
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
	p.names("breaking a lease", "dialog")
	p.click("dialog[open]", "Apply change")
	p.until("it is broken",
		fmt.Sprintf(`document.getElementById("notice").textContent === "The lease of peer %d is broken."`,
			uint64(leasePeer)))
	if l.mu.Lock(); l.broken != 1 {
		p.t.Errorf("%d leases were broken", l.broken)
	}
	l.mu.Unlock()
	p.calm()
}

// noLeases: a program without leases has nothing of them on the page.
func noLeases(p *tab) {
	p.alone()
	p.until("there is nothing", `!document.getElementById("leases").checkVisibility()`)
	p.calm()
}
