package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"
)

// Times of a history over HTTP. A peer that is left to expire has brief; all others outlive the history.
const (
	brief    = 30 * time.Millisecond
	lateness = time.Millisecond      // of an expiry, as the next request sees it
	longest  = 40 * time.Millisecond // of a request that is blocked
)

// groups of clients have their own semaphores. Each group is checked by itself, which is much less work.
const groups = 2

// asked is the server of the moment. Each has a port of its own, so that a request belongs to one server.
type asked struct {
	epoch int
	addr  string
}

// live is one history over HTTP, with the program quotient.
type live struct {
	rules   rules
	began   time.Time
	server  atomic.Pointer[asked]
	done    atomic.Int64 // requests that were answered
	mu      sync.Mutex
	history [groups][]porcupine.Operation
	over    context.Context // ends when all clients have ended
}

// overHTTP plays histories against the program, which is killed and started again.
func (b *bench) overHTTP(ctx context.Context) (section, error) {
	c, began := &counts{}, time.Now()
	var errs []error
	for i := range b.http {
		seed := b.seed*1_000_000 + uint64(i)
		l, err := b.liveHistory(ctx, seed)
		if err != nil {
			return section{}, fmt.Errorf("seed %d: %w", seed, err)
		}
		start, result := time.Now(), porcupine.Ok
		for _, history := range l.history {
			one, err := l.rules.check(history)
			if err != nil {
				errs = append(errs, fmt.Errorf("seed %d: %w", seed, err))
			}
			if one != porcupine.Ok && result != porcupine.Illegal {
				result = one
			}
		}
		c.add(slices.Concat(l.history[:]...), result, time.Since(start))
	}
	s := section{title: "Histories over HTTP", note: fmt.Sprintf("As many clients, in groups with "+
		"semaphores of their own, send %d requests each to the program quotient leases, each over a "+
		"connection of its own. It is killed up to three times in a history and started again; clients "+
		"restore what they held. Peers are left to expire within %v. An answer that did not come may or may "+
		"not have been acted upon. It took %.0f s.", b.requests, brief, time.Since(began).Seconds())}
	return c.judge(s, b.http, b.clients*b.requests*9/10), firstErrors(errs)
}

func (b *bench) liveHistory(ctx context.Context, seed uint64) (*live, error) {
	rng := rand.New(rand.NewPCG(seed, 16))
	l := &live{began: time.Now()}
	for i := range l.rules.max {
		l.rules.max[i] = 1 + rng.Int64N(4)
		l.rules.level[i] = rng.Int64N(3)
	}
	l.rules.keepIdle = int64(time.Hour)
	dir, err := os.MkdirTemp("", "quotient-leases-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "throttle.toml")
	if err := os.WriteFile(file, []byte(l.rules.toml()), 0o600); err != nil {
		return nil, err
	}
	return l, b.playLive(ctx, l, file, seed, rng)
}

// playLive plays a history with the servers of a file.
func (b *bench) playLive(ctx context.Context, l *live, file string, seed uint64, rng *rand.Rand) error {
	var end context.CancelFunc
	l.over, end = context.WithCancel(ctx)
	defer end()
	p, err := b.next(l, file)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	errs := make([]error, b.clients+1)
	for i := range b.clients {
		c := l.client(rand.New(rand.NewPCG(seed, 100+uint64(i))))
		wg.Go(func() { errs[i] = l.play(c, i, b.requests) })
	}
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		p, errs[b.clients] = b.strike(l, p, file, rng)
	}()
	wg.Wait()
	end()
	<-killed
	if p != nil {
		errs = append(errs, p.stop())
	}
	l.settle()
	return errors.Join(append(errs, ctx.Err())...)
}

// toml is the configuration as a file of the published server.
func (r rules) toml() string {
	var text strings.Builder
	text.WriteString("litter_collection_interval = \"1h\"\n[semaphores]\n")
	for g := range groups {
		for i, name := range names {
			fmt.Fprintf(&text, "%s%d = { max = %d, level = %d }\n", name, g, r.max[i], r.level[i])
		}
	}
	return text.String()
}

