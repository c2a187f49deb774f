package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/quotient-go/quotient/lease"
)

// table is what is tested: a lease.Table, or one that a test has broken.
type table interface {
	Acquire(id uint64, name string, count int64, now time.Time) (uint64, error)
	State(id uint64, name string, count int64, now time.Time) (uint64, error)
	Release(id uint64, name string, now time.Time) error
	Break(id uint64, name string, token uint64, now time.Time) (lease.Lock, error)
	Acquired(id uint64, now time.Time) (bool, error)
	Remainder(name string, now time.Time) (int64, error)
	AddPeer(id uint64, expiresIn time.Duration, now time.Time) error
	Heartbeat(id uint64, expiresIn time.Duration, now time.Time) ([]string, error)
	RemovePeer(id uint64, now time.Time) bool
	RemoveExpired(now time.Time) int
	Restore(id uint64, expiresIn time.Duration, locks []lease.Restored, now time.Time) ([]string, error)
	Configure(c lease.Config, now time.Time) error
	Advance(now time.Time)
	Next() time.Time
	Changed() []uint64
	Stats(now time.Time) []lease.SemaphoreStats
	Locks(name string, most int, now time.Time) (held, pending []lease.Lock, ok bool)
}

// newTable makes the table of a server that starts.
type newTable func(c lease.Config, tokens lease.Tokens, now time.Time) (table, error)

func realTable(c lease.Config, tokens lease.Tokens, now time.Time) (table, error) {
	return lease.NewTable(c, tokens, now)
}

// began is the start of every history.
var began = time.Unix(1_800_000_000, 0)

var names = [semaphores]string{"A", "B", "C"}

// A world plays clients against a table in fake time. Requests take a while: one is sent, is done some steps
// later, and is answered later still.
type world struct {
	rng     *rand.Rand
	rules   rules
	elected bool // tokens are those of an election
	make    newTable
	table   table
	now     int64
	tick    int64 // of the history: one a step
	epoch   int
	max     [semaphores]int64
	clients []*client
	flights []*flight // by client; nil: it sends nothing
	left    []int     // requests, by client
	ends    map[int64]bool
	spans   map[int64]*span // of instants
	history []porcupine.Operation
	audit   audit
	err     error
}

// span is from when to when an instant lasted, in steps.
type span struct{ from, to int64 }

// flight is a request on its way.
type flight struct {
	in    *input
	call  int64
	stage stage
	out   output
}

type stage int

const (
	sent    stage = iota
	blocked       // the lock is pending, and the request waits
	woken         // its lock was decided
	done
)

// newWorld returns a world with so many clients that send so many requests each.
func newWorld(seed uint64, clients, requests int, make newTable) (*world, error) {
	rng := rand.New(rand.NewPCG(seed, 15))
	w := &world{rng: rng, make: make, elected: rng.IntN(2) == 0, ends: map[int64]bool{},
		spans: map[int64]*span{0: {}}}
	for i := range w.rules.max {
		w.rules.max[i] = 1 + rng.Int64N(4)
		w.rules.level[i] = rng.Int64N(3)
	}
	w.rules.keepIdle = int64(time.Duration(20+rng.IntN(200)) * time.Millisecond)
	if rng.IntN(3) == 0 {
		w.rules.grace = int64(time.Duration(1+rng.IntN(30)) * time.Millisecond)
	}
	w.max = w.rules.max
	id := uint64(0)
	for range clients {
		c := &client{rng: rng, rules: w.rules, pending: -1}
		c.newID = func() uint64 { id++; return id }
		c.ttl = func() int64 { return rng.Int64N(int64(300 * time.Millisecond)) }
		w.clients, w.flights, w.left = append(w.clients, c), append(w.flights, nil), append(w.left, requests)
	}
	return w, w.start()
}

func (w *world) config() lease.Config {
	c := lease.Config{Semaphores: map[string]lease.Semaphore{}, MaxPeers: mostPeers,
		KeepIdle: time.Duration(w.rules.keepIdle), Grace: time.Duration(w.rules.grace)}
	for i, name := range names {
		c.Semaphores[name] = lease.Semaphore{Max: w.max[i], Level: w.rules.level[i]}
	}
	return c
}

func (w *world) at() time.Time { return began.Add(time.Duration(w.now)) }

