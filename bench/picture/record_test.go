package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// child is set where the test binary is to be the command that is recorded: its output and its exit status.
const child = "PICTURE_TEST_CHILD"

func TestMain(m *testing.M) {
	switch os.Getenv(child) {
	case "good":
		fmt.Print("one\n\x1b[1mtwo\x1b[0m\n")
		os.Exit(0)
	case "bad":
		fmt.Print("one\n")
		os.Exit(1)
	case "endless":
		for {
			if _, err := fmt.Println("more"); err != nil {
				os.Exit(1)
			}
		}
	}
	os.Exit(m.Run())
}

// A command is recorded if it succeeds. A run that breaks a promise makes no picture, nor one that prints
// without end.
func TestRecord(t *testing.T) {
	ends := map[string]string{"good": "", "bad": "exit status 1", "endless": "more than 400 lines"}
	for kind, why := range ends {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), child+"="+kind)
		var also bytes.Buffer
		rec, err := record(cmd, &also)
		if why != "" {
			if err == nil || !strings.Contains(err.Error(), why) {
				t.Errorf("%s: error %v, want one with %q", kind, err, why)
			}
			continue
		}
		if err != nil || len(rec.Lines) != 2 || rec.Lines[1].Text != "\x1b[1mtwo\x1b[0m" ||
			rec.Lines[0].At > rec.Lines[1].At {
			t.Errorf("recorded %+v, %v", rec, err)
		}
		if also.String() != "one\n\x1b[1mtwo\x1b[0m\n" {
			t.Errorf("passed on %q", also.String())
		}
	}
}

// The time of a line is when its end was read.
func TestLinesHaveTheTimeOfTheirEnd(t *testing.T) {
	r, w := io.Pipe()
	now := make(chan time.Duration, 2)
	go func() {
		_, _ = io.WriteString(w, "half ")
		now <- 2 * time.Second
		_, _ = io.WriteString(w, "a line\n")
		now <- 3 * time.Second
		_, _ = io.WriteString(w, "another\n")
		_ = w.Close()
	}()
	rec, err := readLines(r, func() time.Duration { return <-now })
	want := []line{{2 * time.Second, "half a line"}, {3 * time.Second, "another"}}
	if err != nil || !reflect.DeepEqual(rec.Lines, want) {
		t.Errorf("read %v, %v, want %v", rec, err, want)
	}
}

// A written record is read back the same.
func TestCast(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.cast")
	want := sample()
	if err := want.write(file); err != nil {
		t.Fatal(err)
	}
	got, err := readCast(file)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read %v, %v, want %v", got, err, want)
	}
}

func TestCastRefuses(t *testing.T) {
	const head = `{"version":2,"width":1,"height":1,"command":"x"}` + "\n"
	for text, why := range map[string]string{
		"":                         "first line",
		`{"version":1}`:            "version 1 of an asciicast",
		head + `[1,"o"`:            "line 2",
		head + `[1,"i","x\r\n"]`:   "no line of output",
		head + `[1,"o","x"]`:       "no line of output",
		head + `[-1,"o","x\r\n"]`:  "no line of output",
		head + `[1e9,"o","x\r\n"]`: "no line of output",
		head + `["1","o","x\r\n"]`: "line 2",
		head + "[2,\"o\",\"x\\r\\n\"]\n[1,\"o\",\"x\\r\\n\"]": "line 3: out of order",
		head + strings.Repeat("[1,\"o\",\"x\\r\\n\"]\n", 401): "line 402: out of order, or more than 400",
	} {
		file := filepath.Join(t.TempDir(), "a.cast")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readCast(file); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%.60q: error %v, want one with %q", text, err, why)
		}
	}
}

// The command draws a recording again, and says what is wrong with its arguments.
func TestCommand(t *testing.T) {
	dir := t.TempDir()
	cast, picture := filepath.Join(dir, "a.cast"), filepath.Join(dir, "a.svg")
	if err := sample().write(cast); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{"-redraw", "-cast", cast, "-o", picture}, 0, ""},
		{[]string{"-redraw", "-cast", filepath.Join(dir, "none.cast")}, 1, "none.cast"},
		{[]string{"-redraw", "more"}, 1, `unexpected argument "more"`},
		{[]string{"-h"}, 0, "-redraw"},
	} {
		var says bytes.Buffer
		if status := command(context.Background(), tt.args, io.Discard, &says); status != tt.status ||
			!strings.Contains(says.String(), tt.says) {
			t.Errorf("%q: status %d, says %q", tt.args, status, says.String())
		}
	}
	want, err := draw(sample())
	if got, readErr := os.ReadFile(picture); err != nil || readErr != nil || !bytes.Equal(got, want) {
		t.Errorf("drawn %d bytes, want %d; %v, %v", len(got), len(want), err, readErr)
	}
}
