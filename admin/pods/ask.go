package pods

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/quotient-go/quotient/internal/shown"
)

const (
	atOnce    = 16  // pods that are asked
	mostNamed = 253 // bytes of a name: the longest that an admin.Handler has
)

// Process tells one process from all others: admin.State.Process says it. The zero value is one that did not say.
type Process struct {
	Replica string
	Started time.Time
}

// Answer is what one pod has answered.
type Answer[T any] struct {
	Pod
	Process Process
	Name    string // fit to be printed: the replica that it says it is, with the address where several say the same, or else the address
	Value   T
	Err     error // nil, or why there is no value
}

// Ask calls a function for each pod, 16 of them at once, and returns an answer for each, in their order. The function
// says which process has answered; where two pods are the same process, as two addresses of it are, the first answer
// stays. The context of a call ends after each, above 0, or with ctx, which bounds them all: pods whose turn does not
// come have its error. Ask returns when all calls have.
func Ask[T any](
	ctx context.Context, all []Pod, each time.Duration, ask func(context.Context, Pod) (Process, T, error),
) []Answer[T] {
	answers := make([]Answer[T], len(all))
	turns := make(chan struct{}, atOnce)
	var asked sync.WaitGroup
	for i, p := range all {
		a := &answers[i]
		a.Pod = p
		select {
		case turns <- struct{}{}:
		case <-ctx.Done():
		}
		if a.Err = context.Cause(ctx); a.Err != nil {
			continue
		}
		asked.Go(func() {
			defer func() { <-turns }()
			ctx, cancel := context.WithTimeoutCause(ctx, each, fmt.Errorf("no answer in %v", each))
			defer cancel()
			if a.Process, a.Value, a.Err = ask(ctx, p); a.Err != nil && ctx.Err() != nil {
				a.Err = context.Cause(ctx)
			}
		})
	}
	asked.Wait()
	return named(distinct(answers))
}

// distinct leaves out answers of processes that have answered before.
func distinct[T any](answers []Answer[T]) []Answer[T] {
	seen, kept := make(map[Process]bool), answers[:0]
	for _, a := range answers {
		known := a.Process.Replica != "" && !a.Process.Started.IsZero()
		a.Process.Started = a.Process.Started.UTC()
		if known && seen[a.Process] {
			continue
		}
		seen[a.Process] = true
		kept = append(kept, a)
	}
	return kept
}

// named gives each answer its name. Those that several pods have are told apart by their addresses.
func named[T any](answers []Answer[T]) []Answer[T] {
	times := make(map[string]int)
	for _, a := range answers {
		times[a.Process.Replica]++
	}
	for i := range answers {
		a := &answers[i]
		a.Name = shown.Line(clip(cmp.Or(a.Process.Replica, a.Address), mostNamed))
		if a.Process.Replica != "" && times[a.Process.Replica] > 1 {
			a.Name += " (" + a.Address + ")"
		}
	}
	return answers
}
