//go:build race

package real

// underRace reports whether the race detector is on.
const underRace = true
