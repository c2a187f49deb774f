//go:build !unix

package redistest

import (
	"errors"

	"github.com/quotient-go/quotient/internal/kept"
)

func pause(*kept.Process) error  { return errors.ErrUnsupported }
func resume(*kept.Process) error { return errors.ErrUnsupported }
