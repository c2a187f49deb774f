package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"
)

// result is one line of the file of results.
type result struct {
	ID     string
	Fate   fate
	Detail string
}

// book holds the results so far, in a file if it has one.
type book struct {
	file    *os.File
	results map[string]result
}

func openBook(name string) (*book, error) {
	b := &book{results: make(map[string]result)}
	if name == "" {
		return b, nil
	}
	text, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		var r result
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return nil, fmt.Errorf("%s: not a result: %q", name, line)
		}
		b.results[r.ID] = r
	}
	b.file, err = os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	return b, err
}

func (b *book) write(r result) error {
	b.results[r.ID] = r
	if b.file == nil {
		return nil
	}
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = b.file.Write(append(line, '\n'))
	return err
}

func (b *book) close() {
	if b.file != nil {
		b.file.Close()
	}
}

// tally hands out mutants in their order until enough have been built, and counts what became of them.
type tally struct {
	out     io.Writer
	book    *book
	want    int
	mutants []mutant

	mu      sync.Mutex
	next    int // of mutants
	running int
	counts  map[fate]int
	left    []mutant // that survived
	err     error
	wake    sync.Cond // something has come to its end
}

// built is how many mutants count.
func (t *tally) built() int { return t.counts[killed] + t.counts[timedOut] + t.counts[survived] }

// play tries mutants, several at a time.
func (t *tally) play(ctx context.Context, c config) error {
	t.counts = make(map[fate]int)
	t.wake.L = &t.mu
	var wg sync.WaitGroup
	for range c.parallel {
		wg.Go(func() {
			for m, ok := t.draw(); ok; m, ok = t.draw() {
				began := time.Now()
				r, known := t.known(m)
				var err error
				if !known {
					r.Fate, r.Detail, err = c.try(ctx, m)
				}
				t.end(m, r, known, time.Since(began), err)
			}
		})
	}
	wg.Wait()
	return t.err
}

// draw returns the next mutant. It waits when those that are being tried may be enough.
func (t *tally) draw() (mutant, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.err == nil && t.next < len(t.mutants) && t.built() < t.want {
		if t.built()+t.running < t.want {
			m := t.mutants[t.next]
			t.next++
			t.running++
			return m, true
		}
		t.wake.Wait()
	}
	return mutant{}, false
}

func (t *tally) known(m mutant) (result, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, ok := t.book.results[m.id()]
	if !ok {
		r.ID = m.id()
	}
	return r, ok
}

// end counts and prints what became of a mutant.
func (t *tally) end(m mutant, r result, known bool, took time.Duration, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.wake.Broadcast()
	t.running--
	if err == nil && !known {
		err = t.book.write(r)
	}
	if err != nil {
		t.err = errors.Join(t.err, err)
		return
	}
	if t.counts[r.Fate]++; r.Fate == unbuilt {
		return
	}
	if r.Fate == survived {
		t.left = append(t.left, m)
	}
	fmt.Fprintf(t.out, "%d/%d %s:%d %s: %s %s (%v)\n", t.built(), t.want, m.file, m.line, m.kind, r.Fate, r.Detail, took.Round(time.Second/10))
}

// sum prints the survivors and the share that was killed.
func (t *tally) sum(least float64) error {
	for _, m := range t.left {
		fmt.Fprintf(t.out, "\n%s %s:%d %s\n%s", survived, m.file, m.line, m.kind, m.diff())
	}
	if t.built() == 0 {
		return errors.New("no change was tried")
	}
	dead := t.counts[killed] + t.counts[timedOut]
	percent := 100 * float64(dead) / float64(t.built())
	fmt.Fprintf(t.out, "\n%d of %d killed (%.1f %%), %d of them by a time-out; %d do not build\n",
		dead, t.built(), percent, t.counts[timedOut], t.counts[unbuilt])
	if percent < least {
		return fmt.Errorf("%.1f %% killed, want %g", percent, least)
	}
	return nil
}
