package lease

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"go.uber.org/goleak"

	"github.com/quotient-go/quotient/internal/tested"
)

func TestMain(m *testing.M) {
	slog.SetDefault(noLog) // of servers without a Log
	goleak.VerifyTestMain(m)
}

// inServer runs a test in a bubble, with a server that has peers 1 to 3. They expire after an hour.
func inServer(t *testing.T, config string, test func(t *testing.T, s *Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, err := NewServer(settings(t, config), ServerOptions{})
		must(t, err)
		defer s.Close()
		withPeers(t, s)
		test(t, s)
	})
}

func withPeers(t *testing.T, s *Server) {
	t.Helper()
	for id := range uint64(3) {
		must(t, s.do(func(t *Table, now time.Time) error { return t.AddPeer(id+1, time.Hour, now) }))
	}
}

var must = tested.Must

// takes fails unless the peer gets the lock at once.
func takes(t *testing.T, s *Server, id uint64, name string, count int64) uint64 {
	t.Helper()
	token, err := s.acquire(t.Context(), ask{peer: id, semaphore: name, count: count, expiresIn: unchanged})
	if err != nil || token == 0 {
		t.Fatalf("peer %d asks for %d of %s: token %d, error %v", id, count, name, token, err)
	}
	return token
}

// blockedAsk is an acquire that blocks.
type blockedAsk struct{ *going[uint64] }

// blocks starts an acquire and returns once it waits or has ended.
func blocks(t *testing.T, s *Server, id uint64, name string, count int64, blockFor time.Duration) blockedAsk {
	a := ask{peer: id, semaphore: name, count: count, expiresIn: unchanged, blockFor: blockFor}
	return blockedAsk{goes(t.Context(), func(ctx context.Context) (uint64, error) { return s.acquire(ctx, a) })}
}

// outcome is "held", "waits", "blocked" or an error.
func (b blockedAsk) outcome() string {
	if !b.ended() {
		return "blocked"
	}
	return strings.Join(strings.Fields(grant(b.got, b.err)), " ")
}

// going is a call in a goroutine of its own.
type going[T any] struct {
	got    T
	err    error
	took   time.Duration
	done   chan struct{} // closed when the above are set
	cancel context.CancelFunc
}

// goes starts a call and returns once all goroutines wait.
func goes[T any](ctx context.Context, f func(context.Context) (T, error)) *going[T] {
	g, start := &going[T]{done: make(chan struct{})}, time.Now()
	ctx, g.cancel = context.WithCancel(ctx)
	go func() {
		defer close(g.done)
		g.got, g.err = f(ctx)
		g.took = time.Since(start)
	}()
	synctest.Wait()
	return g
}

func (g *going[T]) ended() bool { return closed(g.done) }

func giveBack(t *testing.T, s *Server, id uint64, name string) {
	t.Helper()
	must(t, s.do(func(t *Table, now time.Time) error { return t.Release(id, name, now) }))
}

func beat(t *testing.T, s *Server, id uint64, expiresIn time.Duration) {
	t.Helper()
	must(t, s.do(func(t *Table, now time.Time) error {
		_, err := t.Heartbeat(id, expiresIn, now)
		return err
	}))
}

