package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// patience is how long one history may take to check. The result of a longer one is unknown.
const patience = time.Minute

// check checks one history against the model, and that tokens only rise.
func (r rules) check(history []porcupine.Operation) (porcupine.CheckResult, error) {
	if err := foresee(history); err != nil {
		return porcupine.Illegal, err
	}
	result := porcupine.CheckOperationsTimeout(r.model(), history, patience)
	if result == porcupine.Illegal {
		return result, fmt.Errorf("no order of %d operations explains their answers:\n%s", len(history),
			r.explain(history))
	}
	return result, nil
}

// place is where a peer has at most one lock.
type place struct {
	id        uint64
	semaphore int
}

// seenLock is a lock whose token was seen.
type seenLock struct {
	place
	token uint64
}

// grant is a lock as its client saw it: asked for first at call, and held at ret.
type grant struct {
	token     uint64
	call, ret int64
}

// foresight is what clients see later.
type foresight struct {
	open      map[place][]porcupine.Operation // calls whose lock was pending when they were answered
	since     map[place]int64                 // the first call for a lock that may be there
	seen      map[seenLock]bool
	grants    []grant
	disturbed func(at place, from, to int64) bool
}

// foresee gives each call the token that its lock is seen to have later, so that the model needs no guess.
// It fails if a lock that was asked for after another was held does not have the greater token.
func foresee(history []porcupine.Operation) error {
	slices.SortFunc(history, func(a, b porcupine.Operation) int {
		if c := cmp.Compare(a.Return, b.Return); c != 0 {
			return c
		}
		return cmp.Compare(in(a).kind, in(b).kind) // a call, then its wait
	})
	f := &foresight{open: map[place][]porcupine.Operation{}, since: map[place]int64{}, seen: map[seenLock]bool{},
		disturbed: disturbances(history)}
	for _, op := range history {
		at := place{in(op).id, in(op).semaphore}
		for i, l := range in(op).locks { // it may get a new token
			if p := (place{at.id, i}); l.count > 0 && f.since[p] == 0 {
				f.since[p] = op.Call
			}
		}
		if in(op).kind == ask && f.since[at] == 0 {
			f.since[at] = op.Call
		}
		f.take(op, at)
	}
	return rising(history, f.grants)
}

// take takes one operation after the other, by their answers.
func (f *foresight) take(op porcupine.Operation, at place) {
	out := op.Output.(*output)
	switch kind := in(op).kind; {
	case kind == ask && out.token == 0 && out.err == "" && !out.lost:
		f.open[at] = append(f.open[at], op)
	case (kind == ask || kind == wait) && out.token != 0:
		f.granted(op, at, out.token)
	case kind == removePeer || kind == restore || out.lost || out.err == unknownPeer:
		for i := range semaphores {
			delete(f.open, place{at.id, i})
		}
	case kind == release && out.err == "":
		delete(f.open, at)
		delete(f.since, at)
	}
}

// granted gives the calls before their token, back to where something may have taken the lock away.
func (f *foresight) granted(op porcupine.Operation, at place, token uint64) {
	in(op).token = token
	for _, before := range slices.Backward(f.open[at]) {
		if before.Call != op.Call && f.disturbed(at, before.Call, op.Return) {
			break
		}
		in(before).token = token
	}
	delete(f.open, at)
	if l := (seenLock{at, token}); !f.seen[l] {
		f.grants = append(f.grants, grant{token, f.since[at], op.Return})
		f.seen[l] = true
	}
}

func in(op porcupine.Operation) *input { return op.Input.(*input) }

// disturbances reports whether something may have taken a lock away from outside between two instants: its
// token is then not that of the next lock.
func disturbances(history []porcupine.Operation) func(at place, from, to int64) bool {
	var all []porcupine.Operation
	for _, op := range history {
		switch in(op).kind {
		case breakLock, configure, restart, expire:
			all = append(all, op)
		}
	}
	return func(at place, from, to int64) bool {
		return slices.ContainsFunc(all, func(op porcupine.Operation) bool {
			mine := in(op).kind == restart
			switch in(op).kind {
			case breakLock, configure:
				mine = in(op).semaphore == at.semaphore
			case expire:
				mine = in(op).id == at.id
			}
			return mine && op.Return >= from && op.Call <= to
		})
	}
}

// rising reports the first lock that was asked for after another was held, and has no greater token.
func rising(history []porcupine.Operation, grants []grant) error {
	for _, op := range history { // a token that is restored is held again, and is not new
		if in(op).kind != restore {
			continue
		}
		for _, l := range in(op).locks {
			if l.token != 0 {
				grants = append(grants, grant{l.token, math.MaxInt64, op.Return})
			}
		}
	}
	byCall := slices.Clone(grants)
	slices.SortFunc(byCall, func(a, b grant) int { return cmp.Compare(a.call, b.call) })
	slices.SortFunc(grants, func(a, b grant) int { return cmp.Compare(a.ret, b.ret) })
	newest, next := uint64(0), 0
	for _, g := range byCall {
		for ; next < len(grants) && grants[next].ret < g.call; next++ {
			newest = max(newest, grants[next].token)
		}
		if g.call != math.MaxInt64 && g.token <= newest {
			return fmt.Errorf("token %d of a lock that was asked for after token %d was held", g.token, newest)
		}
	}
	return nil
}
