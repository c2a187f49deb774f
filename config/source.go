package config

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/poolsize/dns"
	"github.com/quotient-go/quotient/poolsize/file"
)

// Sources makes the sources of the pool's size, by scheme. The function of the scheme "redis" gets the URL of
// redis:URL. A source that owns a client must close it when its Watch ends. If a source is made and not needed,
// or its method Validate returns an error, its Watch is called once, with a context that has ended.
type Sources map[string]func(arg string) (quotient.Source, error)

// builtIn are the sources that need nothing but the standard library.
func builtIn() Sources {
	return Sources{
		"dns": func(arg string) (quotient.Source, error) {
			name, query, _ := strings.Cut(arg, "?")
			src := &dns.Source{Name: name, SRV: strings.HasPrefix(name, "_")}
			for set := range strings.SplitSeq(query, "&") {
				switch set {
				case "":
				case "uncapped":
					src.Uncapped = true
				case "hosts":
					src.Hosts = true
				default:
					return nil, fmt.Errorf("%s behind ?: it is neither uncapped nor hosts", clip(set))
				}
			}
			return src, nil
		},
		"file": func(arg string) (quotient.Source, error) { return &file.Source{Path: arg}, nil },
		"env": func(arg string) (quotient.Source, error) {
			if arg != "" {
				return nil, fmt.Errorf("%s behind env: it takes no argument", clip(arg))
			}
			return quotient.Env(), nil
		},
	}
}

// size is what the pool is without a source.
func (p Pool) size() quotient.Pool {
	return quotient.Pool{
		Replicas: max(p.Replicas, 1), Ordinal: p.Ordinal, Fixed: p.Ordinal > 0, Weight: p.Weight,
	}
}

// sameSource reports whether two sections name the same source.
func (p Pool) sameSource(q Pool) bool { return p.Source == q.Source && p.Ordinal == q.Ordinal }

// sourceOf makes the source of a file, if it is another than before; nil otherwise. It reports whether the
// source carries reports between replicas.
func (c *Config) sourceOf(old, f *File) (src quotient.Source, carries bool, err error) {
	if f.Pool.Source == "" {
		return nil, false, nil
	}
	if carries = c.carries; old == nil || !old.Pool.sameSource(f.Pool) {
		if src, carries, err = c.source(f); err != nil {
			return nil, false, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.Limiters)) {
		if f.Limiters[name].Demand != nil && !carries {
			discard(src)
			r := f.report()
			r.hinted(inner(inner("limiters", name), "demand"), "such as gossip",
				"the pool.source does not carry what replicas say")
			return nil, false, r.err()
		}
	}
	return src, carries, nil
}

// source makes the source of a file, and reports whether it carries reports between replicas.
func (c *Config) source(f *File) (src quotient.Source, carries bool, err error) {
	scheme, arg, _ := strings.Cut(f.Pool.Source, ":")
	open, ok := c.sources[scheme]
	if !ok {
		known := slices.Sorted(maps.Keys(c.sources))
		r := f.report()
		r.hinted("pool.source", didYouMean(scheme, known), "%s is not one of %s", clip(scheme), joined(known))
		return nil, false, r.err()
	}
	src, err = open(arg)
	if err == nil && src == nil {
		err = errors.New("there is no such source")
	}
	if v, ok := src.(interface{ Validate() error }); ok && err == nil {
		if err = v.Validate(); err != nil {
			discard(src)
		}
	}
	if err != nil {
		return nil, false, f.fault("pool.source", "%v", err)
	}
	_, carries = src.(quotient.Carrier)
	if f.Pool.Ordinal > 0 {
		src = quotient.FixedOrdinal(f.Pool.Ordinal, src)
	}
	return src, carries, nil
}

// discard closes a source that is not needed.
func discard(src quotient.Source) {
	if src == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	src.Watch(ctx, func(quotient.Pool, error) {}) //nolint:errcheck // it is the context's
}

// follow is the source that is followed, or to be followed next.
type follow struct {
	next    quotient.Source // to be followed; nil for none
	fresh   bool            // next is to take the place of what is followed
	changed chan struct{}   // has an element when fresh is new
}

// setPool puts the section [pool] in force, which cannot fail. Src is the source if it is a new one.
func (c *Config) setPool(old, f *File, src quotient.Source) {
	if old == nil {
		c.mu.Lock()
		c.pool.next, c.pool.fresh = src, src != nil
		c.mu.Unlock()
		return
	}
	c.mu.Lock()
	unused := quotient.Source(nil)
	if !old.Pool.sameSource(f.Pool) && (old.Pool.Source != "" || src != nil) {
		if c.pool.fresh {
			unused = c.pool.next
		}
		c.pool.next, c.pool.fresh = src, true
		select {
		case c.pool.changed <- struct{}{}:
		default:
		}
	}
	followed := c.watching && old.Pool.Source != "" // then Watch sets the size when it has ended that
	c.mu.Unlock()
	discard(unused)
	if f.Pool.Source == "" && !followed && old.Pool.size() != f.Pool.size() {
		c.resize(f.Pool.size())
	}
}

func (c *Config) resize(p quotient.Pool) {
	for name, l := range c.reg.All() {
		if err := l.SetPool(p, 0); err != nil {
			c.log.Error("pool not set", "limiter", name, "error", err)
		}
	}
}

// sourcePause is how long Watch waits before it follows a source again that has ended by itself.
const sourcePause = 10 * time.Second

// followSource follows the source of the file until the context ends, and each that comes in its place.
func (c *Config) followSource(ctx context.Context) {
	for had := false; ctx.Err() == nil; {
		src, err := c.nextSource()
		if err != nil {
			c.log.Error("the source of the pool's size cannot be made", "error", err)
		}
		if had && src == nil && err == nil {
			c.backToFile()
		}
		had = src != nil || err != nil
		c.followOne(ctx, src, err != nil)
	}
}

// nextSource returns what is to be followed now; nil for none. A source that has ended is made again.
func (c *Config) nextSource() (quotient.Source, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.pool.changed:
	default:
	}
	src, f := c.pool.next, c.file
	c.pool.next, c.pool.fresh = nil, false
	if src == nil && f.Pool.Source != "" {
		src, _, err := c.source(f)
		return src, err
	}
	return src, nil
}

// backToFile sets the size that the file says, if it names no source now.
func (c *Config) backToFile() {
	c.turn.Lock()
	defer c.turn.Unlock()
	if c.file.Pool.Source == "" {
		c.resize(c.file.Pool.size())
	}
}

// followOne follows a source until the context ends or another takes its place. Where a source has ended by
// itself, or could not be made, it returns after a pause.
func (c *Config) followOne(ctx context.Context, src quotient.Source, failed bool) {
	if src != nil {
		inner, cancel := context.WithCancel(ctx)
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- c.reg.Follow(inner, src) }()
		select {
		case err := <-ended:
			if ctx.Err() == nil {
				c.log.Error("the source of the pool's size has ended", "error", err)
			}
			failed = true
		case <-ctx.Done():
			<-ended
			return
		case <-c.pool.changed:
			cancel()
			<-ended
			return
		}
	}
	var pause <-chan time.Time
	if failed {
		pause = time.After(sourcePause)
	}
	select {
	case <-ctx.Done():
	case <-c.pool.changed:
	case <-pause:
	}
}
