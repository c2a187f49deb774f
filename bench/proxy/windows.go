package main

import (
	"bytes"
	"maps"
	"slices"
	"sync"
	"time"
)

// A ledger is an upstream's book: how many requests for each path arrived in each window of the wall clock.
//
// A proxy counts a request in the window in which it starts it, and the upstream sees it later. Both are the
// same window where nothing arrives near the end of one: latest shows how near it was.
type ledger struct {
	window time.Duration

	mu    sync.Mutex // guards what follows
	paths map[string]map[int64]int
	last  map[int64]time.Duration // since the start of the window
}

func newLedger(window time.Duration) *ledger {
	return &ledger{window: window, paths: make(map[string]map[int64]int), last: make(map[int64]time.Duration)}
}

// arrive writes down one request. The part behind a question mark is not the path's.
func (l *ledger) arrive(target []byte) {
	path, _, _ := bytes.Cut(target, []byte("?"))
	now := time.Now()
	w := l.index(now)
	l.mu.Lock()
	defer l.mu.Unlock()
	counts := l.paths[string(path)]
	if counts == nil {
		counts = make(map[int64]int)
		l.paths[string(path)] = counts
	}
	counts[w]++
	l.last[w] = max(l.last[w], now.Sub(l.start(w)))
}

// index is the number of the window at an instant, counted from the Unix epoch.
func (l *ledger) index(t time.Time) int64 { return t.UnixNano() / int64(l.window) }

func (l *ledger) start(w int64) time.Time { return time.Unix(0, w*int64(l.window)) }

// tally is what arrived in one window.
type tally struct {
	name         string
	least, most  int           // for one path
	latest       time.Duration // since the start of the window
	window       time.Duration
	want, atMost int // for each path; 0 when nothing is wanted
}

// tally adds up one window for these paths.
func (l *ledger) tally(name string, w int64, paths []string) tally {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := tally{name: name, latest: l.last[w], window: l.window}
	for i, path := range paths {
		n := l.paths[path][w]
		t.most = max(t.most, n)
		if i == 0 || n < t.least {
			t.least = n
		}
	}
	return t
}

// total is how many requests arrived for a path.
func (l *ledger) total(path string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, in := range l.paths[path] {
		n += in
	}
	return n
}

// pace is the most that a path got from the first window to the end of any, beside so many in each of them. A
// request that arrives late cannot raise it.
func (l *ledger) pace(path string, limit int, first int64) (most float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	sum := 0
	for _, w := range slices.Sorted(maps.Keys(l.paths[path])) {
		sum += l.paths[path][w]
		most = max(most, float64(sum)/float64(limit)/float64(w-first+1))
	}
	return most
}
