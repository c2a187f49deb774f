package config

import (
	"errors"
	"time"

	"github.com/fsnotify/fsnotify"
)

// WithoutEvents has c look at its file so often, since the system sends no events.
func (c *Config) WithoutEvents(every time.Duration) {
	c.every = every
	c.notify = func() (*fsnotify.Watcher, error) { return nil, errors.New("none left") }
}

// Settle has a file count when it has been the same for so long.
func (c *Config) Settle(d time.Duration) { c.settle = d }

// Every has c look at its file so often where no event asks for it.
func (c *Config) Every(d time.Duration) { c.every = d }

// SourcePause is how long a source that has ended rests.
const SourcePause = sourcePause

// Kebab is how a file spells the name of a field.
var Kebab = kebab

// Duration reads the text of a duration.
var Duration = duration
