//go:build !unix

package redistest

import (
	"errors"
	"os"
)

// interrupt ends a server where nothing asks it to.
var interrupt = os.Kill

func pause(*os.Process) error  { return errors.ErrUnsupported }
func resume(*os.Process) error { return errors.ErrUnsupported }
