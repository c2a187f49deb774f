package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// A line is one line of a terminal, without its end, and when it was complete.
type line struct {
	At   time.Duration // from the start of the recording
	Text string        // with the escape sequences of its colours
}

// A recording is what a command printed.
type recording struct {
	Command string
	Lines   []line
}

// mostLines bounds a recording: a picture has to be small, and the fleet prints some ninety lines.
const mostLines = 400

// recorded is the command as a reader would type it. On a terminal it uses colours by itself.
const recorded = "go run ./examples/fleet"

// record runs a command and records its output, which it also passes on. The command must succeed.
func record(cmd *exec.Cmd, also io.Writer) (*recording, error) {
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	begin := time.Now()
	rec, err := readLines(io.TeeReader(out, also), func() time.Duration { return time.Since(begin) })
	if err != nil {
		err = errors.Join(err, cmd.Process.Kill())
	}
	if err := errors.Join(err, cmd.Wait()); err != nil {
		return nil, fmt.Errorf("%s: %w", recorded, err)
	}
	return rec, nil
}

// readLines reads lines until there are no more, and notes the time at which each was complete.
func readLines(r io.Reader, now func() time.Duration) (*recording, error) {
	rec := &recording{Command: recorded}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if len(rec.Lines) == mostLines {
			return nil, fmt.Errorf("more than %d lines", mostLines)
		}
		rec.Lines = append(rec.Lines, line{now().Round(time.Millisecond), lines.Text()})
	}
	return rec, lines.Err()
}

// castHead is the first line of an asciicast.
type castHead struct {
	Version int    `json:"version"`
	Width   int    `json:"width"`
	Height  int    `json:"height"`
	Command string `json:"command"`
}

const castVersion = 2

// write writes the recording as an asciicast.
func (r *recording) write(file string) error {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	err := enc.Encode(castHead{castVersion, columns, rows, r.Command})
	for _, l := range r.Lines {
		err = errors.Join(err, enc.Encode([]any{l.At.Seconds(), "o", l.Text + "\r\n"}))
	}
	if err != nil {
		return err
	}
	return os.WriteFile(file, text.Bytes(), 0o644)
}

// readCast reads a recording that write has written: one event is one line.
func readCast(file string) (*recording, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	head, events, _ := bytes.Cut(text, []byte("\n"))
	var h castHead
	if err := json.Unmarshal(head, &h); err != nil {
		return nil, fmt.Errorf("%s: first line: %w", file, err)
	}
	if h.Version != castVersion {
		return nil, fmt.Errorf("%s: version %d of an asciicast, not %d", file, h.Version, castVersion)
	}
	rec := &recording{Command: h.Command}
	for n, event := range bytes.Split(bytes.TrimSpace(events), []byte("\n")) {
		l, err := readEvent(event)
		if err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", file, n+2, err)
		}
		if k := len(rec.Lines); k == mostLines || k > 0 && l.At < rec.Lines[k-1].At {
			return nil, fmt.Errorf("%s: line %d: out of order, or more than %d lines", file, n+2, mostLines)
		}
		rec.Lines = append(rec.Lines, l)
	}
	return rec, nil
}

// readEvent reads one line that was printed.
func readEvent(text []byte) (line, error) {
	var at float64
	var kind, printed string
	if err := json.Unmarshal(text, &[]any{&at, &kind, &printed}); err != nil {
		return line{}, err
	}
	printed, ends := strings.CutSuffix(printed, "\r\n")
	if kind != "o" || !ends || !(at >= 0 && at <= longestRun.Seconds()) {
		return line{}, fmt.Errorf("%s is no line of output with a time up to %v", text, longestRun)
	}
	return line{time.Duration(at * float64(time.Second)).Round(time.Millisecond), printed}, nil
}
