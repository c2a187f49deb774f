// Package waited is how an adapter learns what one of its requests has waited for.
package waited

import "time"

// Key is the key of a context under which Limiter.Acquire finds a Hook.
type Key struct{}

// Hook is called as quotient.OnAdmit is, but for one Acquire, and only for an admission after a wait.
type Hook func(waited, overhead time.Duration)
