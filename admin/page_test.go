package admin

import (
	"fmt"
	"html"
	"io/fs"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/tested"
)

func TestPageIsServed(t *testing.T) {
	tests := []struct{ path, contentType, has string }{
		{"/", "text/html; charset=utf-8", "<!doctype html>"},
		{"/assets/page.css", "text/css; charset=utf-8", "prefers-reduced-motion"},
		{"/assets/page.js", "text/javascript; charset=utf-8", "import "},
		{"/assets/icon.svg", "image/svg+xml", "<svg"},
	}
	h := quiet(t, newLimiter(t))
	for _, tt := range tests {
		rec := get(tt.path).send(t, h)
		if rec.Code != http.StatusOK || rec.Header().Get("Content-Type") != tt.contentType ||
			!strings.Contains(rec.Body.String(), tt.has) {
			t.Errorf("%s: %d %q without %q", tt.path, rec.Code, rec.Header().Get("Content-Type"), tt.has)
		}
		head := request{method: "HEAD", path: tt.path, contentType: none}.send(t, h)
		if head.Code != http.StatusOK || head.Body.Len() != 0 ||
			head.Header().Get("ETag") != rec.Header().Get("ETag") {
			t.Errorf("HEAD %s: %d, %d bytes, tag %q", tt.path, head.Code, head.Body.Len(),
				head.Header().Get("ETag"))
		}
	}
}

func TestPageHeaders(t *testing.T) {
	want := map[string]string{
		"Cache-Control":                "no-cache",
		"X-Content-Type-Options":       "nosniff",
		"Referrer-Policy":              "no-referrer",
		"X-Frame-Options":              "DENY",
		"Cross-Origin-Opener-Policy":   "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin",
		"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src " +
			"'self'; connect-src 'self'; base-uri 'none'; " +
			"form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; " +
			"trusted-types 'none'",
	}
	h, tags := quiet(t, newLimiter(t)), make(map[string]string)
	for path := range pageFiles() {
		rec := get(path).send(t, h)
		for name, value := range want {
			tested.Want(t, fmt.Sprintf("%s: %s", path, name), rec.Header().Get(name), value)
		}
		// a browser that has a file asks, and gets it again only when it has changed
		tag := rec.Header().Get("ETag")
		if other, twice := tags[tag]; twice || len(tag) < 10 {
			t.Errorf("%s has tag %q, as has %q", path, tag, other)
		}
		tags[tag] = path
		if rec := get(path).with("If-None-Match", tag).send(t, h); rec.Code != http.StatusNotModified || rec.Body.Len() != 0 {
			t.Errorf("%s: %d with %d bytes for the tag it has", path, rec.Code, rec.Body.Len())
		}
		if rec := get(path).with("If-None-Match", `"old"`).send(t, h); rec.Code != http.StatusOK || rec.Body.Len() == 0 {
			t.Errorf("%s: %d for another tag", path, rec.Code)
		}
	}
}

func TestPageHasNoOtherFiles(t *testing.T) {
	h := quiet(t, newLimiter(t))
	for _, path := range []string{"/assets", "/assets/", "/assets/index.html", "/assets/none.js",
		"/assets/../page.go", "/assets//page.js", "/assets/page.js/"} {
		rec := get(path).send(t, h)
		if rec.Code != http.StatusNotFound || rec.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %s", path, rec.Code, rec.Header().Get("Content-Type"))
		}
	}
}

// documentation is where the page links to, for a person to follow: nothing is loaded from it.
const documentation = "https://github.com/quotient-go/quotient/tree/main/docs"

var (
	linked   = regexp.MustCompile(`(?:src|href)="([^"#]+)"`)
	imported = regexp.MustCompile(`(?m)^import .* from "\./([^"]+)";$`)
)

// TestPageIsComplete: each file that the page asks for is there, and each that is there is asked for. All
// addresses are relative, so that the handler can be mounted under any prefix.
func TestPageIsComplete(t *testing.T) {
	asked := []string{"/"}
	for _, link := range linked.FindAllStringSubmatch(string(pageFiles()["/"].body), -1) {
		if link[1] == "state" || link[1] == documentation {
			continue // the API, and what an operator may follow
		}
		asked = append(asked, "/"+link[1])
	}
	for path, file := range pageFiles() {
		for _, name := range imported.FindAllStringSubmatch(string(file.body), -1) {
			asked = append(asked, "/assets/"+name[1])
		}
		tested.Not(t, file.contentType == "", "%s has no content type", path)
	}
	for _, path := range asked {
		if _, found := pageFiles()[path]; !found {
			t.Errorf("the page asks for %s, which is not there", path)
		}
	}
	for path := range pageFiles() {
		tested.Not(t, !slices.Contains(asked, path), "nothing asks for %s", path)
	}
	names, err := fs.Glob(assets, "assets/*")
	if err != nil || len(names) != len(pageFiles()) {
		t.Errorf("%d files are embedded, %d served (%v)", len(names), len(pageFiles()), err)
	}
}

// TestPageHasNothingForbidden: the policy would stop inline code and foreign addresses in the browser; here
// they do not get that far. Text that becomes markup is not used at all: any client may choose keys.
func TestPageHasNothingForbidden(t *testing.T) {
	forbidden := map[string]*regexp.Regexp{
		"inline code": regexp.MustCompile(`(?i)<[^>]* (style|on[a-z]+)=|<script>|<style|javascript:`),
		"text as markup": regexp.MustCompile(
			`innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment`),
		"text as code":      regexp.MustCompile(`\beval\(|new Function|setTimeout\("|setAttribute\("style"`),
		"a foreign address": regexp.MustCompile(`(?i)(https?:)?//[a-z0-9-]+\.[a-z]`),
	}
	const namespace = "http://www.w3.org/2000/svg" // a name, never loaded
	known := strings.NewReplacer(namespace, "", documentation, "")
	for path, file := range pageFiles() {
		text := known.Replace(string(file.body))
		for what, pattern := range forbidden {
			tested.Want(t, fmt.Sprintf("%s has %s", path, what), pattern.FindString(text), "")
		}
	}
}

// addsFirst has the lines that the page shows while there is no limiter, so that they are compiled.
func addsFirst(limiters *quotient.Registry) error {
	// on the page:
	api, err := quotient.New(quotient.Rates(quotient.PerSecond(100)))
	if err != nil {
		return err
	}
	if err := limiters.Add("api", api); err != nil {
		return err
	}
	// so far
	return nil
}

var shownCode = regexp.MustCompile(`(?s)<pre id="none-code"[^>]*>(.*?)</pre>`)

func TestPageShowsLinesThatCompile(t *testing.T) {
	source, err := os.ReadFile("page_test.go")
	must(t, err)
	_, code, _ := strings.Cut(string(source), "\t// on the page:\n")
	code, _, _ = strings.Cut(code, "\t// so far\n")
	code = strings.TrimSpace(strings.ReplaceAll("\n"+code, "\n\t", "\n"))
	shown := shownCode.FindSubmatch(pageFiles()["/"].body)
	if shown == nil || html.UnescapeString(string(shown[1])) != code {
		t.Errorf("the page shows\n%s\nwant\n%s", shown, code)
	}
	var limiters quotient.Registry
	must(t, addsFirst(&limiters))
	if _, there := limiters.Get("api"); !there {
		t.Error("they add no limiter")
	}
}
