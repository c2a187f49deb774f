package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient/internal/tested"
)

const (
	bigPeer  = 16045690984503098046 // above 2^53, and above 2^63
	bigToken = uint64(1767323045000000006)
)

// fakeLeases is a lease service of semaphores with one holder each. It does not look at its clock.
type fakeLeases struct {
	semaphores []Semaphore
	held       map[string]LeaseLock
	err        error // of all but Leases
	breaks     int
	most       int // that Locks was last asked for
}

func newLeases(names ...string) *fakeLeases {
	f := &fakeLeases{held: make(map[string]LeaseLock)}
	for _, name := range names {
		f.semaphores = append(f.semaphores, Semaphore{Name: name, Max: 3, Acquired: 2, Holders: 1})
		f.held[name] = LeaseLock{Peer: bigPeer, Count: 2, Token: bigToken, Since: time.Now(),
			Expires: time.Now().Add(time.Minute)}
	}
	return f
}

func (f *fakeLeases) Leases() LeaseState {
	return LeaseState{Leads: f.err == nil, Peers: 4, GraceSeconds: 1.5, Semaphores: f.semaphores}
}

func (f *fakeLeases) Locks(semaphore string, most int) (held, pending []LeaseLock, err error) {
	f.most = most
	l, known := f.held[semaphore]
	if !known {
		return nil, nil, fmt.Errorf("leases: %w", ErrNoSemaphore)
	}
	waiter := l
	waiter.Token = 0
	return slices.Repeat([]LeaseLock{l}, most+1), []LeaseLock{waiter}, f.err
}

func (f *fakeLeases) Break(peer uint64, semaphore string, token uint64) (LeaseLock, error) {
	l, known := f.held[semaphore]
	switch {
	case f.err != nil:
		return LeaseLock{}, f.err
	case !known || l.Peer != peer || l.Token != token:
		return LeaseLock{}, fmt.Errorf("leases: %w", ErrNotHeld)
	}
	f.breaks++
	delete(f.held, semaphore)
	return l, nil
}

func breakBody(semaphore, peer, token string) string {
	text, _ := json.Marshal(map[string]string{"semaphore": semaphore, "peer": peer, "token": token})
	return string(text)
}

// goodBreak takes the lock of a fakeLeases.
func goodBreak(semaphore string) request {
	return request{method: "POST", path: "/leases/break",
		body: breakBody(semaphore, fmt.Sprint(uint64(bigPeer)), fmt.Sprint(bigToken))}
}

// TestLeases: the list has what is pending most first, peers and tokens are strings, ages are of now.
func TestLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newLeases("b", "a", "c")
		f.semaphores[2].Pending, f.semaphores[2].Waiters = 1, 1
		f.semaphores[0].Totals = LeaseTotals{Granted: 1, Released: 2, Expired: 3, Broken: 4, Restored: 5,
			Beyond: 6}
		h := quiet(t, newLimiter(t), WithLeases(f))
		time.Sleep(5 * time.Second)
		got := decode[LeaseState](t, get("/leases").send(t, h))
		if len(got.Semaphores) != 3 ||
			got.Semaphores[0].Name+got.Semaphores[1].Name+got.Semaphores[2].Name != "cab" {
			t.Errorf("semaphores %+v", got.Semaphores)
		}
		if !got.Leads || got.Peers != 4 || got.GraceSeconds != 1.5 || got.More != 0 ||
			!got.Time.Equal(time.Now()) || got.Semaphores[2].Totals != f.semaphores[0].Totals {
			t.Errorf("got %+v", got)
		}
		rec := get("/leases?semaphore=a&top=2").send(t, h)
		if want := fmt.Sprintf(`"peer": "%d"`, uint64(bigPeer)); !strings.Contains(rec.Body.String(), want) {
			t.Errorf("no %s in %s", want, rec.Body)
		}
		one := decode[LeaseLocks](t, rec)
		if len(one.Held) != 2 || f.most != 2 || one.Held[0].AgeSeconds != 5 || one.Held[0].ETag == "" ||
			one.Held[0].Peer != bigPeer || one.Held[0].Token != bigToken {
			t.Errorf("got %+v, asked for %d", one, f.most)
		}
		if len(one.Pending) != 1 || one.Pending[0].ETag != "" {
			t.Errorf("pending %+v", one.Pending)
		}
		if s := decode[State](t, get("/state").send(t, h)); !s.Leases {
			t.Error("the state does not say that there are leases")
		}
	})
}

