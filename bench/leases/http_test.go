package main

import (
	"maps"
	"slices"
	"testing"

	"github.com/anishathalye/porcupine"
)

// TestChangedAnswersAreFound plays a history over HTTP, changes one answer at a time, and requires that
// changes are refuted. A few may be legal: the order of what was done at once is not known.
func TestChangedAnswersAreFound(t *testing.T) {
	if testing.Short() {
		t.Skip("short: real processes")
	}
	changes := map[string]func(in *input, out *output) bool{
		"remainder": func(in *input, out *output) bool { out.n += 100; return in.kind == remainder },
		"is_acquired": func(in *input, out *output) bool {
			out.n = 1 - out.n
			return in.kind == acquired && out.err == ""
		},
		"an old token": func(in *input, out *output) bool {
			was := out.token
			out.token -= 1000
			return in.kind == wait && was > 0
		},
		"unknown peer": func(in *input, out *output) bool {
			was := out.err
			out.err = unknownPeer
			return in.kind == heartbeat && was == "" && in.ttl != int64(brief)
		},
		"a removed peer": func(in *input, out *output) bool {
			out.n = 1 - out.n
			return in.kind == removePeer && out.n == 0
		},
	}
	const enough, histories = 5, 20 // a history alone may have few answers of a kind
	found, tried := map[string]int{}, map[string]int{}
	lacking := func(what string) bool { return tried[what] < enough }
	kinds := slices.Collect(maps.Keys(changes))
	for seed := uint64(1); seed <= histories && slices.ContainsFunc(kinds, lacking); seed++ {
		l, err := shared.liveHistory(t.Context(), seed)
		if err != nil {
			t.Fatal(err)
		}
		for what, change := range changes {
			f, n := l.tryChanges(change, enough-tried[what])
			found[what] += f
			tried[what] += n
		}
	}
	for what := range changes {
		if n := tried[what]; n < enough || found[what] < (n+1)/2 {
			t.Errorf("%s: %d of %d changes were found", what, found[what], n)
		}
	}
}

// tryChanges changes at most so many answers of a history, one at a time, and counts those that are refuted.
func (l *live) tryChanges(change func(*input, *output) bool, most int) (found, tried int) {
	for g, history := range l.history {
		for i := range history {
			if tried < most && l.refuted(g, i, change, &tried) {
				found++
			}
		}
	}
	return found, tried
}

// refuted changes one answer of a history, if that is one to be changed, and reports whether it is refuted.
func (l *live) refuted(g, i int, change func(*input, *output) bool, tried *int) bool {
	history := slices.Clone(l.history[g])
	for k, op := range history {
		was, out := *in(op), *op.Output.(*output)
		was.token = 0 // as before the check
		history[k].Input, history[k].Output = &was, &out
	}
	op := history[i]
	out := op.Output.(*output)
	if out.lost || !change(in(op), out) {
		return false
	}
	*tried++
	result, _ := l.rules.check(history)
	return result == porcupine.Illegal
}