func (l *live) client(rng *rand.Rand) *client {
	return &client{
		rng: rng, rules: l.rules, pending: -1, brief: int64(brief),
		newID: func() uint64 { return 0 },
		ttl:   func() int64 { return int64(time.Hour) },
	}
}

// next starts a server, and sends the clients to it.
func (b *bench) next(l *live, file string) (*process, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	p, err := b.leases(l.over, port, "-c", file)
	if err != nil {
		return nil, err
	}
	epoch := 0
	if before := l.server.Load(); before != nil {
		epoch = before.epoch + 1
	}
	l.server.Store(&asked{epoch, at(port)})
	return p, nil
}

// strike kills the server up to three times while the clients work, and starts another. It returns the last.
func (b *bench) strike(l *live, p *process, file string, rng *rand.Rand) (*process, error) {
	all := int64(b.clients * b.requests)
	kills := 1 + rng.Int64N(3)
	for i := range kills {
		for at := all * (i + 1) / (kills + 1); l.done.Load() < at; {
			select {
			case <-l.over.Done():
				return p, nil
			case <-time.After(time.Millisecond):
			}
		}
		in := &input{kind: restart, epoch: l.server.Load().epoch}
		call := l.now()
		if err := p.kill(); err != nil {
			return nil, err
		}
		ret := l.now()
		for g := range groups {
			l.record(g, in, call, ret, output{})
		}
		var err error
		if p, err = b.next(l, file); err != nil {
			if l.over.Err() != nil {
				return nil, nil
			}
			return nil, err
		}
	}
	return p, nil
}

func (l *live) now() int64 { return int64(time.Since(l.began)) }

// record records an operation of a client; modulo groups it is the group's.
func (l *live) record(client int, in *input, call, ret int64, out output) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := &l.history[client%groups]
	*h = append(*h, porcupine.Operation{ClientId: client, Input: in, Call: call, Output: &out, Return: ret})
}

// settle gives a lost answer until after the end of its server: only then it can do nothing any more.
func (l *live) settle() {
	for _, history := range l.history {
		ends := map[int]int64{}
		for _, op := range history {
			if in(op).kind == restart {
				ends[in(op).epoch] = op.Return
			}
		}
		for i, op := range history {
			if end, ended := ends[in(op).epoch]; ended && op.Output.(*output).lost {
				history[i].Return = max(op.Return, end+1)
			}
		}
	}
}

// play sends requests.
func (l *live) play(c *client, client, requests int) error {
	w := &wire{ctx: l.over}
	defer w.close()
	for range requests {
		in := c.next()
		if in.kind == removePeer && c.dying == 0 && c.rng.IntN(2) == 0 {
			time.Sleep(brief)
		}
		out, call, err := l.send(w, c, client, in)
		if err != nil {
			return err
		}
		ret := l.now()
		l.done.Add(1)
		c.answered(in, &out)
		l.note(client, in, call, ret, out)
	}
	return nil
}

// harmless are requests that no other can see, if their own answer is lost: a peer without a lock, or one
// whose time does not end before the server's.
var harmless = map[kind]bool{
	newPeer: true, heartbeat: true, acquired: true, remainder: true, removeExpired: true,
}

// note records a request as one operation or, where it was blocked, as two.
func (l *live) note(client int, in *input, call, ret int64, out output) {
	switch {
	case out.lost && harmless[in.kind]:
	case in.kind == ask && in.blocks && !out.lost && !atOnce(out.err):
		asked := ret
		if out.token == 0 && out.err == "" {
			asked = max(call, ret-in.ttl) // the lock stayed pending for as long as the request may be blocked
		}
		l.record(client, in, call, asked, output{})
		rest := *in
		rest.kind, rest.blocks = wait, false
		l.record(client, &rest, call, ret, out)
	case in.kind == heartbeat && in.ttl == int64(brief) && !out.lost && out.err == "":
		l.record(client, in, call, ret, out)
		l.record(client, &input{kind: expire, epoch: in.epoch, id: in.id}, call+in.ttl, ret+in.ttl+int64(lateness),
			output{lost: true}) // nothing answers it
	case in.kind == removeExpired:
		out.n = unseen // of all groups
		for g := range groups {
			l.record(g, in, call, ret, out)
		}
	default:
		if in.kind == ask && !out.lost {
			in.blocks = false
		}
		l.record(client, in, call, ret, out)
	}
}

