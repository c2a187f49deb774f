package main

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// patience is how long one history may take to check. The result of a longer one is unknown.
const patience = time.Minute

// check checks one history against the model. A picture of one that is refuted stays in a file.
func (r rules) check(history []porcupine.Operation) (porcupine.CheckResult, error) {
	foresee(history)
	return linearizable(r.model(), history)
}

// pictures is the folder of the pages; that of temporary files when empty.
var pictures string

// linearizable reports whether an order of the operations explains their answers.
func linearizable(m porcupine.Model, history []porcupine.Operation) (porcupine.CheckResult, error) {
	result := porcupine.CheckOperationsTimeout(m, history, patience)
	if result == porcupine.Ok {
		return result, nil
	}
	_, info := porcupine.CheckOperationsVerbose(m, history, patience)
	f, err := os.CreateTemp(pictures, "quotient-leases-*.html")
	if err == nil {
		defer f.Close()
		err = porcupine.Visualize(m, info, f)
	}
	if err != nil {
		return result, err
	}
	const text = "%v: no order of %d operations explains their answers: %s"
	return result, fmt.Errorf(text, result, len(history), f.Name())
}

// place is where a peer has at most one lock.
type place struct {
	id        uint64
	semaphore int
}

func in(op porcupine.Operation) *input { return op.Input.(*input) }

// foresee gives each call the token that its lock is seen to have later, so that the model needs no guess.
func foresee(history []porcupine.Operation) {
	slices.SortFunc(history, func(a, b porcupine.Operation) int { // a call, then its wait
		return cmp.Or(cmp.Compare(a.Return, b.Return), cmp.Compare(in(a).kind, in(b).kind))
	})
	open := map[place][]porcupine.Operation{} // calls whose lock was pending when they were answered
	for _, op := range history {
		out, at := op.Output.(*output), place{in(op).id, in(op).semaphore}
		switch kind := in(op).kind; {
		case kind == ask && out.token == 0 && out.err == "" && !out.lost:
			open[at] = append(open[at], op)
		case (kind == ask || kind == wait) && out.token != 0:
			in(op).token = out.token
			for _, before := range slices.Backward(open[at]) {
				if before.Call != op.Call && disturbed(history, at.id, before.Call, op.Return) {
					break
				}
				in(before).token = out.token
			}
			delete(open, at)
		case kind == removePeer || kind == restore || out.lost || out.err == unknownPeer:
			for i := range semaphores {
				delete(open, place{at.id, i})
			}
		case kind == release && out.err == "":
			delete(open, at)
		}
	}
}

// disturbed reports whether something may have taken a peer's lock away from outside between two instants:
// the token is then not that of its next lock.
func disturbed(history []porcupine.Operation, id uint64, from, to int64) bool {
	return slices.ContainsFunc(history, func(op porcupine.Operation) bool {
		mine := in(op).kind == restart || in(op).kind == expire && in(op).id == id
		return mine && op.Return >= from && op.Call <= to
	})
}

// holder is an operation of one semaphore as those see it that lock it: a lock is taken, or is given back.
type holder struct {
	takes bool
	token uint64
}

// holders is the model of a semaphore that most may hold at once: no lock begins beyond that, and each has a
// greater token than the one before it.
func holders(most int) porcupine.Model {
	type state struct {
		held int
		last uint64
	}
	return porcupine.Model{
		Init: func() any { return state{} },
		Step: func(st, in, _ any) (bool, any) {
			s, op := st.(state), in.(holder)
			if !op.takes {
				return true, state{s.held - 1, s.last}
			}
			return s.held < most && op.token > s.last, state{s.held + 1, op.token}
		},
		DescribeOperation: func(in, _ any) string { return fmt.Sprintf("%+v", in) },
	}
}

// operations is a lock as its holder believed in it: it was granted between the call of Lock and its return, and was
// given back between the end of that belief and the answer to Unlock. Without that answer nobody knows when.
func (h holding) operations(client int) []porcupine.Operation {
	end := h.unlocked
	if end == 0 {
		end = math.MaxInt64
	}
	return []porcupine.Operation{
		{ClientId: client, Input: holder{true, h.token}, Call: int64(h.called), Return: int64(h.from)},
		{ClientId: client, Input: holder{}, Call: int64(h.to), Return: int64(end)},
	}
}
