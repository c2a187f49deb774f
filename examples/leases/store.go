package main

import (
	"errors"
	"sync"
)

// store is what the lock protects. It refuses a writer whose token is smaller than one it has seen. This is
// fencing: the part to copy.
type store struct {
	mu     sync.Mutex
	newest uint64
	lines  []string
}

var errLate = errors.New("a newer holder has written")

func (s *store) write(token uint64, line string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if token < s.newest {
		return errLate
	}
	s.newest = token
	s.lines = append(s.lines, line)
	return nil
}
