package admin

import (
	"testing"

	"github.com/quotient-go/quotient"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// overridesOf are the limits of their own that keys of l have.
func overridesOf(l *quotient.Limiter) []OverrideState { return firstOverrides(l, overridden(l)) }
