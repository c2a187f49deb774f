package config

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/carry"
	"github.com/quotient-go/quotient/internal/rest"
	"github.com/quotient-go/quotient/poolsize/dns"
	"github.com/quotient-go/quotient/poolsize/file"
)

// Sources makes the sources of the pool's size, by scheme. The function of the scheme "redis" gets the URL of
// redis:URL, with percent-encoded secrets in place of the references to them. A source that owns a client must close
// it when its Watch ends. If a source is made and not needed, or its method Validate returns an error, its Watch is
// called once, with a context that has ended.
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
					return nil, fmt.Errorf("%s behind ?: it is neither uncapped nor hosts", clip(redacted(set)))
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

// size is what the pool is without a source. Without a count it is that of a limiter with which none is configured.
func (p Pool) size() quotient.Pool {
	if p.Replicas == 0 {
		return quotient.Pool{Replicas: 1}
	}
	return quotient.Pool{Replicas: p.Replicas, Ordinal: p.Ordinal, Fixed: p.Ordinal > 0, Weight: p.Weight}
}

// sourceOf makes the source of a file, if it is another than before; nil otherwise. It reports whether the
// source carries reports between replicas.
func (c *Config) sourceOf(old, f *File) (src quotient.Source, carries bool, err error) {
	if f.Pool.Source == "" {
		return nil, false, nil
	}
	text, err := c.expanded(context.Background(), f)
	if err != nil {
		return nil, false, err
	}
	f.opened = sha256.Sum256([]byte(text))
	c.mu.Lock()
	same := old != nil && old.opened == f.opened && old.Pool.Ordinal == f.Pool.Ordinal
	c.mu.Unlock()
	if carries = c.carries; !same {
		if src, carries, err = c.source(f, text); err != nil {
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

// source makes the source of a file from its expanded text, and reports whether it carries reports between replicas.
func (c *Config) source(f *File, text string) (src quotient.Source, carries bool, err error) {
	scheme, arg, _ := strings.Cut(text, ":")
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
		e, ok := errors.AsType[Error](err)
		if !ok {
			e.Text = err.Error()
		}
		if e.Field = "pool.source"; userinfo(arg) != "" { // a password may be in it
			_, shown, _ := strings.Cut(f.Pool.Redacted(), ":")
			e.Text = strings.ReplaceAll(e.Text, userinfo(arg), userinfo(shown))
		}
		return nil, false, f.Located(e)
	}
	_, carries = src.(carry.Carrier)
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

// setPool puts the section [pool] in force, which cannot fail. Src is the source if it is a new one.
func (c *Config) setPool(old, f *File, src quotient.Source) {
	c.mu.Lock()
	unused := quotient.Source(nil)
	if old == nil {
		c.next = src
	} else if src != nil || old.Pool.Source != "" && f.Pool.Source == "" {
		unused, c.next = c.next, src
		if c.stop != nil {
			c.stop()
		}
	}
	followed := old == nil || c.watching && old.Pool.Source != "" // then Watch sets the size when it has ended that
	c.mu.Unlock()
	discard(unused)
	if src != nil && old != nil && old.Pool.Source == f.Pool.Source { // logChanges sees no secret change
		c.log.Info("the source of the pool's size is opened again", "source", f.Pool.Redacted())
	}
	if f.Pool.Source == "" && !followed &&
		(old.Pool.size() != f.Pool.size() || old.Pool.Replicas != f.Pool.Replicas) { // a count of one is one
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
		until, cancel := context.WithCancel(ctx)
		c.mu.Lock()
		src, f := c.next, c.file
		c.next, c.stop = nil, cancel
		c.mu.Unlock()
		var err error
		if src == nil && f.Pool.Source != "" { // it has ended, and is made again
			src, err = c.again(until, f)
		}
		if src != nil {
			err = c.reg.Follow(until, src)
		} else if err == nil {
			if had {
				c.backToFile()
			}
			<-until.Done()
		}
		had = src != nil || err != nil
		if until.Err() == nil {
			c.log.Error("the source of the pool's size has ended, or cannot be made", "error", err)
			rest.For(until, sourcePause)
		}
		cancel()
	}
}

// again makes the source of a file in force from what its secrets are now.
func (c *Config) again(ctx context.Context, f *File) (src quotient.Source, err error) {
	text, err := c.expanded(ctx, f)
	if err == nil {
		src, _, err = c.source(f, text)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	f.opened = sha256.Sum256([]byte(text))
	return src, err
}

// backToFile sets the size that the file says, if it names no source now.
func (c *Config) backToFile() {
	c.turn.Lock()
	defer c.turn.Unlock()
	if c.file.Pool.Source == "" {
		c.resize(c.file.Pool.size())
	}
}
