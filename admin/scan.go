package admin

import (
	"context"
	"maps"
	"time"

	"github.com/quotient-go/quotient"
)

const (
	// scanFresh is how long the answer of a scan also serves others who ask the same.
	scanFresh = time.Second
	// mostScans is how many answers are kept. Some operators look at some limiters, all with the page's
	// number of keys.
	mostScans = 16
)

// scans are the looks at all keys of a limiter that GET /keys takes: one at a time, so that no number of
// clients slows the limiters down.
type scans struct {
	place chan struct{} // full while one is under way; what follows belongs to the goroutine that has put something in
	done  map[scan]found
}

// scan is what was asked for.
type scan struct {
	limiter uint64 // its number
	top     int
}

// found is what a scan came to.
type found struct {
	at   time.Time
	keys []quotient.KeyState
}

func newScans() scans { return scans{make(chan struct{}, 1), make(map[scan]found)} }

// top is l.Top(n), not older than scanFresh. It fails only with the context, while it waits for another scan.
// The caller must not change the list.
func (s *scans) top(ctx context.Context, number uint64, l *quotient.Limiter, n int) ([]quotient.KeyState, error) {
	select {
	case s.place <- struct{}{}:
		defer func() { <-s.place }()
	case <-ctx.Done():
	}
	if err := ctx.Err(); err != nil { // a client that has gone needs no scan, also when it was its turn
		return nil, err
	}
	what := scan{number, n}
	if f, ok := s.done[what]; ok && time.Since(f.at) < scanFresh {
		return f.keys, nil
	}
	keys := l.Top(n)
	maps.DeleteFunc(s.done, func(_ scan, f found) bool { return time.Since(f.at) >= scanFresh })
	if len(s.done) >= mostScans {
		clear(s.done)
	}
	s.done[what] = found{time.Now(), keys}
	return keys, nil
}