// atOnce reports whether a request fails so only when it begins to be blocked. Maxima do not change here.
func atOnce(err string) bool {
	return err == alreadyPending || strings.HasPrefix(err, "Lock hi") || strings.HasPrefix(err, "Lock can n")
}

// send sends a request to the server of the moment, and waits for one where there is none.
func (l *live) send(w *wire, c *client, client int, in *input) (out output, call int64, err error) {
	for {
		s := l.server.Load()
		if w.addr != s.addr {
			w.close()
			w.addr = s.addr
		}
		in.epoch, call = s.epoch, l.now()
		method, target, body := request(in, client%groups, c.rng)
		a, err := w.ask(method, target, body)
		switch {
		case err == nil:
			out, err = understand(in, a)
			return out, call, err
		case l.over.Err() != nil:
			return out, call, l.over.Err()
		case !errors.Is(err, errNotSent):
			return output{lost: true}, call, nil
		}
		time.Sleep(time.Millisecond)
	}
}

// named is a semaphore of a group.
func named(i, group int) string { return names[i] + strconv.Itoa(group) }

// request is an input as HTTP.
func request(in *input, group int, rng *rand.Rand) (method, target, body string) {
	peer := "/peers/" + strconv.FormatUint(in.id, 10)
	lock := peer + "/" + named(in.semaphore, group)
	expires := lasting(time.Duration(in.ttl))
	switch in.kind {
	case newPeer:
		return "POST", "/new_peer", expires
	case heartbeat:
		return "PUT", peer, expires
	case removePeer:
		return "DELETE", peer, ""
	case ask:
		if in.blocks {
			in.ttl = int64(time.Millisecond) * (1 + rng.Int64N(longest.Milliseconds()))
			lock += fmt.Sprintf("?block_for=%dms", in.ttl/int64(time.Millisecond))
		}
		return "PUT", lock, strconv.FormatInt(in.count, 10)
	case release:
		return "DELETE", lock, ""
	case acquired:
		return "GET", peer + "/is_acquired", ""
	case remainder:
		return "GET", "/remainder?semaphore=" + named(in.semaphore, group), ""
	case removeExpired:
		return "POST", "/remove_expired", ""
	}
	var held, tokens []string
	for i, l := range in.locks {
		if l.count > 0 {
			held = append(held, fmt.Sprintf("%q:%d", named(i, group), l.count))
		}
		if l.count > 0 && l.token != 0 {
			tokens = append(tokens, fmt.Sprintf("%q:%d", named(i, group), l.token))
		}
	}
	return "POST", "/restore", fmt.Sprintf(`{"expires_in":"%dms","peer_id":%d,"acquired":{%s},"tokens":{%s}}`,
		time.Duration(in.ttl).Milliseconds(), in.id, strings.Join(held, ","), strings.Join(tokens, ","))
}

// understand is the answer to an input.
func understand(in *input, a reply) (out output, err error) {
	text := string(a.text)
	switch {
	case a.status == 400 || a.status == 409:
		return output{err: text}, nil
	case a.status != 200 && (a.status != 202 || in.kind != ask):
		return out, fmt.Errorf("%v: status %d: %s", *in, a.status, text)
	}
	switch in.kind {
	case newPeer:
		in.id, err = strconv.ParseUint(text, 10, 64)
	case removePeer:
		out.n = int64(asBit(text == `"Peer released"`))
	case ask:
		out.token = a.token
		if (a.status == 200) != (a.token != 0) || text != strconv.FormatUint(in.id, 10) {
			err = fmt.Errorf("%v: status %d, token %d: %s", *in, a.status, a.token, text)
		}
	case acquired:
		out.n = int64(asBit(text == "true"))
	case remainder, removeExpired:
		out.n, err = strconv.ParseInt(text, 10, 64)
	case restore:
		out.n = unseen
	}
	return out, err
}