// TestBlockedRequestEnds has one row for all that ends a blocked request, at the instant.
func TestBlockedRequestEnds(t *testing.T) {
	const never = maxBlockFor
	type serverDo = func(s *Server) error
	beats := func(id uint64, expiresIn time.Duration) serverDo {
		return func(s *Server) error { beat(t, s, id, expiresIn); return nil }
	}
	releases := func(id uint64) serverDo { return func(s *Server) error { giveBack(t, s, id, "A"); return nil } }
	configures := func(text string) serverDo {
		return func(s *Server) error { return s.Configure(settings(t, text)) }
	}
	extends := func(d time.Duration) serverDo {
		return func(s *Server) error { return s.Extend(time.Now().Add(d)) }
	}
	for name, row := range map[string]struct {
		what  serverDo
		after time.Duration // that it ends
		want  string
	}{
		"released":       {releases(1), 0, "held"},
		"holder expires": {beats(1, 30*time.Second), 30 * time.Second, "held"},
		"holder removed": {func(s *Server) error {
			return s.do(func(t *Table, now time.Time) error { t.RemovePeer(1, now); return nil })
		}, 0, "held"},
		"holder shrinks": {func(s *Server) error { takes(t, s, 1, "A", 1); return nil }, 0, "held"},
		"broken": {func(s *Server) error {
			token := takes(t, s, 1, "A", 3)
			broken, err := s.Break(1, "A", token)
			if broken.Peer != 1 || broken.Count != 3 || broken.Token != token || broken.Since.IsZero() {
				t.Errorf("the broken lock was %+v", broken)
			}
			return err
		}, 0, "held"},
		"maximum raised": {configures("A=5"), 0, "held"},
		"maximum too low": {configures("A=1"), 0,
			"Lock can never be acquired. Lock asks for count 2 yet full count is only 1."},
		"semaphore gone": {configures("B=1"), 0, "Unknown semaphore"},
		"given back":     {releases(2), 0, "No such lock is held."},
		"peer expires":   {beats(2, time.Minute), time.Minute, "Unknown peer"},
		"stand-by": {func(s *Server) error { s.StandBy("http://b"); return nil }, 0,
			"lease: this server is on stand-by, the leader is http://b"},
		"leads again": {func(s *Server) error { return s.Lead(ClockTokens(time.Now()), time.Time{}) }, 0,
			"Unknown peer"},
		"its time passes": {extends(20 * time.Second), 20 * time.Second,
			"lease: this server is on stand-by, and the leader is not known"},
		"its time is extended": {func(s *Server) error {
			return errors.Join(extends(20*time.Second)(s), s.Extend(time.Time{}))
		}, never, "waits"},
		"closed":              {func(s *Server) error { s.Close(); return nil }, 0, "lease: the server is closed"},
		"cancelled":           {nil, 0, "waits"},
		"at the last instant": {beats(1, never), never, "held"},
		"nothing happens":     {func(*Server) error { return nil }, never, "waits"},
	} {
		inServer(t, "A=3", func(t *testing.T, s *Server) {
			beat(t, s, 1, 2*never)
			beat(t, s, 2, 2*never)
			takes(t, s, 1, "A", 3)
			b := blocks(t, s, 2, "A", 2, 2*never)
			if b.ended() {
				t.Fatalf("%s: not blocked: token %d, error %v", name, b.got, b.err)
			}
			if row.what == nil {
				b.cancel()
			} else {
				must(t, row.what(s))
			}
			if row.after > 0 {
				time.Sleep(row.after - 1)
				if b.ended() {
					t.Fatalf("%s: ended after %v with %v, want %v", name, b.took, b.outcome(), row.after)
				}
				time.Sleep(time.Nanosecond)
			}
			if got := b.outcome(); got != row.want || b.took != row.after || len(s.blocked) != 0 {
				t.Errorf("%s: %q after %v, %d blocked, want %q after %v", name, got, b.took, len(s.blocked), row.want,
					row.after)
			}
		})
	}
}