// TestNoLeases: without a service its routes are not there, and the state does not mention it.
func TestNoLeases(t *testing.T) {
	h := quiet(t, newLimiter(t))
	for _, r := range []request{
		get("/leases"),
		get("/leases?x=1"),
		goodBreak("a"),
		{method: "POST", path: "/leases/break", contentType: none},
	} {
		if rec := r.send(t, h); rec.Code != 404 ||
			rec.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %s", r.path, rec.Code, rec.Body)
		}
	}
	if text := get("/state").send(t, h).Body.String(); strings.Contains(text, `"leases"`) {
		t.Errorf("state %s", text)
	}
}

// TestBreakLease: one lock, once, and what was taken is in the answer and, with the operator's token, in the
// log.
func TestBreakLease(t *testing.T) {
	var out bytes.Buffer
	f := newLeases("a\u202e<b>")
	h := mount(t, newLimiter(t), WithLeases(f), Token(secret),
		Logger(slog.New(slog.NewTextHandler(&out, nil))))
	r := goodBreak("a\u202e<b>").with("Authorization", "Bearer "+secret)
	old := decode[LeaseLock](t, r.send(t, h))
	if old.Peer != bigPeer || old.Token != bigToken || old.Count != 2 || old.ETag != "" || f.breaks != 1 {
		t.Errorf("got %+v after %d breaks", old, f.breaks)
	}
	line := out.String()
	for _, want := range []string{
		"lease broken by an operator", `\\u202e`, fmt.Sprint("old.peer=", uint64(bigPeer)), "old.count=2",
		fmt.Sprint("old.token=", bigToken), "old.since=", "old.expires=",
		"new=none", `by="token 1"`, "from=127.0.0.1:50000",
	} {
		tested.Not(t, !strings.Contains(line, want), "no %s in the log: %s", want, line)
	}
	out.Reset()
	again := decode[Problem](t, r.send(t, h))
	if again.Status != 412 || again.Field != "token" || f.breaks != 1 ||
		strings.Contains(out.String(), "broken") {
		t.Errorf("again: %+v, log %s", again, &out)
	}
}

// TestBreakLeaseIfMatch: the tag of another lock, of an older one or of another handler changes nothing.
func TestBreakLeaseIfMatch(t *testing.T) {
	f := newLeases("a", "b")
	h := quiet(t, newLimiter(t), WithLeases(f))
	tagOf := func(h http.Handler, name string) string {
		return decode[LeaseLocks](t, get("/leases?semaphore="+name).send(t, h)).Held[0].ETag
	}
	good := tagOf(h, "a")
	for _, tag := range []string{tagOf(h, "b"), strings.Replace(good, "6\"", "5\"", 1),
		tagOf(quiet(t, newLimiter(t), WithLeases(f)), "a"), "W/" + good, "", `"*"`} {
		if p := decode[Problem](t, goodBreak("a").with("If-Match", tag).send(t, h)); p.Status != 412 || p.Field != "If-Match" {
			t.Errorf("%s: %+v", tag, p)
		}
	}
	tested.Want(t, "broken locks", f.breaks, 0)
	for name, tag := range map[string]string{"a": good, "b": "*"} {
		if rec := goodBreak(name).with("If-Match", tag).send(t, h); rec.Code != 200 {
			t.Errorf("%s: %d %s", tag, rec.Code, rec.Body)
		}
	}
}

// TestAttackLeaseRequests: parameters are read strictly, and a lock that is not held is not broken. The tests of
// all routes do what needs no lock.
func TestAttackLeaseRequests(t *testing.T) {
	f := newLeases("a")
	h := quiet(t, newLimiter(t), WithLeases(f))
	broken := goodBreak("a")
	post := func(path, body string) request { return request{method: "POST", path: path, body: body} }
	for name, tt := range map[string]struct {
		r      request
		status int
		field  string
	}{
		"a parameter of break": {post("/leases/break?semaphore=a", broken.body), 400, "semaphore"},
		"another parameter":    {get("/leases?limiter=api"), 400, "limiter"},
		"twice":                {get("/leases?semaphore=a&semaphore=a"), 400, "semaphore"},
		"top":                  {get("/leases?top=1001"), 400, "top"},
		"top of one":           {get("/leases?semaphore=a&top=0"), 400, "top"},
		"no such semaphore":    {get("/leases?semaphore=" + url.QueryEscape("<b>\x00\u202e")), 404, "semaphore"},
		"an empty name":        {get("/leases?semaphore="), 404, "semaphore"},
		"a long name":          {get("/leases?semaphore=" + strings.Repeat("s", 9999)), 404, "semaphore"},
		"another peer":         {post("/leases/break", breakBody("a", "1", fmt.Sprint(bigToken))), 412, "token"},
		"an older token": {post("/leases/break", breakBody("a", fmt.Sprint(uint64(bigPeer)), "1")), 412,
			"token"},
	} {
		rec := tt.r.send(t, h)
		size := rec.Body.Len()
		tested.Not(t, bytes.ContainsAny(rec.Body.Bytes(), "<>&"), "%s: markup: %s", name, rec.Body)
		if p := decode[Problem](t, rec); p.Status != tt.status || p.Field != tt.field || size > 1000 {
			t.Errorf("%s: %+v in %d bytes, want %d of %s", name, p, size, tt.status, tt.field)
		}
	}
	tested.Want(t, "broken locks", f.breaks, 0)
}

