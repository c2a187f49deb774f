package main

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// headerStamp is the field of a request that names its sender, and when it was sent.
const headerStamp = "Chaos-Stamp"

// A stamp is what a replica writes on a request. Instants are nanoseconds of its upstream.Clock.
type stamp struct {
	Replica  int
	Sent     int64 // it leaves
	Admitted int64 // the limiter returned
	Could    int64 // there was room, as the limiter says
}

func (s stamp) String() string {
	return fmt.Sprint(s.Replica, " ", s.Sent, " ", s.Admitted, " ", s.Could)
}

func parseStamp(text string) (s stamp, err error) {
	_, err = fmt.Sscan(text, &s.Replica, &s.Sent, &s.Admitted, &s.Could)
	return s, err
}

// An entry is one line of the log. Instants are since the start of the run.
type entry struct {
	Replica               int32
	Sent, Admitted, Could time.Duration
}

// A recorder is the upstream: it takes everything and writes it down, up to a number of lines for each path.
type recorder struct {
	start int64 // by upstream.Clock
	most  int

	mu   sync.Mutex
	logs [sources][]entry
	err  error // the first request that could not be written down
}

// ServeHTTP writes the request down.
func (u *recorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s, err := parseStamp(r.Header.Get(headerStamp))
	path := source(-1)
	for i, name := range sourceNames {
		if strings.TrimPrefix(r.URL.Path, "/") == name {
			path = source(i)
		}
	}
	if path < 0 {
		err = errors.Join(err, fmt.Errorf("there is no path %q", r.URL.Path))
	}
	if err = u.note(path, s, err); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// note writes a line, unless something is wrong, which is kept.
func (u *recorder) note(path source, s stamp, err error) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if err == nil && len(u.logs[path]) == u.most {
		err = fmt.Errorf("more than %d requests for %s", u.most, path)
	}
	if err != nil {
		if u.err == nil {
			u.err = err
		}
		return err
	}
	since := func(clock int64) time.Duration { return time.Duration(clock - u.start) }
	u.logs[path] = append(u.logs[path], entry{int32(s.Replica), since(s.Sent), since(s.Admitted), since(s.Could)})
	return nil
}
