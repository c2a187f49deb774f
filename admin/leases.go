package admin

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// Leases is a lease service, for operators. All methods must be safe for concurrent use and return at once.
// Names of semaphores are UTF-8.
type Leases interface {
	// Leases returns every semaphore, in any order.
	Leases() LeaseState
	// Locks returns the oldest locks of a semaphore, at most most held and most pending ones. It fails with
	// ErrNoSemaphore. Any other error is answered with 503.
	Locks(semaphore string, most int) (held, pending []LeaseLock, err error)
	// Break takes a held lock away from its peer and returns it as it was. It fails with ErrNotHeld where the peer does
	// not hold a lock of that token, and changes nothing then. Any other error is answered with 503.
	Break(peer uint64, semaphore string, token uint64) (LeaseLock, error)
}

// Errors of a Leases, which may wrap them.
var (
	ErrNoSemaphore = errors.New("admin: there is no such semaphore")
	ErrNotHeld     = errors.New("admin: no such lock is held")
)

// LeaseState is the answer of GET /leases.
type LeaseState struct {
	Time         time.Time   `json:"time"`          // of the answer; the handler sets it
	Leads        bool        `json:"leads"`         // false on a stand-by
	Leader       string      `json:"leader"`        // URL of the leader, on a stand-by that knows it
	GraceSeconds float64     `json:"grace_seconds"` // the rest of the grace time, in which locks are only restored
	Peers        int         `json:"peers"`
	Semaphores   []Semaphore `json:"semaphores"`     // in an answer: those with the most pending first
	More         int         `json:"more,omitempty"` // semaphores that are left out here; the handler sets it
}

// Semaphore is one semaphore of a LeaseState. Acquired and Pending are sums of counts, Holders and Waiters are locks.
type Semaphore struct {
	Name                  string      `json:"name"`
	Max                   int64       `json:"max"`
	Level                 int64       `json:"level"`
	Gone                  bool        `json:"gone"` // no longer in the configuration, but held
	Acquired              int64       `json:"acquired"`
	Pending               int64       `json:"pending"`
	Holders               int         `json:"holders"`
	Waiters               int         `json:"waiters"`
	LongestPendingSeconds float64     `json:"longest_pending_seconds"`
	Totals                LeaseTotals `json:"totals"`
}

// LeaseTotals count locks since the service began to lead.
type LeaseTotals struct {
	Granted  uint64 `json:"granted"`
	Released uint64 `json:"released"`
	Expired  uint64 `json:"expired"`
	Broken   uint64 `json:"broken"` // by operators
	Restored uint64 `json:"restored"`
	Beyond   uint64 `json:"beyond"` // of those restored: beyond the maximum
}

// LeaseLocks is the answer of GET /leases?semaphore=NAME: its oldest locks, oldest first.
type LeaseLocks struct {
	Time      time.Time   `json:"time"` // of the answer
	Semaphore string      `json:"semaphore"`
	Held      []LeaseLock `json:"held"`
	Pending   []LeaseLock `json:"pending"`
}

// LeaseLock is one lock, held or pending. In JSON peer and token are strings: they may exceed 2^53.
type LeaseLock struct {
	Peer       uint64    `json:"peer,string"`
	Count      int64     `json:"count"`
	Token      uint64    `json:"token,string"`   // the fencing token; 0: pending
	Since      time.Time `json:"since"`          // held or pending since
	AgeSeconds float64   `json:"age_seconds"`    // the handler sets it
	Expires    time.Time `json:"expires"`        // with its peer, unless the peer sends a heartbeat
	ETag       string    `json:"etag,omitempty"` // of a held lock, for IfMatch; the handler sets it
}

// WithLeases shows a lease service: GET /leases, POST /leases/break and a part of the page. Without it both
// are answered with 404.
func WithLeases(l Leases) Option {
	return func(h *handler) {
		h.leases = l
		h.mustBe(l != nil, "WithLeases: leases: nil")
	}
}

const (
	defaultLeases    = 100
	longestSemaphore = 1024 // bytes of a name
)

// withLeases is a route that is there only with WithLeases.
func withLeases(serve server) server {
	return func(h *handler, w http.ResponseWriter, r *http.Request) {
		if h.leases == nil {
			notFound(w, r)
			return
		}
		serve(h, w, r)
	}
}

// getLeases answers with the semaphores, or the oldest locks of one.
func (h *handler) getLeases(c *call) any {
	top := c.top("semaphores or locks", defaultLeases)
	name, given := c.query["semaphore"]
	switch {
	case c.bad != nil:
		return nil
	case given:
		return h.leaseLocks(c, name, top)
	}
	return h.leaseState(top)
}

