package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/files"
)

// KeepOverrides keeps what PUT /override sets in a file, so that it lasts over a restart until it ends or is removed.
// New reads the file, which may be missing, and applies it to the limiters that are in the registry then. Those
// that have gone since, and keys that are refused now, are left out with a warning. Each later change is on the disk
// before it is made and answered: if that fails, the answer is 500 and nothing has changed.
//
// The file is JSON, at most 4 MiB, for its owner alone. Its folder must be there and writable, since the file is
// replaced as a whole. One Handler has it at a time, by a lock on path.lock, until [Handler.Close] or the end of the
// process; New returns an error for another one, and for a file that it cannot read or understand.
//
// If a configuration file has an override of the same key, the later word counts: that of an operator, also after a
// restart, until it ends, when the file's counts again, or is removed. Then the key has no limit of its own until the
// process starts again, or loads the file with another change of that limiter. Such a load removes operators' overrides
// of that limiter which the file does not have, but for those with an end. Remove the others by hand too, unless
// another override is set meanwhile: else they are back after a restart.
func KeepOverrides(path string) Option {
	return func(h *handler) {
		h.kept = &kept{path: path, all: make(map[string]ownLimits)}
		h.mustBe(path != "", "KeepOverrides: path: empty")
	}
}

// Close gives back the file of [KeepOverrides], for another Handler. PUT /override answers 500 from then on. Without
// the option it does nothing.
func (h *Handler) Close() error {
	if h.api == nil || h.api.kept == nil {
		return nil
	}
	h.api.writing.Lock()
	defer h.api.writing.Unlock()
	return h.api.kept.close()
}

// mostKept is the size of the file in bytes. A line has 64 or more.
const mostKept = 4 << 20

// kept is the file of KeepOverrides, and what is in it. handler.writing guards it.
type kept struct {
	path string
	lock *os.File             // nil when it was given back
	all  map[string]ownLimits // by limiter
}

// ownLimits are those of single keys.
type ownLimits = map[string]quotient.KeyLimit

// keptOverride is a line of the file. The fields are those of PUT /override, with the end in place of the ttl.
type keptOverride struct {
	Limiter   string        `json:"limiter"`
	Key       *string       `json:"key,omitempty"`
	KeyBase64 []byte        `json:"key_base64,omitempty"`
	Limit     *limitRequest `json:"limit"`
	Until     time.Time     `json:"until,omitzero"`
	Then      *limitRequest `json:"then,omitempty"` // as an operator has set it
}

// open takes the file and applies what it has.
func (k *kept) open(h *handler) error {
	lock, err := files.Lock(k.path)
	if err != nil {
		return fmt.Errorf("admin: KeepOverrides: %s: %w", k.path, err)
	}
	k.lock = lock
	text, _, err := files.Read(context.Background(), k.path, mostKept)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = k.read(text)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("admin: KeepOverrides: %w", err), k.close())
	}
	k.prune()
	for name, own := range k.all {
		for key, o := range own {
			if err := h.restore(name, key, o); err != nil {
				h.log.Warn("quotient: an override was not restored", "limiter", name, "key", key, "error", err)
				delete(own, key)
			}
		}
	}
	return nil
}

func (k *kept) close() error {
	if k.lock == nil {
		return nil
	}
	lock := k.lock
	k.lock = nil
	return lock.Close()
}

// restore applies an override of the file.
func (h *handler) restore(name, key string, o quotient.KeyLimit) error {
	l, ok := h.reg.Get(name)
	if !ok {
		return errors.New("there is no such limiter")
	}
	ttl := time.Duration(0)
	if !o.Until.IsZero() {
		ttl = max(1, time.Until(o.Until))
	}
	if o.Then != nil {
		if err := l.Override(key, o.Then, 0); err != nil {
			return err
		}
	}
	return l.Override(key, &o.Limit, ttl)
}

// read takes in the text of a file.
func (k *kept) read(text []byte) error {
	f := readForm(text, `{"overrides":[]}`, "overrides")
	list := f.list("overrides", mostKept/64, "limiter", "key", "key_base64", "limit", "until", "then")
	for i := range list {
		one := &list[i]
		limiter, key := one.text("limiter", mostKept), readKey(one)
		o := quotient.KeyLimit{Until: optional(one, "until", one.instant)}
		if one.has("then") {
			o.Then = readLimitOrNull(one, "then")
		}
		if o.Then != nil && !one.has("until") {
			one.wrong("then", "the limit has no end", "nothing without until")
		}
		if limit := readLimitOrNull(one, "limit"); limit != nil {
			o.Limit = *limit
		} else {
			one.wrong("limit", "there is none", "a limit")
		}
		k.put(limiter, key, &o)
	}
	if bad := *f.bad; bad != nil {
		return fmt.Errorf("%s: %w", k.path, bad)
	}
	return nil
}

