package config

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/quotient-go/quotient"
)

// Part is a part of the program that follows the file beside the limiters, such as a proxy. A reload applies
// the whole file or nothing of it. First every part prepares. If none fails, and the limiters can be set, the
// parts commit.
type Part interface {
	// Prepare checks a file and prepares its change, without changing what is in force. commit makes the
	// change, and must not fail. It is not called if another part has failed. The limiters of the file are in
	// the registry when commit is called, and not before.
	Prepare(f *File) (commit func(), err error)
}

// Option is a setting of New.
type Option func(*Config) error

// WithSources adds sources of the pool's size, by scheme. Those for dns, file and env are built in. An empty
// scheme or a nil function is an error of New.
func WithSources(s Sources) Option {
	return func(c *Config) error {
		for scheme, source := range s {
			if scheme == "" || source == nil {
				return fmt.Errorf("config: WithSources: scheme %q: no source", scheme)
			}
			c.sources[scheme] = source
		}
		return nil
	}
}

// WithoutSecrets has any text stand for the secrets that pool.source refers to, and looks none up. It is for a check of
// a file on a machine without them.
func WithoutSecrets() Option { return func(c *Config) error { c.noSecrets = true; return nil } }

// Logger sets the log of changes and broken files. Without it nothing is logged. A nil Logger is an error of New.
func Logger(l *slog.Logger) Option { return option("Logger", l == nil, func(c *Config) { c.log = l }) }

// With adds a part that follows the file. A nil Part is an error of New.
func With(p Part) Option {
	return option("With", p == nil, func(c *Config) { c.parts = append(c.parts, p) })
}

// Adjust calls f to change each file after it was read, and before it is checked again. It is for flags of a
// command that take precedence over the file. An error of f refuses the file. A nil f is an error of New.
func Adjust(f func(*File) error) Option {
	return option("Adjust", f == nil, func(c *Config) { c.adjust = append(c.adjust, f) })
}

func option(name string, missing bool, set func(*Config)) Option {
	return func(c *Config) error {
		if missing {
			return fmt.Errorf("config: %s: nil", name)
		}
		set(c)
		return nil
	}
}

// LimiterOptions adds options to each limiter of the file, after the options from the file.
func LimiterOptions(opts ...quotient.Option) Option {
	return func(c *Config) error { c.options = append(c.options, opts...); return nil }
}

// Config keeps the limiters of a file in a registry, and applies the changes of the file to them. New makes
// it. All methods are safe for concurrent use.
type Config struct {
	reg     *quotient.Registry
	log     *slog.Logger
	sources Sources
	parts   []Part
	adjust  []func(*File) error
	options []quotient.Option
	path    string
	every   time.Duration // between looks at the file that no event asks for
	settle  time.Duration // how long a file must be as it is to count
	notify  func() (*fsnotify.Watcher, error)

	noSecrets bool // any text stands for one

	turn     sync.Mutex // held while a file is put in force; taken before mu
	read     *File      // that is in force, as it was read
	limiters map[string]*held
	tried    [sha256.Size]byte // the text that was put in force, or refused, last
	absent   bool              // there was no file at the start, and none has come to be
	carries  bool              // the source of the file in force carries reports between replicas

	mu       sync.Mutex // guards what follows
	file     *File
	state    State
	compared map[compared]string // by State
	watching bool
	next     quotient.Source // to be followed; nil for none, or for one that is made from the file again
	stop     func()          // ends what Watch follows; nil before it does
}

// State is the state of a Config.
type State struct {
	Path     string
	Loaded   time.Time // when the file in force was applied
	Reloads  uint64    // that were applied, without the first load
	Failures uint64    // files that were refused, or could not be read
	Error    string    // of the last failure, if it was after Loaded
	ErrorAt  time.Time // when the last failure was
	Differs  []string  // settings that an operator has changed and that differ from the file, such as "api: limit"
}