func (h *handler) leaseState(top int) LeaseState {
	s := h.leases.Leases()
	s.Time = time.Now()
	all := append([]Semaphore{}, s.Semaphores...)
	slices.SortFunc(all, func(a, b Semaphore) int {
		return cmp.Or(cmp.Compare(b.Pending, a.Pending), cmp.Compare(b.Acquired, a.Acquired),
			cmp.Compare(a.Name, b.Name))
	})
	s.Semaphores, s.More = all[:min(len(all), top)], max(0, len(all)-top)
	return s
}

func (h *handler) leaseLocks(c *call, name string, top int) LeaseLocks {
	held, pending, err := h.leases.Locks(name, top)
	now := time.Now()
	switch {
	case errors.Is(err, ErrNoSemaphore):
		c.fail(http.StatusNotFound, Problem{
			Detail: "there is no semaphore of that name",
			Field:  "semaphore", Value: clip(name), Range: "a name that GET /leases lists",
		})
	case err != nil:
		c.leasesFailed(err)
	}
	return LeaseLocks{now, name, h.shownLocks(name, held, top, now), h.shownLocks(name, pending, top, now)}
}

// shownLocks are at most top locks as an answer carries them.
func (h *handler) shownLocks(semaphore string, locks []LeaseLock, top int, now time.Time) []LeaseLock {
	shown := make([]LeaseLock, 0, min(len(locks), top))
	for _, l := range locks[:min(len(locks), top)] {
		shown = append(shown, h.shownLock(semaphore, l, now))
	}
	return shown
}

func (h *handler) shownLock(semaphore string, l LeaseLock, now time.Time) LeaseLock {
	l.AgeSeconds = max(0, now.Sub(l.Since).Seconds())
	if l.Token != 0 {
		l.ETag = h.tag(semaphore, l.Peer, l.Token)
	}
	return l
}

// leasesFailed is the answer when the service is on stand-by or closed.
func (c *call) leasesFailed(err error) {
	c.fail(http.StatusServiceUnavailable, Problem{Detail: shorten(err.Error(), longestCell)})
}

// leaseBreak is what POST /leases/break asks for: one lock, by the token that its operator has seen.
type leaseBreak struct {
	semaphore   string
	peer, token uint64
}

// readLeaseBreak reads {"semaphore":"A","peer":"42","token":"1700000000000000000"}.
func readLeaseBreak(body []byte) (leaseBreak, *Problem) {
	f := readForm(body, `{"semaphore":"A","peer":"42","token":"1"}`, "semaphore", "peer", "token")
	return result(f, leaseBreak{f.text("semaphore", longestSemaphore), f.digits("peer", 0), f.digits("token", 1)})
}

// digits reads a string that is a whole number of 64 bits, as it stands in an answer.
func (f *form) digits(name string, low uint64) uint64 {
	text := f.text(name, len("18446744073709551615"))
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n < low || strconv.FormatUint(n, 10) != text {
		f.wrong(name, "not a whole number as a string",
			fmt.Sprintf("a string of digits, %d to 18446744073709551615", low))
		return 0
	}
	return n
}

// breakLease takes a lock from its holder, unless it is not the one that the operator has seen.
func (h *handler) breakLease(c *call) any {
	v := readBody(c, readLeaseBreak)
	if c.bad != nil {
		return nil
	}
	if c.precondition(h.tag(v.semaphore, v.peer, v.token), "the tag is of another lock"); c.bad != nil {
		return nil
	}
	h.writing.Lock()
	defer h.writing.Unlock()
	old, err := h.leases.Break(v.peer, v.semaphore, v.token)
	switch {
	case errors.Is(err, ErrNotHeld):
		c.fail(http.StatusPreconditionFailed, Problem{
			Field: "token", Value: strconv.FormatUint(v.token, 10),
			Detail: "the peer does not hold a lock of this token any more",
			Range:  "the token of a held lock, as GET /leases lists it",
		})
		return nil
	case err != nil:
		c.leasesFailed(err)
		return nil
	}
	who, _ := h.identify(c.Request, false)
	h.log.Info("quotient: lease broken by an operator", "semaphore", strconv.QuoteToASCII(v.semaphore),
		slog.Group("old", "peer", old.Peer, "count", old.Count, "token", old.Token,
			"since", old.Since, "expires", old.Expires),
		"new", "none", "from", c.RemoteAddr, "by", who.name)
	answer := h.shownLock(v.semaphore, old, time.Now())
	answer.ETag = "" // it is held no more
	return answer
}
