package admin

import (
	"errors"
	"time"
)

// FileState is the state of the file that configures the limits. The State of package config converts to it:
//
//	admin.File(func() admin.FileState { return admin.FileState(c.State()) })
//
// While the file has an error, ErrorAt is not before Loaded. Error stays until a load succeeds.
type FileState struct {
	Path     string    `json:"path"`
	Loaded   time.Time `json:"loaded"`            // when the configuration in force was read
	Reloads  uint64    `json:"reloads"`           // that were applied
	Failures uint64    `json:"failures"`          // reloads that changed nothing
	Error    string    `json:"error"`             // of the last failure
	ErrorAt  time.Time `json:"error_at,omitzero"` // when the last failure was
	Differs  []string  `json:"differs"`           // changes by operators, such as "api: limit, override /x"
}

// File shows the file that the limiters are configured by: in GET /state and GET /events as "file", and on
// the page. Each answer calls state, which must be safe for concurrent use and return at once. Texts are
// clipped to 4 KiB, and Differs to 1,000 lines of 512 bytes.
func File(state func() FileState) Option {
	return func(h *handler) {
		h.file = state
		if state == nil {
			h.errs = append(h.errs, errors.New("admin: File: state: nil"))
		}
	}
}

const (
	longestText = 4096 // bytes of an error or a path
	longestLine = 512  // bytes of what differs at one limiter
	mostDiffers = 1000 // a registry has no more limiters
)

// fileState is the file's state as an answer carries it: nil without File.
func (h *handler) fileState() *FileState {
	if h.file == nil {
		return nil
	}
	s := h.file()
	differs := make([]string, min(len(s.Differs), mostDiffers))
	for i := range differs {
		differs[i] = shorten(s.Differs[i], longestLine)
	}
	s.Path, s.Error, s.Differs = shorten(s.Path, longestText), shorten(s.Error, longestText), differs
	return &s
}