// New makes the limiters of f in the registry. A name that the registry already has is an error. The limiters have
// the options of the registry, then those of the file, then LimiterOptions. New checks f again, since a program may
// make or change a File. If f has a Path, Watch follows that file. After an error the registry is unchanged.
//
// A limiter does not contain its mode and max-wait: the caller applies them, from File.
func New(f *File, reg *quotient.Registry, opts ...Option) (*Config, error) {
	if f == nil || reg == nil {
		return nil, fmt.Errorf("config: New: file %v, registry %v: want both", f, reg)
	}
	c := &Config{
		reg: reg, log: slog.New(slog.DiscardHandler), sources: builtIn(), path: f.Path,
		every: lookEvery, settle: settling, notify: fsnotify.NewWatcher, limiters: make(map[string]*held),
	}
	c.state.Path = f.Path
	for _, o := range opts {
		if err := o(c); err != nil {
			return nil, err
		}
	}
	if err := c.put(f.clone()); err != nil { // Reload uses it again
		return nil, err
	}
	c.tried, c.absent = f.sum, f.absent
	return c, nil
}

// File returns the file in force.
func (c *Config) File() *File {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.file
}

// State returns the state of c. It reads every limiter. If an operator has set a limit for a key, it also
// reads all keys of that limiter, once for each change.
func (c *Config) State() State {
	c.mu.Lock()
	s, f := c.state, c.file
	c.mu.Unlock()
	s.Differs = c.differs(f)
	return s
}

// Reload reads the file and applies it now, even if it has not changed: parts may read other files that it
// names. If the file has an error, nothing changes, and Reload returns the error. If the file that New got had
// no Path, Reload applies that file again, after the functions of Adjust.
func (c *Config) Reload() error {
	if c.path == "" {
		c.turn.Lock()
		defer c.turn.Unlock()
		return c.refuse(c.put(c.read))
	}
	text, err := settled(context.Background(), c.path, c.settle)
	c.turn.Lock()
	defer c.turn.Unlock()
	if err != nil {
		return c.refuse(err)
	}
	return c.take(text)
}

// take puts a text in force. Call with c.turn held.
func (c *Config) take(text []byte) error {
	c.tried, c.absent = sha256.Sum256(text), false
	parse := Parse
	if c.read.any {
		parse = ParseAny
	}
	f, err := parse(c.path, text)
	if err == nil {
		f.Path = c.path
		err = c.put(f)
	}
	return c.refuse(err)
}

// refuse counts and logs a file that is not put in force, if there is an error. Call with c.turn held.
func (c *Config) refuse(err error) error {
	if err == nil {
		return nil
	}
	const most = 5 // lines of the text
	text := err.Error()
	if all, ok := errors.AsType[Errors](err); ok && len(all) > most {
		text = fmt.Sprintf("%v\nand %d more", all[:most], len(all)-most)
	}
	c.mu.Lock()
	c.state.Failures++
	c.state.Error, c.state.ErrorAt = text, time.Now()
	c.mu.Unlock()
	c.log.Error("file refused: the old one stays in force", "path", c.path, "error", text)
	return err
}

// put puts a file in force, whole or not at all. Call with c.turn held, but for New.
func (c *Config) put(read *File) error {
	f, err := c.adjusted(read)
	if err != nil {
		return err
	}
	old := c.file // only put writes it
	src, carries, err := c.sourceOf(old, f)
	if err != nil {
		return err
	}
	commits, err := c.prepare(old, f)
	if err == nil {
		err = c.apply(old, f)
	}
	if err != nil {
		discard(src)
		return err
	}
	c.read, c.carries = read, carries
	c.mu.Lock()
	c.file = f
	if c.state.Error, c.state.Loaded = "", time.Now(); old != nil {
		c.state.Reloads++
	}
	c.mu.Unlock()
	for _, commit := range commits {
		commit()
	}
	for name := range c.limiters {
		if _, ok := f.Limiters[name]; !ok {
			c.remove(name)
		}
	}
	c.setPool(old, f, src)
	c.logChanges(old, f)
	return nil
}

// adjusted is a copy of a file, changed by the functions of Adjust, and valid.
func (c *Config) adjusted(read *File) (*File, error) {
	f := read.clone()
	for _, adjust := range c.adjust {
		if err := adjust(f); err != nil {
			return nil, err
		}
	}
	return f, f.checked()
}

// prepare checks what is fixed, and returns what the parts have prepared.
func (c *Config) prepare(old, f *File) (commits []func(), err error) {
	if old != nil {
		if err := c.fixed(old, f); err != nil {
			return nil, err
		}
	}
	for _, p := range c.parts {
		commit, err := p.Prepare(f)
		if err != nil {
			return nil, f.Located(err)
		}
		if commit != nil {
			commits = append(commits, commit)
		}
	}
	return commits, nil
}
