package main

import (
	"context"
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
)

// clockReadings are where the limiter reads the wall clock off a time. Each must stand there once.
var clockReadings = []string{"l.wall(t)", "t.UnixNano()"}

// The stepped program has these files besides, in the root package and in this one.
const (
	rootClock = "package quotient\nimport (\"sync/atomic\"; \"time\")\nvar WallStep atomic.Int64\n" +
		"func stepped(t time.Time) time.Time { return t.Add(time.Duration(WallStep.Load())) }\n"
	chaosClock = "package main\nimport \"" + rootPackage + "\"\nfunc init() { stepWall = quotient.WallStep.Store }\n"
)

// buildStepped builds this program once more into dir, with a root package whose limiters read a wall clock that
// can be stepped, and returns its name. The overlay changes nothing on disk. All but the root package and what
// imports it is in Go's cache.
func buildStepped(ctx context.Context, dir string) (string, error) {
	list, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", rootPackage, chaosPackage).Output()
	if err != nil {
		return "", fmt.Errorf("wall clocks that step take the go command and a checkout: %w", err)
	}
	dirs := strings.Fields(string(list))
	if len(dirs) != 2 {
		return "", fmt.Errorf("go list: %q", list)
	}
	overlay, err := writeOverlay(dirs[0], dirs[1], dir)
	if err != nil {
		return "", err
	}
	exe := filepath.Join(dir, "stepped")
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-overlay", overlay, "-o", exe, chaosPackage)
	if text, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%v: %w\n%s", build.Args, err, text)
	}
	return exe, nil
}

// writeOverlay writes an overlay into dir, for a root package and this one, and returns its name.
func writeOverlay(root, chaos, dir string) (string, error) {
	files := map[string]string{
		filepath.Join(root, "wallstep.go"):  rootClock,
		filepath.Join(chaos, "wallstep.go"): chaosClock,
	}
	sources, err := filepath.Glob(filepath.Join(root, "*.go"))
	found := 0
	for _, name := range sources {
		source, err1 := os.ReadFile(name)
		if err = errors.Join(err, err1); strings.HasSuffix(name, "_test.go") {
			continue
		}
		text := string(source)
		for _, reading := range clockReadings {
			found += strings.Count(text, reading)
			text = strings.ReplaceAll(text, reading, strings.Replace(reading, "t", "stepped(t)", 1))
		}
		if text != string(source) {
			files[name] = text
		}
	}
	if err == nil && found != len(clockReadings) {
		err = fmt.Errorf("%q stand %d times in %s, not once each", clockReadings, found, root)
	}
	replace := map[string]string{}
	for name, text := range files {
		replace[name] = filepath.Join(dir, fmt.Sprint(len(replace), ".go"))
		err = errors.Join(err, os.WriteFile(replace[name], []byte(text), 0o600))
	}
	spec, err1 := json.Marshal(map[string]any{"Replace": replace})
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, errors.Join(err, err1, os.WriteFile(overlay, spec, 0o600))
}
