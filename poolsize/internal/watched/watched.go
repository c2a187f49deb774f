// Package watched runs the Watch of a source beside a test, and keeps what it reports.
package watched

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/rest"
	"github.com/quotient-go/quotient/internal/tested"
)

// TB is a test, or one run of a property.
type TB interface {
	tested.TB
	Cleanup(func())
}

// Report is one report of a source.
type Report struct {
	Pool quotient.Pool
	Err  error
	At   time.Time
}

// Log is a Watch that runs, and its reports.
type Log struct {
	// Every is how often Until looks without a report, for conditions of something else; 0 means never.
	Every time.Duration

	t      TB
	cancel context.CancelFunc
	ended  chan struct{} // closed when Watch has returned err
	err    error

	mu    sync.Mutex // guards what follows
	all   []Report
	taken int
	more  chan struct{} // gets a value after each report
}

// Start calls the Watch of a source, which ends with the test.
func Start(t TB, watch func(context.Context, func(quotient.Pool, error)) error) *Log {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &Log{t: t, cancel: cancel, ended: make(chan struct{}), more: make(chan struct{}, 1)}
	go func() {
		defer close(l.ended)
		l.err = watch(ctx, l.note)
	}()
	t.Cleanup(l.Leave)
	return l
}

func (l *Log) note(p quotient.Pool, err error) {
	l.mu.Lock()
	l.all = append(l.all, Report{p, err, time.Now()})
	l.mu.Unlock()
	rest.Wake(l.more)
}

// Leave ends the Watch, which must return its context's error.
func (l *Log) Leave() {
	l.t.Helper()
	l.cancel()
	select {
	case <-l.ended:
		tested.Want(l.t, "what Watch returned", l.err, context.Canceled)
	case <-time.After(tested.Patience):
		l.t.Errorf("Watch does not end")
	}
}

// Count returns how many reports there were.
func (l *Log) Count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all)
}

// Take returns the reports since the last Take.
func (l *Log) Take() []Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.all[l.taken:]
	l.taken = len(l.all)
	return taken
}

// Since returns the reports from number n on: pools alone, and errors alone.
func (l *Log) Since(n int) (pools, errs []Report) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.all[n:] {
		if r.Err != nil {
			errs = append(errs, r)
		} else {
			pools = append(pools, r)
		}
	}
	return pools, errs
}

// Range returns the smallest and the largest size of the pools from report n on.
func (l *Log) Range(n int) (least, most int) {
	least = 1 << 30
	pools, _ := l.Since(n)
	for _, p := range pools {
		least, most = min(least, p.Pool.Replicas), max(most, p.Pool.Replicas)
	}
	return least, most
}

// Least returns the smallest size of the pools from report n on.
func (l *Log) Least(n int) int {
	least, _ := l.Range(n)
	return least
}

// Last returns the last pool; the zero value at first.
func (l *Log) Last() quotient.Pool { return l.last(func(r Report) bool { return r.Err == nil }).Pool }

// LastErr returns the last error; nil at first.
func (l *Log) LastErr() error { return l.last(func(r Report) bool { return r.Err != nil }).Err }

func (l *Log) last(is func(Report) bool) Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range slices.Backward(l.all) {
		if is(r) {
			return r
		}
	}
	return Report{}
}

// Until waits until a condition holds.
func (l *Log) Until(what string, holds func() bool) {
	l.t.Helper()
	timeout := time.After(tested.Patience)
	var again <-chan time.Time
	if l.Every > 0 {
		again = time.Tick(l.Every)
	}
	for !holds() {
		select {
		case <-l.more:
		case <-again:
		case <-timeout:
			l.t.Fatalf("%s: not after %v; %d reports; the last pool %+v, the last error %v",
				what, tested.Patience, l.Count(), l.Last(), l.LastErr())
		}
	}
}

// Is waits until this is the last pool.
func (l *Log) Is(want quotient.Pool) {
	l.t.Helper()
	l.Until(fmt.Sprintf("%+v", want), func() bool { return l.Last() == want })
}

// Wants waits for a pool of n in which this replica, of weight 1, has an ordinal.
func (l *Log) Wants(n, ordinal int) {
	l.t.Helper()
	l.Is(quotient.Pool{Replicas: n, Ordinal: ordinal})
}

// GoesOn waits for n pools more.
func (l *Log) GoesOn(n int) {
	l.t.Helper()
	before := l.Count()
	l.Until("it goes on", func() bool { pools, _ := l.Since(before); return len(pools) >= n })
}

// Fails waits for an error more, and returns it.
func (l *Log) Fails() error {
	l.t.Helper()
	before := l.Count()
	l.Until("an error", func() bool { _, errs := l.Since(before); return len(errs) > 0 })
	return l.LastErr()
}

// Child is a process of the test's own binary that runs beside it.
type Child struct {
	*exec.Cmd
	In   io.WriteCloser
	Says *bufio.Scanner
}

// StartChild starts the test's binary with arguments, and kills it when the test ends. Its input ends with the
// test's process, whatever ends that.
func StartChild(t testing.TB, args ...string) *Child {
	t.Helper()
	exe, err := os.Executable()
	c := &Child{Cmd: exec.Command(exe, args...)}
	in, inErr := c.StdinPipe()
	out, outErr := c.StdoutPipe()
	tested.Must(t, errors.Join(err, inErr, outErr, c.Start()))
	c.In, c.Says = in, bufio.NewScanner(out)
	t.Cleanup(func() {
		c.Process.Kill() //nolint:errcheck // it may have ended, or stand still
		c.Wait()         //nolint:errcheck // it was killed
	})
	return c
}

// Print is what a child does that is one replica: it watches until its input ends, and prints each report.
func Print(s quotient.Source) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin) //nolint:errcheck // it ends with its parent
		cancel()
	}()
	//nolint:errcheck // the context's end
	s.Watch(ctx, func(p quotient.Pool, err error) { fmt.Println(p.Replicas, err) })
}
