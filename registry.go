package quotient

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"
)

// Registry holds the limiters of one process under names, for one admin handler and one metrics collector. Two places
// that request the same name share one limiter, and so do not have twice the limit. The zero value is empty and ready;
// do not copy it after its first use. All methods are safe for concurrent use.
type Registry struct {
	// Options returns what each limiter that Registry.Limiter makes has before its own options, by its name;
	// nil is for none. Set it before the first call. It must not call the registry, whose lock is held meanwhile.
	Options func(name string) []Option

	mu        sync.RWMutex
	limiters  map[string]registered
	source    Source                 // that is followed; nil for none
	reports   uint64                 // of all sources
	usable    *hint                  // the latest of source; nil for none
	followers map[*Limiter]*follower // of source
}

// registered is a limiter with the limit that it was made with.
type registered struct {
	limiter *Limiter
	limit   Limit
}

const maxLimiters = 1000 // far more than a process has, and few enough to be a label

// Add puts l under a name of 1 to 64 of a-z, 0-9, '.', '_' and '-'. It fails, and changes nothing, for any other name,
// one that is taken, a nil limiter, and when 1,000 limiters are there.
func (r *Registry) Add(name string, l *Limiter) error {
	if l == nil {
		return fmt.Errorf("quotient: Registry.Add: limiter of %q: nil", clip(name))
	}
	r.mu.Lock()
	defer r.join(l)
	defer r.mu.Unlock()
	return r.add(name, registered{l, l.newest().limit.clone()})
}

func (r *Registry) add(name string, e registered) error {
	if !isName(name) {
		return fmt.Errorf("quotient: Registry: name: %q is not %s", clip(name), namesAre)
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

// Limiter returns the limiter of that name if it was made with an equal limit, whatever SetLimit has done since.
// Otherwise it makes one as New does, with the Options and opts, whose log has the name. A name in use with another
// limit is an error.
func (r *Registry) Limiter(name string, limit Limit, opts ...Option) (*Limiter, error) {
	l, made, err := r.limiter(name, limit, opts)
	if made && err == nil { // and without the lock: a handler of the log may ask the registry
		l.warn(limit)
		r.join(l)
	}
	return l, err
}

// limiter returns the limiter of that name, and reports whether it has made it.
func (r *Registry) limiter(name string, limit Limit, opts []Option) (l *Limiter, made bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.limiters[name]; ok {
		if !e.limit.equal(limit) {
			return nil, false, fmt.Errorf("quotient: Registry: %q was made with another limit: %s, not %s",
				name, e.limit, limit)
		}
		return e.limiter, false, nil
	}
	all := []Option{called(name)} // add checks the name
	if r.Options != nil {
		all = append(all, r.Options(name)...)
	}
	l, err = build(limit, append(all, opts...))
	if err == nil {
		err = r.add(name, registered{l, limit.clone()})
	}
	if err != nil {
		return nil, false, err
	}
	return l, true, nil
}

// Follow is Limiter.Follow for every limiter; one that comes later begins with the latest usable report. Run it in a
// goroutine of your own; one Follow at a time, here and of each limiter.
func (r *Registry) Follow(ctx context.Context, src Source) error {
	r.mu.Lock()
	if src == nil || r.source != nil {
		defer r.mu.Unlock()
		return fmt.Errorf("quotient: Registry.Follow: source: %v (followed already: %v)", src, r.source)
	}
	r.source, r.followers = src, make(map[*Limiter]*follower)
	r.mu.Unlock()
	defer r.unfollow() // also should the source panic
	for _, l := range r.All() {
		r.join(l)
	}
	err := src.Watch(ctx, r.report)
	for _, f := range r.all() {
		f.ends(ctx, err)
	}
	return unstopped(ctx, err)
}

// unfollow ends Follow.
func (r *Registry) unfollow() {
	r.mu.Lock()
	followers := r.followers
	r.source, r.usable, r.followers = nil, nil, nil
	r.mu.Unlock()
	for _, f := range followers {
		f.stop()
	}
}

// all returns the followers of the source.
func (r *Registry) all() []*follower {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Collect(maps.Values(r.followers))
}

// join has a limiter that is registered follow the source, if there is one and it does not yet. A handler of
// its log may ask the registry: it is called without the lock.
func (r *Registry) join(l *Limiter) {
	r.mu.Lock()
	_, joined := r.followers[l]
	name, registered := r.nameOf(l)
	if r.source == nil || joined || !registered {
		r.mu.Unlock()
		return
	}
	src := r.source
	f, followed := l.follower(src)
	latest := r.usable
	r.followers[l] = f
	r.mu.Unlock()
	if err := f.carry(src, name); err != nil {
		l.alarm().Warn("what replicas say of keys is not carried", "error", err)
	}
	f.begin(followed)
	if latest != nil {
		f.report(latest)
	}
}

// nameOf returns the first name of a limiter, and reports whether it is registered.
func (r *Registry) nameOf(l *Limiter) (name string, registered bool) {
	for n, e := range r.limiters {
		if e.limiter == l && (!registered || n < name) {
			name, registered = n, true
		}
	}
	return name, registered
}

// report hands a report of the source to all that follow it.
func (r *Registry) report(p Pool, err error) {
	r.mu.Lock()
	r.reports++
	h := &hint{p, err, time.Now(), r.reports}
	if r.source != nil && err == nil && p.validate() == nil { // a source may go on after its end
		r.usable = h
	}
	r.mu.Unlock()
	for _, f := range r.all() {
		f.report(h)
	}
}

// Get returns the limiter of that name.
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

// Ready is an error that names a limiter which refuses requests because it waits for its replica count, or nil.
func (r *Registry) Ready() error {
	for name, l := range r.All() {
		if l.waitsForPool() && !l.dry.Load() {
			return fmt.Errorf("quotient: limiter %q waits for its replica count", name)
		}
	}
	return nil
}

// Remove takes a limiter out of the registry, if it is there. It goes on with its present pool.
func (r *Registry) Remove(name string) {
	r.mu.Lock()
	l := r.limiters[name].limiter
	delete(r.limiters, name)
	f := r.followers[l]
	if _, still := r.nameOf(l); still {
		f = nil
	}
	if f != nil {
		delete(r.followers, l)
	}
	r.mu.Unlock()
	if f != nil {
		f.stop()
	}
}