func TestBlockedRequestsOfOnePeerAreBounded(t *testing.T) {
	inServer(t, "A=1", func(t *testing.T, s *Server) {
		takes(t, s, 1, "A", 1)
		var all []blockedAsk
		for range maxBlocked {
			all = append(all, blocks(t, s, 2, "A", 1, time.Minute))
		}
		if b := blocks(t, s, 2, "A", 1, time.Minute); b.outcome() != "waits" || b.took != 0 {
			t.Errorf("one more is %q after %v, want an answer at once", b.outcome(), b.took)
		}
		tested.Want(t, "the outcome of another peer's", blocks(t, s, 3, "A", 1, time.Second).outcome(), "blocked")
		all[0].cancel()
		tested.Not(t, !all[0].ended(), "the cancelled one has not ended")
		all[0] = blocks(t, s, 2, "A", 1, time.Minute)
		giveBack(t, s, 1, "A")
		for i, b := range all {
			if b.outcome() != "held" || b.got != all[0].got {
				t.Errorf("%d is %q with token %d, want token %d", i, b.outcome(), b.got, all[0].got)
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		tested.Want(t, "peers that are blocked", len(s.blocked), 0)
	})
}

func TestGraceEndsByItself(t *testing.T) {
	inServer(t, "A=1 grace=10s", func(t *testing.T, s *Server) {
		b := blocks(t, s, 1, "A", 1, time.Minute)
		tested.Want(t, "the grace time left", s.Stats().Grace, 10*time.Second)
		if time.Sleep(10 * time.Second); b.outcome() != "held" || b.took != 10*time.Second {
			t.Errorf("%q after %v, want it held after 10s", b.outcome(), b.took)
		}
	})
}

func TestNewerTokensServe(t *testing.T) {
	inServer(t, "A=2", func(t *testing.T, s *Server) {
		must(t, s.Lead(Tokens{7, 8}, time.Time{}))
		withPeers(t, s)
		if takes(t, s, 1, "A", 1) != 7 || s.TokensLeft() != 0 {
			t.Errorf("%d tokens are left, want none", s.TokensLeft())
		}
		b := blocks(t, s, 2, "A", 1, time.Minute)
		must(t, s.AddTokens(Tokens{100, 103}))
		if b.outcome() != "held" || b.got != 100 || s.TokensLeft() != 2 {
			t.Errorf("%q with token %d and %d left, want 100 and 2", b.outcome(), b.got, s.TokensLeft())
		}
	})
}

func TestReadingDoesWhatIsDue(t *testing.T) {
	inServer(t, "A=1", func(t *testing.T, s *Server) {
		beat(t, s, 1, time.Minute)
		takes(t, s, 1, "A", 1)
		b := blocks(t, s, 2, "A", 1, time.Hour)
		s.timer.Stop() // as if it came late
		time.Sleep(time.Minute)
		if st := s.Stats(); st.Peers != 2 || b.outcome() != "held" {
			t.Errorf("there are %d peers and the next is %q, want 2 and held", st.Peers, b.outcome())
		}
	})
}

func TestConfigureKeepsItsOwn(t *testing.T) {
	inServer(t, "A=1", func(t *testing.T, s *Server) {
		c := settings(t, "A=2")
		must(t, s.Configure(c))
		c.Semaphores["A"] = Semaphore{} // the caller's, which the server must not read again
		must(t, s.Lead(ClockTokens(time.Now()), time.Time{}))
		if err := s.Configure(c); err == nil || !strings.Contains(err.Error(), `["A"].Max is 0`) {
			t.Errorf("error %v, want one that names the maximum", err)
		}
		tested.Want(t, "the maximum", s.Stats().Semaphores[0].Max, 2)
	})
}

func TestCloseLeavesNothingBehind(t *testing.T) {
	inServer(t, "A=1", func(t *testing.T, s *Server) {
		takes(t, s, 1, "A", 1)
		b := blocks(t, s, 2, "A", 1, time.Hour)
		s.Close()
		s.Close()
		tested.Not(t, s.timer.Stop(), "the timer still runs")
		tested.Want(t, "the blocked request", b.outcome(), ErrClosed.Error())
		for name, err := range map[string]error{
			"Lead": s.Lead(Tokens{1, 2}, time.Time{}), "Extend": s.Extend(time.Time{}),
			"AddTokens": s.AddTokens(Tokens{}),
		} {
			tested.Is(t, name, err, ErrClosed)
		}
		if st := s.Stats(); st.Leads || st.Peers != 0 {
			t.Errorf("statistics are %+v, want none", st)
		}
	})
}

func TestTimerIsSetForWhatIsDueFirst(t *testing.T) {
	inServer(t, "A=9", func(t *testing.T, s *Server) {
		start := time.Now()
		for i, d := range []time.Duration{50 * time.Second, 10 * time.Second, 30 * time.Second} {
			takes(t, s, uint64(i+1), "A", 1)
			beat(t, s, uint64(i+1), d)
		}
		beat(t, s, 2, 20*time.Second) // later than the timer
		for _, row := range []struct {
			at   time.Duration
			left int
		}{{10, 3}, {20, 2}, {30, 1}, {49, 1}, {50, 0}} {
			time.Sleep(time.Until(start.Add(row.at * time.Second)))
			synctest.Wait()
			s.mu.Lock()
			tested.Want(t, fmt.Sprintf("peers after %d s", row.at), len(s.table.busy), row.left)
			s.mu.Unlock()
		}
	})
}

// TestSelfFencing stops a leader's clock past its time, with no request that comes.
func TestSelfFencing(t *testing.T) {
	for _, look := range []struct {
		name  string
		leads func(s *Server) bool
	}{
		{"Leads", func(s *Server) bool { leads, _ := s.Leads(); return leads }},
		{"Stats", func(s *Server) bool { return s.Stats().Leads }},
		{"TokensLeft", func(s *Server) bool { return s.TokensLeft() > 0 }},
		{"acquire", func(s *Server) bool {
			_, err := s.acquire(context.Background(), ask{peer: 1, semaphore: "A", count: 1, expiresIn: unchanged})
			return err == nil
		}},
		{"Extend", func(s *Server) bool { return s.Extend(time.Time{}) == nil }},
		{"AddTokens", func(s *Server) bool { return s.AddTokens(Tokens{1, 2}) == nil }},
		{"Break", func(s *Server) bool { _, err := s.Break(1, "A", 1); return errors.Is(err, ErrNotHeld) }},
		{"Locks", func(s *Server) bool { _, _, err := s.Locks("A", 1); return err == nil }},
	} {
		t.Run(look.name, func(t *testing.T) {
			inServer(t, "A=1", func(t *testing.T, s *Server) {
				until := time.Now().Add(time.Minute)
				must(t, s.Extend(until))
				time.Sleep(time.Minute - 1)
				s.timer.Stop() // as if the process had been stopped
				tested.Not(t, !look.leads(s), "it does not lead, before its time has passed")
				must(t, s.Extend(until))
				s.timer.Stop()
				time.Sleep(time.Nanosecond)
				tested.Not(t, look.leads(s), "it leads, though its time has passed")
				tested.Not(t, s.table != nil, "it still has peers")
			})
		})
	}
}

func TestStandBy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := NewServer(settings(t, "A=1"), ServerOptions{StandBy: true})
		must(t, err)
		defer s.Close()
		wants := func(leads bool, leader string) {
			t.Helper()
			st := s.Stats()
			is, of := s.Leads()
			if is != leads || of != leader || st.Leads != leads || st.Leader != leader {
				t.Errorf("leads %v, leader %q, want %v and %q", is, of, leads, leader)
			}
		}
		wants(false, "")
		s.StandBy("http://b")
		wants(false, "http://b")
		var standBy *StandByError
		if _, _, err := s.Locks("A", 1); !errors.As(err, &standBy) || standBy.Leader != "http://b" {
			t.Errorf("error %v, want a StandByError of http://b", err)
		}
		must(t, s.Configure(settings(t, "B=2"))) // counts once it leads
		must(t, s.Lead(Tokens{5, 9}, time.Now().Add(time.Minute)))
		wants(true, "")
		if st := s.Stats(); len(st.Semaphores) != 1 || st.Semaphores[0].Max != 2 {
			t.Errorf("semaphores are %+v, want B of 2", st.Semaphores)
		}
		time.Sleep(time.Minute)
		wants(false, "")
		must(t, s.Lead(Tokens{9, 12}, time.Now())) // too late
		wants(false, "")
	})
}

