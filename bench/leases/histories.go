package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/quotient-go/quotient/bench/rig"
	"github.com/quotient-go/quotient/internal/kept"
	"github.com/quotient-go/quotient/internal/rest"
)

const (
	lateness = time.Millisecond      // of an expiry, as the next request sees it
	longest  = 40 * time.Millisecond // of a request that is blocked
	leadsIn  = 30 * time.Second      // from the end of a server until the next one leads
)

var names = [semaphores]string{"A", "B", "C"}

// asked is the server of the moment. Each has a port of its own, so that a request belongs to one server.
type asked struct {
	epoch int
	url   string
}

// live is one history with the program quotient.
type live struct {
	rules   rules
	file    string
	began   time.Time
	server  atomic.Pointer[asked]
	done    atomic.Int64 // requests that were answered
	mu      sync.Mutex
	history []porcupine.Operation
	over    context.Context // ends when all clients have ended
}

// counts are what the histories hold, so that none of them is empty praise.
type counts struct {
	operations, violations, unknown int
	seen                            map[string]int // kinds of operations and of answers
}

// musts are those that must be there.
var musts = []string{"restart", "restore", "expire", "lost", "pending", "granted at once, or repeated",
	"granted after a wait", "refused: Unknown peer", "refused: Already pending.", "refused: Lock hierachy",
	"refused: Lock count"}

func (c *counts) add(history []porcupine.Operation) {
	c.operations += len(history)
	for _, op := range history {
		out := op.Output.(*output)
		c.seen[string(in(op).kind)]++
		switch {
		case out.lost:
			c.seen["lost"]++
		case out.err != "":
			c.seen["refused: "+strings.Join(strings.Fields(out.err)[:2], " ")]++
		case out.token != 0 && in(op).kind == wait:
			c.seen["granted after a wait"]++
		case out.token != 0:
			c.seen["granted at once, or repeated"]++
		case in(op).kind == ask:
			c.seen["pending"]++
		}
	}
}

// singleServer plays histories against the program, which is killed and started again.
func (b *bench) singleServer(ctx context.Context) (rig.Section, error) {
	return b.play(ctx, b.histories, "Histories", "", "")
}

// electedServers plays histories against programs that etcd elects, one after the other.
func (b *bench) electedServers(ctx context.Context) (s rig.Section, err error) {
	e := &etcd{}
	if err := e.start(ctx); err != nil {
		return s, errors.Join(err, e.end())
	}
	s, err = b.play(ctx, b.elected, "Histories over etcd", `
Here etcd elects each server, so the next one leads when the lease of the one that was killed has ended.`,
		e.election())
	return s, errors.Join(err, e.end())
}

// play plays and checks histories.
func (b *bench) play(ctx context.Context, histories int, title, note, election string) (rig.Section, error) {
	c := &counts{seen: map[string]int{}}
	for i := range histories {
		l, err := b.history(ctx, uint64(b.seed*1_000_000+i), election)
		if err != nil {
			return rig.Section{}, fmt.Errorf("history %d: %w", i, err)
		}
		result, err := l.rules.check(l.history)
		c.violations += asBit(result == porcupine.Illegal)
		c.unknown += asBit(result == porcupine.Unknown)
		if err != nil {
			fmt.Fprintln(b.stderr, err)
		}
		c.add(l.history)
	}
	return c.section(title, fmt.Sprintf(`
In each of %d histories %d clients send %d requests each to the program quotient leases, each over a connection
of its own. It is killed up to three times and started again; clients restore what they held, peers are left to
expire within %v. An answer that did not come may or may not have been acted upon. Porcupine looks for an order
of the operations that explains all answers, by a model that shares no code with package lease.%s`,
		histories, b.clients, b.requests, time.Duration(brief), note), histories*b.clients*b.requests*9/10), nil
}

func (c *counts) section(title, note string, least int) rig.Section {
	s := rig.Section{Title: title, Note: note, Table: rig.Table{Header: []string{"what", "how often"}}}
	for _, what := range slices.Sorted(maps.Keys(c.seen)) {
		s.Add(what, c.seen[what])
	}
	rarest := c.operations
	for _, what := range musts {
		rarest = min(rarest, c.seen[what])
	}
	s.Verdicts = []rig.Verdict{
		rig.AtLeast("operations", float64(c.operations), float64(least), ""),
		rig.Exactly("violations", c.violations, 0),
		rig.Exactly("unknown", c.unknown, 0),
		rig.AtLeast("the rarest kind of fault and of answer", float64(rarest), 1, ""),
	}
	return s
}

