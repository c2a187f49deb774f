package main

import (
	"fmt"
	"sync"
)

// store is what the lock protects. It refuses a writer whose token is smaller than one it has seen. This is
// fencing: the part to copy.
type store struct {
	mu     sync.Mutex
	newest uint64
	lines  []string
}

func (s *store) write(token uint64, line string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if token < s.newest {
		return fmt.Errorf("the store refuses %q: a newer holder has written", line)
	}
	s.newest = token
	s.lines = append(s.lines, line)
	return nil
}
