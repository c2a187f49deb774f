package redis

import (
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// proxy is a network between clients and a server. It can hold what clients send, and deliver it later, as a
// network does that has lost packets and sends them again, whether or not a client still waits.
type proxy struct {
	listener net.Listener
	server   string
	done     sync.WaitGroup // its goroutines

	mu      sync.Mutex // guards what follows
	holding bool
	conns   []*held
	answers int // bytes
}

// held is one connection, and what its client has sent in vain.
type held struct {
	server net.Conn
	bytes  []byte
}

func newProxy(t *testing.T, server string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	p := &proxy{listener: l, server: server}
	p.done.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.serve(c)
		}
	})
	t.Cleanup(func() {
		l.Close() //nolint:errcheck // nothing is lost
		p.mu.Lock()
		for _, h := range p.conns {
			h.server.Close() //nolint:errcheck // nothing is lost
		}
		p.mu.Unlock()
		p.done.Wait()
	})
	return p
}

func (p *proxy) serve(client net.Conn) {
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		client.Close() //nolint:errcheck // nothing is lost
		return
	}
	h := &held{server: server}
	p.mu.Lock()
	p.conns = append(p.conns, h)
	p.mu.Unlock()
	p.done.Go(func() { // until the client is gone; what it has sent is not
		for buf := make([]byte, 4096); ; {
			n, err := client.Read(buf)
			if err != nil {
				return
			}
			p.mu.Lock()
			if h.bytes = append(h.bytes, buf[:n]...); !p.holding {
				p.deliver(h)
			}
			p.mu.Unlock()
		}
	})
	p.done.Go(func() { // until the test ends
		defer client.Close() //nolint:errcheck // nothing is lost
		for buf := make([]byte, 4096); ; {
			n, err := server.Read(buf)
			if err != nil {
				return
			}
			p.mu.Lock()
			p.answers += n
			p.mu.Unlock()
			client.Write(buf[:n]) //nolint:errcheck // it may be gone
		}
	})
}

// deliver gives the server what a client has sent. Called with mu held.
func (p *proxy) deliver(h *held) {
	h.server.Write(h.bytes) //nolint:errcheck // the test would notice
	h.bytes = nil
}

func (p *proxy) hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holding = true
}

// heal delivers what was held, that of the last connection first, and waits for an answer to each.
func (p *proxy) heal(t *testing.T) (delivered int) {
	t.Helper()
	p.mu.Lock()
	p.holding = false
	late := slices.DeleteFunc(slices.Clone(p.conns), func(h *held) bool { return len(h.bytes) == 0 })
	p.mu.Unlock()
	for _, h := range slices.Backward(late) {
		p.mu.Lock()
		before := p.answers
		p.deliver(h)
		p.mu.Unlock()
		wait(t, "the server answers", func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.answers > before
		})
	}
	return len(late)
}

// openConns has a client open so many connections, which then wait in its pool.
func openConns(t *testing.T, c *redis.Client, n int) {
	t.Helper()
	var all []*redis.Conn
	for range n {
		conn := c.Conn()
		must(t, conn.Ping(t.Context()).Err())
		all = append(all, conn)
	}
	for _, conn := range all {
		must(t, conn.Close())
	}
}

// Failure mode 20: what arrives after the processor has given it up, or claims to come from the future,
// changes nothing.
func TestLateIsRefused(t *testing.T) {
	mini := miniredis.NewMiniRedis()
	defer mini.Close()
	client := pipeClient(t, mini)
	s, err := (&Source{Client: client, Fleet: "f", ID: "a"}).complete()
	must(t, err)
	st := s.store("a")
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	state := func() string { return mini.Dump() }
	for _, row := range []struct {
		late    time.Duration
		refused bool
	}{
		{0, false}, {900 * time.Millisecond, false}, {3 * time.Second, true}, {time.Hour, true},
		{-3 * time.Second, true},
	} {
		for _, size := range []int{3, leaving} {
			mini.FlushAll()
			mini.SetTime(now)
			_, err := s.store("b").sync(t.Context(), 2, "")
			must(t, err)
			_, err = st.sync(t.Context(), 2, "")
			must(t, err)
			st.now, st.at = now.UnixMilli(), time.Now() // as long ago as the test takes, which is no second
			before := state()
			mini.SetTime(now.Add(row.late))
			v, err := st.run(t.Context(), size, ".5")
			must(t, err)
			if refused := len(v) == 1; refused != row.refused ||
				v[len(v)-1] != now.Add(row.late).UnixMilli() {
				t.Errorf("size %d, late by %v: got %v", size, row.late, v)
			}
			if same := state() == before; same != row.refused {
				t.Errorf("size %d, late by %v: before it was\n%s\nnow\n%s", size, row.late, before, state())
			}
		}
	}
}

// Failure mode 20: a network swallows all packets, and a processor leaves meanwhile. When the network heals
// its last sync reaches the store after all, with its deregistration before it or without one. It is not
// counted again.
func TestLateSync(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		conns int // of the client, so that the leaver has one for each word that gets no answer
	}{{"without a deregistration", 1}, {"after the deregistration", 8}} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			srv := start(t)
			p := newProxy(t, srv.Addr())
			admin := clientOf(t, srv, nil)
			through := clientOf(t, nil, &redis.Options{Addr: p.listener.Addr().String(), MaxRetries: -1})
			openConns(t, through, row.conns)
			leaver, stays := source(through, "b"), source(admin, "a")
			gone, b := watch(t, leaver), watch(t, stays)
			gone.wants(t, 2, 2)
			b.wants(t, 2, 1)
			p.hold()
			gone.fails(t)
			gone.leave(t)
			b.wants(t, 1, 1) // the leaver has expired
			before, _ := b.counts()
			if n := p.heal(t); n < min(row.conns, 2) {
				t.Errorf("%d connections had something to deliver", n)
			}
			b.goesOn(t)
			for _, got := range b.since(before) {
				if got.Replicas != 1 {
					t.Errorf("%+v counts, with a processor that left long ago", got)
					break
				}
			}
			all, err := admin.ZRange(t.Context(), "{quotient:f}:deadlines", 0, -1).Result()
			must(t, err)
			if len(all) != 1 {
				t.Errorf("in the fleet are %q", all)
			}
		})
	}
}
