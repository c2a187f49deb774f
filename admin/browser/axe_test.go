package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/quotient-go/quotient/admin"
	"github.com/quotient-go/quotient/internal/needed"
)

// TestPageIsAccessible runs the rules of axe-core over the page: in both themes, wide and on a phone, with
// each kind of dialog, and without a limiter.
func TestPageIsAccessible(t *testing.T) {
	browser := startChromium(t)
	rules := axeCore(t)
	s := startService(t)
	for _, theme := range []string{"light", "dark"} {
		for device, size := range map[string][2]int64{
			"desktop": {1440, 900},
			"phone":   {phoneWide, phoneTall},
		} {
			t.Run(theme+" "+device, func(t *testing.T) {
				p := openTab(t, browser, s.url())
				p.size(size[0], size[1])
				p.theme(theme)
				p.open()
				p.do(chromedp.Evaluate[chromedp.Void](rules))
				withDialogs(p)
				p.idle(nil)
				p.open()
				p.do(chromedp.Evaluate[chromedp.Void](rules))
				p.accessible("no limiter")
				tokenIsAccessible(p, rules)
			})
		}
	}
}

// withDialogs looks at the page, and at each kind of dialog over it.
func withDialogs(p *tab) {
	p.until("keys are shown", `document.querySelector("#limiter-api .acts button[aria-label^=Explain]")`)
	p.accessible("page")
	for _, button := range []string{"Change limit", "Override a key", "Turn dry run on", "Add a plan",
		"Explain tenant-gold"} {
		p.click("#limiter-api", button)
		p.until("the dialog is filled", `document.querySelector("#dialog-body").children.length > 0`)
		p.accessible(button)
		p.click("dialog[open]",
			map[bool]string{true: "Close", false: "Cancel"}[strings.HasPrefix(button, "Explain")])
		p.until("the dialog is closed", `!document.querySelector("dialog[open]")`)
	}
	p.click("#limiter-api", "api")
	p.until("it is closed", `!document.querySelector("#limiter-api .body").checkVisibility()`)
	p.accessible("a closed limiter")
}

func tokenIsAccessible(p *tab, rules string) {
	p.idle([]string{"api"}, admin.Token("not-a-secret-0123456789"))
	p.do(chromedp.Navigate(p.origin))
	p.until("a token is wanted", `document.querySelector("#token-dialog[open]")`)
	p.do(chromedp.Evaluate[chromedp.Void](rules))
	p.accessible("token")
}

// accessible requires that no rule of axe-core is broken, nor fails to run.
func (p *tab) accessible(where string) {
	p.t.Helper()
	type finding struct {
		Rule  string   `json:"rule"`
		Help  string   `json:"help"`
		Nodes []string `json:"nodes"`
	}
	type findings struct {
		Passed int       `json:"passed"`
		Broken []finding `json:"broken"`
	}
	got, err := chromedp.Run(p.ctx, chromedp.Evaluate[findings](
		`axe.run(document, { resultTypes: ["violations"] }).then(({ violations, passes }) => ({
		passed: passes.length,
		broken: violations.map(({ id, help, nodes }) => ({ rule: id, help, nodes: nodes.slice(0, 5).map((n) => n.html.slice(0, 160)) })),
	}))`, chromedp.EvalAwaitPromise))
	must(p.t, err)
	if got.Passed < 10 {
		p.t.Errorf("%s: only %d rules hold: the others had nothing to look at", where, got.Passed)
	}
	for _, f := range got.Broken {
		p.t.Errorf("%s: %s: %s\n\t%s", where, f.Rule, f.Help, strings.Join(f.Nodes, "\n\t"))
	}
}

// axeCore returns the script of axe-core in the version of axe/package.json. npm fetches it where it is not
// there yet.
func axeCore(t *testing.T) string {
	t.Helper()
	const folder = "axe"
	var wanted struct {
		Dependencies map[string]string `json:"dependencies"`
	}
	readJSON(t, filepath.Join(folder, "package.json"), &wanted)
	module := filepath.Join(folder, "node_modules", "axe-core")
	var there struct {
		Version string `json:"version"`
	}
	if _, err := os.Stat(filepath.Join(module, "package.json")); err == nil {
		readJSON(t, filepath.Join(module, "package.json"), &there)
	}
	if there.Version != wanted.Dependencies["axe-core"] {
		fetch(t, folder)
	}
	script, err := os.ReadFile(filepath.Join(module, "axe.min.js"))
	must(t, err)
	return string(script)
}

// fetch runs npm ci in a folder.
func fetch(t *testing.T, folder string) {
	t.Helper()
	const unknown = "nothing is known about the page's accessibility"
	npm, err := exec.LookPath("npm")
	if err != nil {
		needed.Without(t, "npm", "npm is not installed: "+unknown+" (apt-get install npm)")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, npm, "ci")
	cmd.Dir = folder
	if out, err := cmd.CombinedOutput(); err != nil {
		needed.Without(t, "npm",
			fmt.Sprintf("npm ci cannot get axe-core, perhaps for want of a network: %s: %v\n%s", unknown,
				err, out))
	}
}

func readJSON(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Clean(path))
	must(t, err)
	must(t, json.Unmarshal(text, into))
}
