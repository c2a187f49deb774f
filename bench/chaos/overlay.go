package main

import (
	"context"
	_ "embed" // of the stepped clock
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	rootPackage  = "github.com/quotient-go/quotient"
	chaosPackage = rootPackage + "/bench/chaos"

	// clockReading is where the limiter reads the wall clock, in clockFile. It must stand there once.
	clockFile    = "shard.go"
	clockReading = "t := time.Now()"
)

//go:embed wall.go
var wallSource string

// stepWall sets WallStep of the root package; nil where it has none.
var stepWall func(ns int64)

// errNoBuild means that this machine cannot build such a program, which is no fault of it.
var errNoBuild = errors.New("it takes the go command on the PATH and a checkout")

// buildStepped builds this program once more into dir, with a root package whose limiters read a wall clock
// that can be stepped, and returns its name. The overlay changes nothing on disk, as with the guards of
// internal/guards. All but the root package and what imports it is in Go's cache.
func buildStepped(ctx context.Context, dir string) (string, error) {
	goCommand, err := exec.LookPath("go")
	if err != nil {
		return "", errNoBuild
	}
	out, err := exec.CommandContext(ctx, goCommand, "list", "-f", "{{.Dir}}", rootPackage).Output()
	if err != nil {
		return "", fmt.Errorf("%w: go list %s: %w", errNoBuild, rootPackage, err)
	}
	overlay, err := writeOverlay(strings.TrimSpace(string(out)), dir)
	if err != nil {
		return "", err
	}
	exe := filepath.Join(dir, "stepped")
	build := exec.CommandContext(ctx, goCommand, "build", "-buildvcs=false", "-overlay", overlay,
		"-tags", "clockstep", "-o", exe, chaosPackage)
	if text, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%v: %w\n%s", build.Args, err, text)
	}
	return exe, nil
}

// writeOverlay writes the overlay into dir, for a root package in root, and returns its name.
func writeOverlay(root, dir string) (string, error) {
	name := filepath.Join(root, clockFile)
	source, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(source), clockReading); n != 1 {
		return "", fmt.Errorf("%s: %q stands there %d times, not once", clockFile, clockReading, n)
	}
	limiter := strings.Replace(string(source), clockReading, "t := stepped(time.Now())", 1)
	wall := strings.Replace(wallSource, "package main", "package quotient", 1)
	newLimiter, newWall := filepath.Join(dir, clockFile), filepath.Join(dir, "wallstep.go")
	replace := map[string]string{name: newLimiter, filepath.Join(root, "wallstep.go"): newWall}
	spec, err := json.Marshal(map[string]any{"Replace": replace})
	overlay := filepath.Join(dir, "overlay.json")
	for file, text := range map[string]string{newLimiter: limiter, newWall: wall, overlay: string(spec)} {
		err = errors.Join(err, os.WriteFile(file, []byte(text), 0o600))
	}
	return overlay, err
}
