package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"go.uber.org/goleak"

	"github.com/quotient-go/quotient/bench/rig"
	"github.com/quotient-go/quotient/internal/needed"
)

// shared is a bench that takes seconds. Its program is built once.
var shared = &bench{
	seed: 1, clients: 4, requests: 40, histories: 2, elected: 1, kills: 2, failovers: 1, grace: time.Second,
	stderr: os.Stderr,
}

func TestMain(m *testing.M) {
	var err error
	if pictures, err = os.MkdirTemp("", "quotient-leases-"); err != nil {
		panic(err)
	}
	code := m.Run()
	err = goleak.Find()
	for i := 0; i < 10 && err != nil; i++ { // a client tries for a second to give back what a dead server granted
		err = goleak.Find()
	}
	if code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	_ = os.RemoveAll(pictures)
	_ = os.RemoveAll(shared.dir)
	os.Exit(code)
}

// TestPartsPlay plays each part small. What needs a longer run is left out.
func TestPartsPlay(t *testing.T) {
	if testing.Short() {
		t.Skip("short: real processes")
	}
	for _, c := range []struct {
		name, needs string
		run         func(context.Context) (rig.Section, error)
		rare        []string // verdicts that a run so short may miss
	}{
		{"histories", "", shared.singleServer, []string{"rarest"}},
		{"elected", "etcd", shared.electedServers, []string{"rarest"}},
		{"kills", "", shared.manyKills, []string{"restored and held on"}},
		{"failovers", "etcd", shared.manyFailovers, []string{"restored and held on", "longest"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(c.needs); c.needs != "" && err != nil {
				needed.Without(t, c.needs, err.Error())
			}
			s, err := c.run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range s.Verdicts {
				rare := func(name string) bool { return strings.Contains(v.Name, name) }
				if !v.OK && !slices.ContainsFunc(c.rare, rare) {
					t.Errorf("%+v", v)
				}
			}
			if t.Failed() {
				t.Log(s)
			}
		})
	}
}

// TestHoldersAreJudged holds that a lock which too many hold, and a token that does not rise, are refused.
func TestHoldersAreJudged(t *testing.T) {
	type times [5]int // the token, then called, from, to, and unlocked or 0
	for what, c := range map[string]struct {
		most int
		all  []times
		ok   bool
	}{
		"none":            {1, nil, true},
		"one by one":      {1, []times{{1, 0, 1, 5, 6}, {2, 2, 7, 9, 0}}, true},
		"handed over":     {1, []times{{1, 0, 1, 5, 8}, {2, 2, 6, 9, 0}}, true},
		"both at once":    {1, []times{{1, 0, 1, 6, 8}, {2, 2, 5, 9, 0}}, false},
		"two may":         {2, []times{{1, 0, 1, 6, 8}, {2, 2, 5, 9, 0}}, true},
		"noticed late":    {2, []times{{1, 0, 7, 9, 0}, {2, 1, 3, 5, 0}}, true},
		"tokens of two":   {2, []times{{2, 0, 1, 9, 0}, {1, 2, 3, 5, 0}}, false},
		"a token falls":   {1, []times{{2, 0, 1, 3, 4}, {1, 5, 6, 9, 0}}, false},
		"the same token":  {1, []times{{2, 0, 1, 3, 4}, {2, 5, 6, 9, 0}}, false},
		"lost, and taken": {1, []times{{1, 0, 1, 6, 0}, {2, 2, 7, 9, 0}}, true},
		"lost too late":   {1, []times{{1, 0, 1, 8, 0}, {2, 2, 7, 9, 0}}, false},
	} {
		var history []porcupine.Operation
		for i, h := range c.all {
			at := func(k int) time.Duration { return time.Duration(h[k]) }
			h := holding{token: uint64(h[0]), called: at(1), from: at(2), to: at(3), unlocked: at(4)}
			history = append(history, h.operations(i)...)
		}
		result, err := linearizable(holders(c.most), history)
		if (result == porcupine.Ok) != c.ok || (err == nil) != c.ok {
			t.Errorf("%s: %v %v", what, result, err)
		}
	}
}

// TestChangedAnswersAreFound plays histories, changes one answer at a time, and requires that changes are
// refuted. A few may be legal: the order of what was done at once is not known.
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
			return in.kind == heartbeat && was == "" && in.ttl != brief
		},
		"a removed peer": func(in *input, out *output) bool {
			out.n = 1 - out.n
			return in.kind == removePeer && out.n == 0
		},
	}
	const enough, histories = 5, 20 // a history alone may have few answers of a kind
	found, tried := map[string]int{}, map[string]int{}
	for seed := uint64(1); seed <= histories && len(changes) > 0; seed++ {
		l, err := shared.history(t.Context(), seed, "")
		if err != nil {
			t.Fatal(err)
		}
		for what, change := range changes {
			for i := 0; i < len(l.history) && tried[what] < enough; i++ {
				is, refuted := l.refuted(i, change)
				tried[what] += asBit(is)
				found[what] += asBit(refuted)
			}
			if tried[what] == enough {
				delete(changes, what)
				if found[what] < (enough+1)/2 {
					t.Errorf("%s: %d of %d changes were found", what, found[what], enough)
				}
			}
		}
	}
	for what := range changes {
		t.Errorf("%s: %d histories have only %d such answers", what, histories, tried[what])
	}
}

// refuted changes one answer of a history, if it is one to be changed, and reports whether it is refuted.
func (l *live) refuted(i int, change func(*input, *output) bool) (is, refuted bool) {
	history := slices.Clone(l.history)
	for k, op := range history {
		was, out := *in(op), *op.Output.(*output)
		was.token = 0 // as before the check
		history[k].Input, history[k].Output = &was, &out
	}
	out := history[i].Output.(*output)
	if out.lost || !change(in(history[i]), out) {
		return false, false
	}
	result, _ := l.rules.check(history)
	return true, result == porcupine.Illegal
}

func TestBadFlagsAreNamed(t *testing.T) {
	for args, want := range map[string]string{
		"-clients 1": "between 2 and 8", "-grace 999ms": "between 1s and 1m0s", "-only load": `"load"`,
	} {
		var out, errs bytes.Buffer
		code := command(strings.Fields(args), &out, &errs)
		if code != 2 || !strings.Contains(errs.String(), want) {
			t.Errorf("%s: %d %q", args, code, errs.String())
		}
	}
}
