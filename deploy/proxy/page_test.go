package proxy

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/quotient-go/quotient/config"
)

// page is the page that these tests hold.
const page = "../../docs/proxy.md"

// block is a fenced block of the page.
type block struct {
	lang, text string
	line       int // of its fence
}

var fence = regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```$")

// read returns the text of a file.
func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// blocks returns the blocks of docs/proxy.md in a language, in order.
func blocks(t *testing.T, lang string) []block {
	t.Helper()
	return blocksOf(t, page, lang)
}

// blocksOf returns the blocks of a page in a language, in order.
func blocksOf(t *testing.T, page, lang string) []block {
	t.Helper()
	text := []byte(read(t, page))
	var found []block
	for _, at := range fence.FindAllSubmatchIndex(text, -1) {
		line := 1 + bytes.Count(text[:at[0]], []byte("\n"))
		b := block{string(text[at[2]:at[3]]), string(text[at[4]:at[5]]), line}
		if b.lang == lang {
			found = append(found, b)
		}
	}
	if len(found) == 0 {
		t.Fatalf("%s has no block of %s", page, lang)
	}
	return found
}

// TestFilesOfThePage checks that each file on the page is a whole one that is well. The broken one is named
// in its first line.
func TestFilesOfThePage(t *testing.T) {
	broken := 0
	for _, b := range blocks(t, "toml") {
		name := "quotient.toml"
		if strings.HasPrefix(b.text, "# broken.toml\n") {
			name = "broken.toml"
			broken++
		}
		f, err := config.Parse(name, []byte(b.text))
		if name == "broken.toml" {
			want := answer(t, "quotient check broken.toml")
			if err == nil || err.Error()+"\n" != want {
				t.Errorf("%s:%d: the errors are\n%v\nthe page has\n%s", page, b.line, err, want)
			}
			continue
		}
		if err != nil || f.Proxy == nil {
			t.Errorf("%s:%d: %v", page, b.line, err)
		}
	}
	if broken != 1 {
		t.Errorf("%d broken files, want 1", broken)
	}
}

// answer returns what the page shows beneath a command.
func answer(t *testing.T, command string) string {
	t.Helper()
	for _, b := range blocks(t, "console") {
		for _, c := range commands(b.text) {
			if c.line == command {
				return c.answer
			}
		}
	}
	t.Fatalf("%s has no command %q", page, command)
	return ""
}

// command is a line that a reader types, and what it prints as the page shows it.
type command struct{ line, answer string }

func commands(text string) []command {
	var found []command
	for line := range strings.Lines(text) {
		if typed, ok := strings.CutPrefix(line, "$ "); ok {
			found = append(found, command{line: strings.TrimSpace(typed)})
		} else if len(found) > 0 {
			found[len(found)-1].answer += line
		}
	}
	return found
}