// stuck is a body of so many blanks, whose end does not come before go.
type stuck struct {
	left int
	end  chan struct{}
}

func (b *stuck) Read(p []byte) (int, error) {
	n := min(len(p), b.left)
	if b.left -= n; n == 0 {
		<-b.end
		return 0, io.EOF
	}
	return copy(p[:n], strings.Repeat(" ", n)), nil
}

func asks(s *Server, method, path string, body io.Reader) *httptest.ResponseRecorder {
	r, w := httptest.NewRequest(method, path, body), httptest.NewRecorder()
	r.Header.Set("Content-Type", "application/json")
	s.ServeHTTP(w, r)
	return w
}

// TestBodiesShareARoom holds bodies that have no end. What is large is then refused, and what is small is served.
func TestBodiesShareARoom(t *testing.T) {
	inServer(t, "A=1", func(t *testing.T, s *Server) {
		const fit = maxBodies/maxRestore - 1 // none has more than it leaves free
		end, refused := make(chan struct{}), 0
		for range fit + 20 {
			go func() {
				w := asks(s, "POST", "/restore", &stuck{maxRestore - 1, end})
				if w.Code == http.StatusServiceUnavailable && w.Header().Get("Retry-After") == "1" {
					refused++ // one at a time, as long as all are stuck
				}
			}()
			synctest.Wait()
		}
		if used, _ := s.bodies.State(); refused != 20 || used > maxBodies {
			t.Errorf("%d are refused and the others hold %d bytes, want 20 and at most %d", refused, used, maxBodies)
		}
		for path, body := range map[string]string{
			"/new_peer": `{"expires_in":"5m"}`, "/restore": `{"expires_in":"5m","peer_id":9,"acquired":{"A":1}}`,
		} {
			if w := asks(s, "POST", path, strings.NewReader(body)); w.Code != http.StatusOK {
				t.Errorf("%s: %d %s", path, w.Code, w.Body)
			}
		}
		close(end)
		synctest.Wait()
		if used, _ := s.bodies.State(); used != 0 {
			t.Errorf("%d bytes are still counted", used)
		}
		s.bodies.SetMost(0)
		for size, want := range map[int]int{freeBody - 1: http.StatusOK, freeBody + 1: http.StatusServiceUnavailable} {
			body := fmt.Sprintf("%*s", size, `{"expires_in":"5m"}`)
			if w := asks(s, "POST", "/new_peer", strings.NewReader(body)); w.Code != want {
				t.Errorf("%d bytes without any room: %d %s, want %d", size, w.Code, w.Body, want)
			}
		}
		s.lists.SetMost(8 * 5)
		w := asks(s, "GET", "/peers/", nil)
		if used, _ := s.lists.State(); w.Code != http.StatusServiceUnavailable || used != 0 {
			t.Errorf("a list without room: %d %s, %d bytes are counted", w.Code, w.Body, used)
		}
	})
}