// TestManySemaphores: an answer holds so many as were asked for, at most 1,000, and no name in it is markup.
func TestManySemaphores(t *testing.T) {
	var names []string
	for i := range 10_000 {
		names = append(names, fmt.Sprintf("<script>%d</script>&\x01\u202e%s", i, strings.Repeat("n", 40)))
	}
	h := quiet(t, newLimiter(t), WithLeases(newLeases(names...)))
	for query, want := range map[string]int{"": 100, "?top=1": 1, "?top=1000": 1000} {
		rec := get("/leases"+query).send(t, h)
		if bytes.ContainsAny(rec.Body.Bytes(), "<>&") || rec.Body.Len() > 1<<20 {
			t.Errorf("%s: an answer of %d bytes: %.500s", query, rec.Body.Len(), rec.Body)
		}
		if got := decode[LeaseState](t, rec); len(got.Semaphores) != want || got.More != 10_000-want {
			t.Errorf("%s: %d semaphores and %d more", query, len(got.Semaphores), got.More)
		}
	}
	rec := get("/leases?top=1000&semaphore="+url.QueryEscape(names[7])).send(t, h)
	if got := decode[LeaseLocks](t, rec); len(got.Held) != 1000 || got.Semaphore != names[7] {
		t.Errorf("%d holders of %q", len(got.Held), got.Semaphore)
	}
}

// TestLeasesOnStandBy: the state reports the stand-by, and requests that need the table are unavailable.
func TestLeasesOnStandBy(t *testing.T) {
	f := newLeases("a")
	f.err = errors.New("this server is on stand-by")
	h := quiet(t, newLimiter(t), WithLeases(f))
	if got := decode[LeaseState](t, get("/leases").send(t, h)); got.Leads {
		t.Error("it leads")
	}
	for _, r := range []request{get("/leases?semaphore=a"), goodBreak("a")} {
		if p := decode[Problem](t, r.send(t, h)); p.Status != 503 || p.Detail != f.err.Error() {
			t.Errorf("%s: %+v", r.path, p)
		}
	}
}

// TestClientOfLeases calls every method of the client that is about leases.
func TestClientOfLeases(t *testing.T) {
	f := newLeases("a b&c")
	c := speaking(t, quiet(t, newLimiter(t), WithLeases(f)))
	ctx := t.Context()
	if s, err := c.Leases(ctx, 10); err != nil || len(s.Semaphores) != 1 || s.Semaphores[0].Max != 3 {
		t.Errorf("%+v, %v", s, err)
	}
	locks, err := c.LeaseLocks(ctx, "a b&c", 10)
	if err != nil || len(locks.Held) != 10 || locks.Held[0].Peer != bigPeer {
		t.Fatalf("%+v, %v", locks, err)
	}
	lock := locks.Held[0]
	if _, err := c.BreakLease(ctx, "a b&c", lock.Peer, lock.Token-1); !errors.Is(err, ErrConflict) {
		t.Errorf("an older token: %v", err)
	}
	if _, err := c.BreakLease(ctx, "a b&c", lock.Peer, lock.Token, IfMatch(`"x"`)); !errors.Is(err,
		ErrConflict) {
		t.Errorf("another tag: %v", err)
	}
	if _, err := c.BreakLease(ctx, "a b&c", lock.Peer, lock.Token, ValidateOnly()); err == nil ||
		f.breaks != 0 {
		t.Errorf("a lease that was only to be validated: %v, %d broken", err, f.breaks)
	}
	if old, err := c.BreakLease(ctx, "a b&c", lock.Peer, lock.Token, IfMatch(lock.ETag)); err != nil ||
		old.Count != 2 || f.breaks != 1 {
		t.Errorf("%+v, %v", old, err)
	}
}
