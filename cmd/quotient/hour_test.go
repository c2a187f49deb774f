//go:build unix

package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quotient-go/quotient/cmd/quotient/internal/cmdline"
)

// TestTheHour is what an operator does whose customer is refused by a fleet of five, one of which is killed: finds who
// it is, sees why, raises the limit for a while, and sees it end by itself. It takes ten commands at most.
func TestTheHour(t *testing.T) {
	const key = "/customers/7"
	up := hold(t)
	var fleet []*process
	var list []string
	config := filepath.Join(t.TempDir(), "quotient.toml")
	renamed(t, config, fmt.Sprintf(`pool.replicas = 5
limiters.api = { rates = [{ events = 10, per = "1000h", kind = "window" }], mode = "refuse" }
[proxy]
listen = "127.0.0.1:0"
upstreams = [%q]
rules = [{ pattern = "/", limiter = "api", key = "path" }]
admin.listen = "127.0.0.1:0"
`, up.URL))
	for range 5 {
		p := start(t, "--config", config)
		fleet, list = append(fleet, p), append(list, p.page)
	}
	file := filepath.Join(t.TempDir(), "pods")
	must(t, os.WriteFile(file, []byte(strings.Join(list, "\n")), 0o600))
	t.Setenv("QUOTIENT_PODS", "file:"+file)
	commands := 0
	command := func(errors, line string) string {
		t.Helper()
		commands++
		out := ran(t, exitOK, errors, append([]string{"ctl"}, strings.Fields(line)...)...)
		t.Logf("$ quotient ctl %s\n%s", line, out)
		return out
	}
	calls := func(p *process) int { return get(t, p.url+key).status }
	refused := func() bool { // by all that live
		n := 0
		for _, p := range fleet {
			if calls(p) == http.StatusTooManyRequests {
				n++
			}
		}
		return n == len(fleet)
	}

	await(t, "the customer is over its limit", refused)
	get(t, fleet[0].url+"/others")
	top := command("", "top -n 1")
	contains(t, top, "\n"+key+" ", " 5 of 5")
	contains(t, command("", "explain "+key), " 10 per 1000h, window", "refused: ")
	if out := command("", "stats"); strings.Count(out, " 2 of 10 ") != 5 || strings.Contains(out, "differs") {
		t.Errorf("five that believe in five replicas:\n%s", out)
	}
	contains(t, command("", "override "+key+" 1000/s --for 8s"), "on 5 of 5 pods, for 8s")
	for _, p := range fleet {
		await(t, "the customer is admitted", func() bool { return calls(p) == http.StatusOK }) // a new rate begins empty
	}
	must(t, fleet[4].cmd.Process.Kill())
	<-fleet[4].ended
	dead := strings.TrimSuffix(strings.TrimPrefix(fleet[4].page, "http://"), "/")
	fleet = fleet[:4]
	out := command("no answer from 1 of 5 pods:\n  "+dead+": ", "explain "+key)
	if strings.Count(out, "second: 1000 per 1s") != 4 {
		t.Errorf("four that are left:\n%s", out)
	}
	await(t, "the customer is over its limit again", refused)
	contains(t, command(dead, "explain "+key), "10 per 1000h, window", "refused: ")
	contains(t, command(dead, "top"), "\n"+key+" ", " 4 of 5")
	if commands > 10 {
		t.Errorf("it took %d commands", commands)
	}
}

// TestCtlPage: each command of docs/admin.md is one, and its section names all.
func TestCtlPage(t *testing.T) {
	text, err := os.ReadFile("../../docs/admin.md")
	must(t, err)
	_, section, _ := strings.Cut(string(text), "\n## All pods at once\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var c cli
	parser, err := newParser(&c, cmdline.Streams{Out: io.Discard, Err: io.Discard}, func(int) {})
	must(t, err)
	found := 0
	for line := range strings.Lines(section) {
		if args, ok := strings.CutPrefix(line, "$ quotient "); ok {
			found++
			_, err := parser.Parse(strings.Fields(args))
			must(t, err)
		}
	}
	if found < 4 {
		t.Errorf("the page has %d commands", found)
	}
	for _, command := range parser.Model.Children {
		for _, n := range command.Children {
			contains(t, section, "`"+n.Name+"`")
		}
	}
}
