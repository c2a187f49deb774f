package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/lease"
)

// elect returns what takes part in an election until its context ends. Without one it does nothing.
func elect(e *config.Election, url string, s *lease.Server, log *slog.Logger) (func(context.Context) error, error) {
	if e == nil {
		return func(context.Context) error { return nil }, nil
	}
	return nil, errors.New("not yet")
}
