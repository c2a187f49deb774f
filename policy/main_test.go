package policy_test

import (
	"testing"

	"go.uber.org/goleak"
)

// No controller starts a goroutine.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
