package quotient

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
)

// Registry holds the limiters of one process under names, for one admin handler and one metrics collector.
// The same rule asked for in two places is one limiter, and not twice the limit. The caller owns it; there is
// no global one. The zero value is empty and ready; do not copy it after its first use. All methods are safe
// for concurrent use.
type Registry struct {
	mu       sync.RWMutex
	limiters map[string]registered
}

// registered is a limiter with the limit that it was made with.
type registered struct {
	limiter *Limiter
	limit   Limit
}

const (
	maxLimiters = 1000 // far more than a process has, and few enough to be a label
)

// Add puts l under a name of 1 to 64 of a-z, 0-9, '.', '_' and '-'. It fails, and changes nothing, for any
// other name, one that is taken, a nil limiter, and when 1,000 limiters are there. The log of l does not
// change.
func (r *Registry) Add(name string, l *Limiter) error {
	if l == nil {
		return fmt.Errorf("quotient: Registry.Add: limiter of %q: nil", clip(name))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.add(name, registered{l, l.newest().limit.clone()})
}

func (r *Registry) add(name string, e registered) error {
	if err := checkName(name); err != nil {
		return err
	}
	if _, taken := r.limiters[name]; taken {
		return fmt.Errorf("quotient: Registry: name: %q is taken", name)
	}
	if len(r.limiters) == maxLimiters {
		return fmt.Errorf("quotient: Registry: %q would be one more than %d limiters", name, maxLimiters)
	}
	if r.limiters == nil {
		r.limiters = make(map[string]registered)
	}
	r.limiters[name] = e
	return nil
}

func checkName(name string) error {
	if !isName(name) {
		return fmt.Errorf("quotient: Registry: name: %q is not %s", clip(name), namesAre)
	}
	return nil
}

// namesAre says what isName does.
const namesAre = "1 to 64 of a-z, 0-9, '.', '_' and '-'"

// isName reports whether the name is one that a log or a metric can bear.
func isName(name string) bool {
	ok := len(name) >= 1 && len(name) <= longestName
	for _, c := range []byte(name) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-')
	}
	return ok
}

// Limiter returns the limiter of that name if it was made with an equal limit, whatever SetLimit has done
// since, and else makes one as New does. A name that stands for another limit is an error. The options of the
// first caller count. The log of the limiter has the name as the attribute limiter.
func (r *Registry) Limiter(name string, limit Limit, opts ...Option) (*Limiter, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.limiters[name]; ok {
		if !e.limit.equal(limit) {
			return nil, fmt.Errorf("quotient: Registry: %q was made with another limit: %s, not %s",
				name, e.limit, limit)
		}
		return e.limiter, nil
	}
	l, err := New(limit, append(slices.Clip(opts), signed(name))...) // add checks the name
	if err == nil {
		err = r.add(name, registered{l, limit.clone()})
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

// Get returns the limiter of that name, and whether there is one.
func (r *Registry) Get(name string) (*Limiter, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	e, ok := r.limiters[name]
	return e.limiter, ok
}

// All iterates over the limiters by name, as they were when it began.
func (r *Registry) All() iter.Seq2[string, *Limiter] {
	return func(yield func(string, *Limiter) bool) {
		r.mu.RLock()
		all := maps.Clone(r.limiters)
		r.mu.RUnlock()
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if !yield(name, all[name].limiter) {
				return
			}
		}
	}
}

// Remove takes a limiter out; a caller that has it goes on using it. A name that is not there is no error.
func (r *Registry) Remove(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.limiters, name)
}
