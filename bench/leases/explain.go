package main

import (
	"fmt"
	"strings"

	"github.com/anishathalye/porcupine"
)

// explain shows where a history that is refuted goes wrong: the end of the longest order that was found, the
// state after it, and the operations that could come next.
func (r rules) explain(history []porcupine.Operation) string {
	_, info := porcupine.CheckOperationsVerbose(r.model(), history, patience)
	var longest []porcupine.Operation
	for _, order := range info.PartialLinearizationsOperations()[0] {
		if len(order) > len(longest) {
			longest = order
		}
	}
	m := r.model()
	var text strings.Builder
	st := m.Init()
	used := map[*input]bool{}
	for i, op := range longest {
		_, st = m.Step(st, op.Input, op.Output)
		used[in(op)] = true
		if i >= len(longest)-12 {
			fmt.Fprintf(&text, "  %s\n", described(op))
		}
	}
	s := *st.(*state)
	fmt.Fprintf(&text, "then max %v acquired %d %d %d last %v grace %d\n", s.max, s.acquired(0), s.acquired(1),
		s.acquired(2), s.last, s.graceEnds)
	for _, p := range s.peers[:s.n] {
		fmt.Fprintf(&text, "  peer %x until %d: %v\n", p.id, p.expires, p.locks)
	}
	for _, q := range s.queue {
		fmt.Fprintf(&text, "  queue %x\n", q.ids[:q.n])
	}
	text.WriteString("none of these can follow:\n")
	ends := int64(1 << 62)
	for _, op := range history {
		if !used[in(op)] {
			ends = min(ends, op.Return)
		}
	}
	for _, op := range history {
		if !used[in(op)] && op.Call <= ends {
			fmt.Fprintf(&text, "  %s\n", described(op))
		}
	}
	return text.String()
}

func described(op porcupine.Operation) string {
	return fmt.Sprintf("%d to %d: %v -> %+v", op.Call, op.Return, *in(op), *op.Output.(*output))
}
