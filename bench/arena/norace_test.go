//go:build !race

package main

// underRace reports that the race detector is on.
const underRace = false
