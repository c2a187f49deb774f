//go:build !race

package browser

// underRace reports whether the race detector is on.
const underRace = false