// start starts a server without peers.
func (w *world) start() (err error) {
	tokens := lease.ClockTokens(w.at())
	if w.elected {
		tokens.Next = 1<<62 | uint64(w.epoch+1)<<24
		tokens.End = tokens.Next + 1<<24
	}
	w.table, err = w.make(w.config(), tokens, w.at())
	w.audit.restarted()
	return err
}

// play runs until all requests are answered.
func (w *world) play() error {
	for w.err == nil && w.more() {
		w.tick++
		switch n := w.rng.IntN(1000); {
		case n < 120:
			w.pass()
		case n < 126:
			w.operator()
		case n < 127:
			w.restart()
		default:
			w.step(w.rng.IntN(len(w.clients)))
		}
		if w.spans[w.now] == nil {
			w.spans[w.now] = &span{from: w.tick}
		}
		w.spans[w.now].to = w.tick
	}
	w.narrow()
	return w.err
}

// narrow leaves of each operation's interval what lies in the instant at which it was done: the order of
// instants is known. A lock that was lost may still follow the end of its server.
func (w *world) narrow() {
	for i := range w.history {
		op := &w.history[i]
		s := w.spans[in(*op).at]
		op.Call = max(op.Call, s.from)
		if !op.Output.(*output).lost {
			op.Return = min(op.Return, s.to)
		}
	}
}

func (w *world) more() bool {
	return slices.ContainsFunc(w.left, func(n int) bool { return n > 0 }) ||
		slices.ContainsFunc(w.flights, func(f *flight) bool { return f != nil })
}

// pass lets time go by: often to the very instant at which something is due, or the one before.
func (w *world) pass() {
	const near = int64(10 * time.Millisecond)
	next := int64(0)
	if at := w.table.Next(); !at.IsZero() {
		next = int64(at.Sub(began)) - w.now
	}
	d := 1 + w.rng.Int64N(int64(3*time.Millisecond))
	switch n := w.rng.IntN(10); {
	case n < 4 && next > 0 && next < near:
		d = next
	case n < 5 && next > 1 && next < near:
		d = next - 1
	case next > 0 && w.rules.grace > 0:
		d = min(d, next) // what is due about the end of the grace time is done in its order
	}
	w.now += d
	if w.rules.grace > 0 || w.rng.IntN(2) == 0 {
		w.table.Advance(w.at()) // as a timer does; else the next request does
		w.look(false)
	}
}

// step lets one client go on.
func (w *world) step(i int) {
	f := w.flights[i]
	switch {
	case f == nil:
		if w.left[i] > 0 {
			w.left[i]--
			w.flights[i] = &flight{in: w.clients[i].next(), call: w.tick}
		}
	case f.stage == sent:
		w.do(f)
	case f.stage == woken:
		w.decide(f)
	case f.stage == blocked && w.rng.IntN(20) == 0: // its time is over
		if w.decide(f); f.stage == blocked {
			f.stage = done
		}
	case f.stage == done:
		w.record(i, f.in, f.call, f.out)
		w.clients[i].answered(f.in, &f.out)
		w.flights[i] = nil
	}
}

func (w *world) record(client int, in *input, call int64, out output) {
	w.history = append(w.history,
		porcupine.Operation{ClientId: client, Input: in, Call: call, Output: &out, Return: w.tick})
}

// look audits, and wakes the requests whose lock was decided.
func (w *world) look(restored bool) {
	for _, id := range w.table.Changed() {
		for _, f := range w.flights {
			if f != nil && f.stage == blocked && f.in.id == id {
				f.stage = woken
			}
		}
	}
	if err := w.audit.look(w.table, w.at(), restored); err != nil && w.err == nil {
		w.err = fmt.Errorf("step %d: %w", w.tick, err)
	}
}

// restart takes the server away, with all that it knows, and starts another a while later. An answer may be
// lost; what was not done yet may be sent again.
func (w *world) restart() {
	w.record(len(w.clients), &input{kind: restart, epoch: w.epoch, at: w.now + int64(time.Millisecond)}, w.tick,
		output{})
	for _, f := range w.flights {
		if f == nil || f.stage == sent && w.rng.IntN(2) == 0 || f.stage == done && w.rng.IntN(2) == 0 {
			continue
		}
		if f.stage == sent {
			f.in.at, f.in.epoch = w.now, w.epoch
		}
		f.stage, f.out, f.in.blocks = done, output{lost: true}, false
	}
	w.now += int64(time.Millisecond)
	w.epoch++
	if err := w.start(); err != nil {
		w.err = err
	}
}