// TestLargeBodyHasItsTime sends bodies that are counted, byte by byte. One that is whole may wait as long as it likes.
func TestLargeBodyHasItsTime(t *testing.T) {
	for head, row := range map[string]struct {
		blanks int
		every  time.Duration // a blank more; 0: all at once, and the lock is free after 10 minutes
		status int
		after  time.Duration
	}{
		"POST /restore":                 {freeBody, 10 * time.Second, http.StatusRequestTimeout, maxBodyTime},
		"PUT /peers/2/A?block_for=30m":  {freeBody, 0, http.StatusOK, 10 * time.Minute},
		"PUT /peers/2/A?block_for=300s": {100, 0, http.StatusAccepted, 5 * time.Minute},
	} {
		inServer(t, "A=1", func(t *testing.T, s *Server) {
			takes(t, s, 1, "A", 1)
			time.AfterFunc(10*time.Minute, func() { giveBack(t, s, 1, "A") })
			conn, began := connected(t, s), time.Now()
			var sending sync.WaitGroup
			sending.Go(func() {
				text := strings.Repeat(" ", row.blanks) + "1"
				_, err := fmt.Fprintf(conn, head+jsonHead+"Content-Length: %d\r\n\r\n%s", len(text)+99, text)
				for i := 0; i < 99 && err == nil; i++ {
					time.Sleep(row.every)
					_, err = io.WriteString(conn, " ")
				}
			})
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			must(t, err)
			if took := time.Since(began); resp.StatusCode != row.status || took != row.after {
				t.Errorf("%s: %d after %v, want %d after %v", head, resp.StatusCode, took, row.status, row.after)
			}
			must(t, conn.Close())
			sending.Wait()
		})
	}
}

