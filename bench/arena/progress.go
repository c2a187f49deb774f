package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
)

// progress shows how far the arena has come: a bar on a terminal, else a line for every tenth.
type progress struct {
	mu       sync.Mutex
	w        io.Writer
	terminal bool
	last     int // steps shown, of so many as there are
}

func newProgress(w io.Writer) *progress {
	p := &progress{w: w}
	if f, ok := w.(*os.File); ok {
		info, err := f.Stat()
		p.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return p
}

// show prints that done of all runs have ended. It may be called by several goroutines, in any order.
func (p *progress) show(done, all int) {
	steps := 10
	if p.terminal {
		steps = 40
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	at := done * steps / all
	if at <= p.last {
		return
	}
	p.last = at
	if !p.terminal {
		fmt.Fprintf(p.w, "arena: %d %%\n", at*10)
		return
	}
	fmt.Fprintf(p.w, "\r[%s%s] %d/%d", strings.Repeat("#", at), strings.Repeat(" ", steps-at), done, all)
	if at == steps {
		fmt.Fprintln(p.w)
	}
}