// instant reads a point in time.
func (f *form) instant(name string) time.Time {
	const wanted = "an instant such as 2006-01-02T15:04:05Z"
	t, err := time.Parse(time.RFC3339Nano, f.text(name, len(wanted)))
	if err != nil {
		f.wrong(name, "not an instant", wanted)
	}
	return t
}

// put notes the limit of a key; nil for none.
func (k *kept) put(limiter, key string, o *quotient.KeyLimit) {
	if o == nil {
		delete(k.all[limiter], key)
		return
	}
	if k.all[limiter] == nil {
		k.all[limiter] = make(ownLimits)
	}
	k.all[limiter][key] = *o
}

// prune drops what has ended.
func (k *kept) prune() {
	now := time.Now()
	for _, own := range k.all {
		for key, o := range own {
			switch {
			case o.Until.IsZero() || o.Until.After(now):
			case o.Then != nil:
				own[key] = quotient.KeyLimit{Limit: *o.Then}
			default:
				delete(own, key)
			}
		}
	}
}

// follow drops what a limiter has no more, such as what a reload of the program's configuration has removed.
func (k *kept) follow(limiter string, stand ownLimits) {
	for key, o := range k.all[limiter] {
		if is, has := stand[key]; !has {
			delete(k.all[limiter], key)
		} else if o.Then != nil && is.Then == nil {
			o.Then = nil
			k.all[limiter][key] = o
		}
	}
}

// errNotKept is the error of a change that could not be written.
var errNotKept = errors.New("the change was not made, since it could not be written")

// keep writes a change of an override before it is made. forget takes it back if that fails.
func (h *handler) keep(v change, name string, l *quotient.Limiter) (forget func() error, err error) {
	k := h.kept
	if k == nil || v.own == nil {
		return func() error { return nil }, nil
	}
	if err := v.try(l); err != nil {
		return nil, err
	}
	stand := l.Overrides()
	k.prune() // after it, so that what has ended here has ended there
	k.follow(name, stand)
	var next, before *quotient.KeyLimit
	old, had := k.all[name][v.own.key]
	if had {
		before = &old
	}
	if v.own.limit != nil {
		next = &quotient.KeyLimit{Limit: *v.own.limit}
		if v.own.ttl > 0 {
			next.Until = time.Now().Add(v.own.ttl)
			if next.Then = old.Then; had && old.Until.IsZero() {
				next.Then = &old.Limit
			}
		}
	}
	write := func(o *quotient.KeyLimit) error {
		k.put(name, v.own.key, o)
		return k.write()
	}
	if err := write(next); err != nil {
		k.put(name, v.own.key, before)
		return nil, err
	}
	return func() error { return write(before) }, nil
}

// write replaces the file.
func (k *kept) write() error {
	if k.lock == nil {
		return fmt.Errorf("%w: %s: the handler was closed", errNotKept, k.path)
	}
	lines := [][]byte{}
	for _, name := range slices.Sorted(maps.Keys(k.all)) {
		for _, key := range slices.Sorted(maps.Keys(k.all[name])) {
			o := k.all[name][key]
			line := keptOverride{
				Limiter: name, Key: &key,
				Limit: newLimitRequest(&o.Limit), Until: o.Until.UTC(), Then: newLimitRequest(o.Then),
			}
			if raw := inBase64(key); raw != nil {
				line.Key, line.KeyBase64 = nil, raw
			}
			text, err := json.Marshal(line)
			if err != nil {
				return err
			}
			lines = append(lines, text)
		}
	}
	text := slices.Concat([]byte("{\"overrides\": [\n"), bytes.Join(lines, []byte(",\n")), []byte("\n]}\n"))
	if len(text) > mostKept {
		return fmt.Errorf("the overrides would take more than %d bytes of %s", mostKept, k.path)
	}
	if err := files.Replace(k.path, text); err != nil {
		return fmt.Errorf("%w: %w", errNotKept, err)
	}
	return nil
}