// TestListThatNobodyReads sends a list whose client reads its first byte: it is counted for as long as it may take.
func TestListThatNobodyReads(t *testing.T) {
	inServer(t, "A=1", func(t *testing.T, s *Server) {
		for range 1000 {
			must(t, s.do(func(t *Table, now time.Time) error { _, err := t.newPeer(time.Hour, now); return err }))
		}
		conn := connected(t, s)
		_, err := io.WriteString(conn, "GET /peers/"+jsonHead+"\r\n")
		must(t, err)
		_, err = conn.Read(make([]byte, 1))
		must(t, err)
		for _, row := range []struct {
			wait time.Duration
			held int64
		}{{0, 8 * 1003}, {maxBodyTime - 1, 8 * 1003}, {1, 0}} {
			time.Sleep(row.wait)
			synctest.Wait()
			if got, _ := s.lists.State(); got != row.held {
				t.Fatalf("%v later %d bytes are counted, want %d", row.wait, got, row.held)
			}
		}
		if n, err := io.Copy(io.Discard, conn); err != nil || n > 8<<10 {
			t.Errorf("%d bytes more come, then %v, want the end of the connection", n, err)
		}
	})
}

// A client that leaves is noticed while its request waits, and its place stays: it may ask again.
func TestClientThatLeavesWhileItWaits(t *testing.T) {
	inServer(t, "A=1", func(t *testing.T, s *Server) {
		takes(t, s, 1, "A", 1)
		conn := connected(t, s)
		_, err := io.WriteString(conn, "PUT /peers/2/A?block_for=1h"+jsonHead+ // the end of its body is read separately
			"Transfer-Encoding: chunked\r\n\r\n1\r\n1\r\n0\r\n\r\n")
		must(t, err)
		for _, want := range []int{1, 0} {
			synctest.Wait()
			tested.Want(t, "requests that wait", len(s.blocked), want)
			must(t, conn.Close())
		}
		giveBack(t, s, 1, "A")
		takes(t, s, 2, "A", 1)
	})
}

// jsonHead is the rest of a request line, and fields.
const jsonHead = " HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"

// connected returns a client's end of a connection that the server serves.
func connected(t *testing.T, s *Server) net.Conn {
	ours, theirs := net.Pipe()
	web, l := &http.Server{Handler: s}, make(oneConn, 1)
	l <- theirs
	go func() { _ = web.Serve(l) }()
	t.Cleanup(func() { _, _ = ours.Close(), web.Close() })
	return ours
}

// oneConn is a listener of one connection.
type oneConn chan net.Conn

func (l oneConn) Accept() (net.Conn, error) {
	if c, ok := <-l; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (l oneConn) Close() error   { close(l); return nil }
func (l oneConn) Addr() net.Addr { return nil }

// asleep returns an instant from before the machine slept for d, a time in which only the time of day went
// on. It changes the seconds of the time of day inside a Time. Times of a synctest bubble have no monotonic
// clock, and are of no use here.
func asleep(at time.Time, d time.Duration) time.Time {
	*(*uint64)(unsafe.Pointer(&at)) -= uint64(d/time.Second) << 30
	return at
}

// A machine that sleeps may stop its monotonic clock. By the time of day an instant has then passed.
func TestPassed(t *testing.T) {
	at := time.Now().Add(time.Minute)
	for _, row := range []struct {
		at, now time.Time
		want    bool
	}{
		{at, at.Add(-1), false},
		{at, at, true},
		{asleep(at, 2*time.Minute), at.Add(-time.Second), true},
		{asleep(at, -time.Hour), at, true}, // the time of day was set back
	} {
		tested.Want(t, fmt.Sprintf("%v at %v", row.at, row.now), passed(row.at, row.now), row.want)
	}
	s := &session{client: &Client{ExpiresIn: time.Hour}, renewed: time.Now()}
	tested.Not(t, s.stale(), "a session that was just renewed is stale")
	s.renewed = asleep(s.renewed, 54*time.Minute)
	tested.Not(t, !s.stale(), "a client whose machine slept believes in its leases")
}
