//go:build unix

package readme

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

var lasted = regexp.MustCompile(`\b[0-9]+s\b`)

// sameButTime reports whether two texts differ in nothing but whole seconds.
func sameButTime(a, b string) bool {
	return lasted.ReplaceAllString(a, "1s") == lasted.ReplaceAllString(b, "1s")
}

// newModules returns a folder with a clone of the repository in it, and the environment of a new module
// there. Modules that have been downloaded before are not downloaded again.
func newModules(t *testing.T) (dir string, env []string) {
	t.Helper()
	here, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	if err := os.Symlink(here, filepath.Join(dir, "quotient")); err != nil {
		t.Skip(err)
	}
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		t.Fatal(err)
	}
	cache, proxy, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	downloaded := "file://" + filepath.ToSlash(filepath.Join(cache, "cache", "download"))
	return dir, []string{"GOWORK=off", "GOFLAGS=-mod=mod", "GOPROXY=" + downloaded + "," + proxy}
}

// Every program of the quickstart is written, built and run as the page says, and prints what the page shows.
func TestQuickstart(t *testing.T) {
	dir, env := newModules(t)
	here := strings.NewReplacer("localhost:8090", freeAddr(t), "localhost:8091", freeAddr(t))
	programs := 0
	(&player{
		page: "docs/quickstart.md", here: here, same: sameButTime,
		before: func(b block) {
			first, _, _ := strings.Cut(b.text, "\n")
			name, ok := strings.CutPrefix(first, "// ")
			if b.language != "go" || !ok || filepath.Ext(name) != ".go" {
				t.Fatalf("a block of %q that begins with %q: want Go with the name of a file",
					b.language, first)
			}
			file := filepath.Join(dir, "tour", name)
			if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(here.Replace(b.text)), 0o600); err != nil {
				t.Fatal(err)
			}
			programs++
		},
		server: func(command string) []string {
			switch command {
			case "go run ./server":
				return []string{"localhost:8090"}
			case "go run ./server -replicas 3 -listen localhost:8091":
				return []string{"localhost:8091"}
			}
			return nil
		},
	}).play(t, newShell(t, dir, env...))
	if programs != 2 {
		t.Errorf("%d programs, want 2", programs)
	}
}

// A module of a stranger builds all Go of the README, with what it says of the installation alone.
func TestReadmeInstalls(t *testing.T) {
	dir, env := newModules(t)
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	s := newShell(t, dir, append(env, "GOFLAGS=")...)
	s.run("mkdir app && cd app && go mod init example.com/app")
	pasted := 0
	for _, b := range blocks(string(text)) {
		switch {
		case b.heading == "Install":
			s.run(b.text)
		case b.language == "go":
			pasted++
			folder := filepath.Join(dir, "app", strconv.Itoa(pasted))
			if err := errors.Join(os.Mkdir(folder, 0o700),
				os.WriteFile(filepath.Join(folder, "x.go"), []byte(b.text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.run("go mod tidy && go build ./...")
	if pasted != 3 {
		t.Errorf("%d blocks of Go, want 3", pasted)
	}
}

// sameCodes reports whether uniq counted what the page says, such as "5 200, 2 429". A bucket refills under requests
// that take long, as on a machine that stands still: the 25 of the first task may be more.
func sameCodes(got, want string) bool {
	var ok, refused, wantOK, wantRefused int
	if n, _ := fmt.Sscanf(got, "%d 200\n%d 429", &ok, &refused); n == 0 {
		return false
	}
	if n, _ := fmt.Sscanf(want, "%d 200, %d 429", &wantOK, &wantRefused); n == 0 {
		return false
	}
	slack := 0
	if wantOK == 25 {
		slack = wantRefused
	}
	return ok+refused == wantOK+wantRefused && ok >= wantOK && ok <= wantOK+slack
}

// freeTen returns all but the last digit of ports, so that the servers of a page may use the digits 0 to 3.
func freeTen(t *testing.T) string {
	t.Helper()
	for range 100 {
		ten, free := freeAddr(t), 0
		ten = ten[:len(ten)-1]
		for n := range 4 {
			if l, err := net.Listen("tcp", ten+strconv.Itoa(n)); err == nil && l.Close() == nil {
				free++
			}
		}
		if free == 4 {
			return ten
		}
	}
	t.Fatal("no four ports in a row are free")
	return ""
}

// The five tasks of docs/README.md show what the page says, from a clone and by its commands alone.
func TestFirstHour(t *testing.T) {
	dir, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	const hello = "localhost:8080" // it has no flag
	if l, err := net.Listen("tcp", hello); err != nil || l.Close() != nil {
		t.Skip(hello, "of this machine is taken:", err)
	}
	ten, proxy, page := freeTen(t), freeAddr(t), freeAddr(t)
	minute := time.Now().Truncate(time.Minute)
	(&player{
		page: "docs/README.md",
		here: strings.NewReplacer("localhost:4040", proxy, "localhost:4041", page, "localhost:405", ten,
			"proxy --rpm", "proxy --listen "+proxy+" --admin "+page+" --rpm"),
		same: func(got, want string) bool {
			was := minute
			if minute = time.Now().Truncate(time.Minute); !sameCodes(got, want) && !minute.Equal(was) {
				t.Skip("the clock's minute ended under the commands")
			}
			return sameCodes(got, want)
		},
		server: func(command string) []string {
			switch {
			case strings.HasPrefix(command, "seq 3"):
				return []string{"localhost:4051", "localhost:4052", "localhost:4053"}
			case strings.HasPrefix(command, "go run ./cmd/quotient proxy"):
				return []string{"localhost:4040", "localhost:4041"}
			case command == "go run ./examples/hello":
				return []string{hello}
			}
			return nil
		},
	}).play(t, newShell(t, dir))
}
