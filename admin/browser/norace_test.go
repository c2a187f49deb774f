//go:build !race

package browser

// underRace tells that the race detector is on.
const underRace = false
