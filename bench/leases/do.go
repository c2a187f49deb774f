package main

import (
	"time"

	"github.com/quotient-go/quotient/lease"
)

// do lets the table do a request, now.
func (w *world) do(f *flight) {
	in := f.in
	in.at, in.epoch = w.now, w.epoch
	switch in.kind {
	case newPeer, heartbeat, restore:
		for w.ends[w.now+in.ttl] { // the model does not order two ends of one instant
			in.ttl++
		}
		w.ends[w.now+in.ttl] = true
	}
	f.stage, f.out = done, w.ask(in)
	waits := in.kind == ask && f.out.token == 0 && f.out.err == ""
	if waits && in.blocks {
		f.stage = blocked
	}
	in.blocks = false // what was answered at this instant is known
	w.look(in.kind == restore)
}

// decide ends a request that was blocked. It is two operations: the call, and its wait.
func (w *world) decide(f *flight) {
	token, err := w.table.State(f.in.id, names[f.in.semaphore], f.in.count, w.at())
	out := output{token: token, err: text(err)}
	if token == 0 && err == nil {
		f.stage = blocked
		return
	}
	f.stage = done
	for i, other := range w.flights {
		if other != f {
			continue
		}
		w.record(i, f.in, f.call, f.out)
		in := *f.in
		in.kind, in.at, in.epoch = wait, w.now, w.epoch
		w.record(i, &in, f.call, out)
		w.clients[i].answered(f.in, &out)
		w.flights[i] = nil
	}
	w.look(false)
}

// ask is one call of the table.
func (w *world) ask(in *input) (out output) {
	name, ttl, now := names[in.semaphore], time.Duration(in.ttl), w.at()
	var err error
	switch in.kind {
	case newPeer:
		err = w.table.AddPeer(in.id, ttl, now)
	case heartbeat:
		var broken []string
		broken, err = w.table.Heartbeat(in.id, ttl, now)
		out.n = mask(broken)
	case removePeer:
		out.n = int64(asBit(w.table.RemovePeer(in.id, now)))
	case ask:
		out.token, err = w.table.Acquire(in.id, name, in.count, now)
		if err != nil {
			out.token = 0
		}
	case release:
		err = w.table.Release(in.id, name, now)
	case breakLock:
		_, err = w.table.Break(in.id, name, in.token, now)
	case restore:
		var beyond []string
		beyond, err = w.table.Restore(in.id, ttl, restored(in.locks), now)
		out.n = mask(beyond)
	case configure:
		w.max[in.semaphore] = in.count
		err = w.table.Configure(w.config(), now)
	case remainder:
		out.n, err = w.table.Remainder(name, now)
	case acquired:
		var is bool
		is, err = w.table.Acquired(in.id, now)
		out.n = int64(asBit(is))
	case removeExpired:
		out.n = int64(w.table.RemoveExpired(now))
	}
	out.err = text(err)
	return out
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func restored(locks [semaphores]lockState) (all []lease.Restored) {
	for i, l := range locks {
		if l.count > 0 {
			all = append(all, lease.Restored{Semaphore: names[i], Count: l.count, Token: l.token})
		}
	}
	return all
}

func mask(found []string) (m int64) {
	for i, name := range names {
		for _, n := range found {
			if n == name {
				m |= 1 << i
			}
		}
	}
	return m
}

// operator breaks a lock, or changes a maximum.
func (w *world) operator() {
	at := w.rng.IntN(semaphores)
	in := &input{kind: configure, semaphore: at, count: 1 + w.rng.Int64N(w.rules.max[at])}
	if w.rng.IntN(2) == 0 {
		held, _, _ := w.table.Locks(names[at], 10, w.at())
		if len(held) == 0 {
			return
		}
		l := held[w.rng.IntN(len(held))]
		in = &input{kind: breakLock, id: l.Peer, semaphore: at, token: l.Token + uint64(asBit(w.rng.IntN(5) == 0))}
	}
	in.at, in.epoch = w.now, w.epoch
	w.table.Advance(w.at()) // what is due was granted by the maximum before
	w.look(false)
	out := w.ask(in)
	w.record(len(w.clients), in, w.tick, out)
	w.look(false)
}