// history plays one history. The election is the part of a configuration that has one, or nothing.
func (b *bench) history(ctx context.Context, seed uint64, election string) (*live, error) {
	rng := rand.New(rand.NewPCG(seed, 16))
	l := &live{began: time.Now()}
	for i := range semaphores {
		l.rules.max[i], l.rules.level[i] = 1+rng.Int64N(4), rng.Int64N(3)
	}
	dir, err := os.MkdirTemp("", "quotient-leases-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	l.file = filepath.Join(dir, "leases.toml")
	if err := os.WriteFile(l.file, []byte(l.rules.toml()+election), 0o600); err != nil {
		return nil, err
	}
	var end context.CancelFunc
	l.over, end = context.WithCancel(ctx)
	defer end()
	p, err := b.next(l)
	if err != nil {
		return nil, err
	}
	var clients, killing sync.WaitGroup
	errs := make([]error, b.clients+1)
	for i := range b.clients {
		c := &client{rng: rand.New(rand.NewPCG(seed, 100+uint64(i))), rules: l.rules, pending: -1}
		clients.Go(func() { errs[i] = l.play(c, i, b.requests) })
	}
	killing.Go(func() { p, errs[b.clients] = b.strike(l, p, rng) })
	clients.Wait()
	end()
	killing.Wait()
	if p != nil {
		errs = append(errs, p.Stop())
	}
	l.settle()
	return l, errors.Join(append(errs, ctx.Err())...)
}

func (r rules) toml() string {
	text := "[leases]\n[leases.semaphores]\n"
	for i, name := range names {
		text += fmt.Sprintf("%s = { max = %d, level = %d }\n", name, r.max[i], r.level[i])
	}
	return text
}

// next starts a server, waits until it leads, and sends the clients to it.
func (b *bench) next(l *live) (*kept.Process, error) {
	port, err := rig.FreePort()
	if err != nil {
		return nil, err
	}
	p, err := b.leases(l.over, port, "-c", l.file)
	if err != nil {
		return nil, err
	}
	s := &asked{url: "http://" + rig.At(port)}
	if before := l.server.Load(); before != nil {
		s.epoch = before.epoch + 1
	}
	if err := rig.Until(l.over, leadsIn, func() error { return ready(s.url) }); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	l.server.Store(s)
	return p, nil
}

// quick asks servers that may be stopped. A connection is for one request.
var quick = &http.Client{Timeout: 300 * time.Millisecond, Transport: &http.Transport{DisableKeepAlives: true}}

// ready reports whether a server leads; its grace time may not be over.
func ready(url string) error {
	resp, err := quick.Get(url + "/ready")
	if err == nil && resp.Body.Close() == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return err
}

// strike kills the server up to three times while the clients work, and starts another. It returns the last.
func (b *bench) strike(l *live, p *kept.Process, rng *rand.Rand) (*kept.Process, error) {
	all := int64(b.clients * b.requests)
	kills := 1 + rng.Int64N(3)
	for i := range kills {
		for at := all * (i + 1) / (kills + 1); l.done.Load() < at; rest.For(l.over, time.Millisecond) {
			if l.over.Err() != nil {
				return p, nil
			}
		}
		in := &input{kind: restart, epoch: l.server.Load().epoch}
		call := l.now()
		if err := p.Kill(); err != nil {
			return nil, err
		}
		l.record(b.clients, in, call, l.now(), output{})
		var err error
		if p, err = b.next(l); l.over.Err() != nil {
			return p, nil // all clients have ended
		}
		if err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (l *live) now() int64 { return int64(time.Since(l.began)) }

// record records an operation of a client.
func (l *live) record(client int, in *input, call, ret int64, out output) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.history = append(l.history, porcupine.Operation{ClientId: client, Input: in, Call: call, Output: &out, Return: ret})
}

// settle gives a lost answer until after the end of its server: only then it can do nothing any more.
func (l *live) settle() {
	ends := map[int]int64{}
	for _, op := range l.history {
		if in(op).kind == restart {
			ends[in(op).epoch] = op.Return
		}
	}
	for i, op := range l.history {
		if end, ended := ends[in(op).epoch]; ended && op.Output.(*output).lost {
			l.history[i].Return = max(op.Return, end+1)
		}
	}
}

// play sends requests.
func (l *live) play(c *client, client, requests int) error {
	conn := &http.Client{Transport: &http.Transport{}}
	defer conn.CloseIdleConnections()
	for range requests {
		in := c.next()
		last := in.kind == removePeer && c.dying == 0 || in.kind == ask && c.dying == 1
		if last && c.rng.IntN(2) == 0 { // a peer that holds nothing is kept, and may ask once more
			time.Sleep(time.Duration(brief))
		}
		out, call, err := l.send(conn, c, in)
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
var harmless = []kind{newPeer, heartbeat, acquired, remainder, removeExpired}

// note records a request as one operation or, where it was blocked, as two.
func (l *live) note(client int, in *input, call, ret int64, out output) {
	switch {
	case out.lost && slices.Contains(harmless, in.kind):
	case in.kind == ask && in.blocks && !out.lost && !early(out.err):
		asked := ret
		if out.token == 0 && out.err == "" {
			asked = max(call, ret-in.ttl) // the lock stayed pending for as long as the request may be blocked
		}
		l.record(client, in, call, asked, output{})
		rest := *in
		rest.kind, rest.blocks = wait, false
		l.record(client, &rest, call, ret, out)
	case in.kind == heartbeat && in.ttl == brief && out.err == "":
		l.record(client, in, call, ret, out)
		end := &input{kind: expire, epoch: in.epoch, id: in.id} // nothing answers it
		l.record(client, end, call+in.ttl, ret+in.ttl+int64(lateness), output{lost: true})
	default:
		in.blocks = in.blocks && out.lost
		l.record(client, in, call, ret, out)
	}
}

// early reports whether a request fails so only when it begins to be blocked.
func early(err string) bool {
	return err == alreadyPending || strings.HasPrefix(err, "Lock hi") || strings.HasPrefix(err, "Lock can n")
}

// send sends a request to the server of the moment, and waits for one where there is none.
func (l *live) send(conn *http.Client, c *client, in *input) (out output, call int64, err error) {
	for {
		s := l.server.Load()
		in.epoch, call = s.epoch, l.now()
		method, target, body := request(in, c.rng)
		req, err := http.NewRequestWithContext(l.over, method, s.url+target, strings.NewReader(body))
		if err != nil {
			return out, call, err
		}
		if body != "" {
			req.Header.Set("Content-Type", "application/json")
		}
		resp, err := conn.Do(req)
		var text []byte
		if err == nil {
			text, err = io.ReadAll(resp.Body)
			_ = resp.Body.Close()
		}
		dial, _ := errors.AsType[*net.OpError](err)
		switch {
		case err == nil:
			out, err = understand(in, resp, string(text))
			return out, call, err
		case l.over.Err() != nil:
			return out, call, l.over.Err()
		case dial == nil || dial.Op != "dial": // it may have been carried out
			return output{lost: true}, call, nil
		}
		rest.For(l.over, time.Millisecond)
	}
}

func request(in *input, rng *rand.Rand) (method, target, body string) {
	peer := "/peers/" + strconv.FormatUint(in.id, 10)
	lock := peer + "/" + names[in.semaphore]
	expires := fmt.Sprintf(`{"expires_in":"%dms"}`, time.Duration(in.ttl).Milliseconds())
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
		return "GET", "/remainder?semaphore=" + names[in.semaphore], ""
	case removeExpired:
		return "POST", "/remove_expired", ""
	}
	var held, tokens []string
	for i, l := range in.locks {
		if l.count > 0 {
			held = append(held, fmt.Sprintf("%q:%d", names[i], l.count))
		}
		if l.count > 0 && l.token != 0 {
			tokens = append(tokens, fmt.Sprintf("%q:%d", names[i], l.token))
		}
	}
	return "POST", "/restore", fmt.Sprintf(`{"expires_in":"%dms","peer_id":%d,"acquired":{%s},"tokens":{%s}}`,
		time.Duration(in.ttl).Milliseconds(), in.id, strings.Join(held, ","), strings.Join(tokens, ","))
}

func understand(in *input, a *http.Response, text string) (out output, err error) {
	switch {
	case a.StatusCode == 400 || a.StatusCode == 409:
		return output{err: text}, nil
	case a.StatusCode != 200 && (a.StatusCode != 202 || in.kind != ask):
		return out, fmt.Errorf("%+v: %s: %s", *in, a.Status, text)
	}
	switch in.kind {
	case newPeer:
		in.id, err = strconv.ParseUint(text, 10, 64)
	case removePeer:
		out.n = int64(asBit(text == `"Peer released"`))
	case ask:
		out.token, _ = strconv.ParseUint(a.Header.Get("Fencing-Token"), 10, 64)
		if (a.StatusCode == 200) != (out.token != 0) || text != strconv.FormatUint(in.id, 10) {
			err = fmt.Errorf("%+v: %s, token %d: %s", *in, a.Status, out.token, text)
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
