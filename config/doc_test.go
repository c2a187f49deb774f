package config_test

import (
	"os"
	"strings"
	"testing"

	"github.com/quotient-go/quotient/config"
)

// TestDocumentedFile: the file in the package's comment is valid, but for the unit that a proxy refuses, and
// names every field.
func TestDocumentedFile(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	must(t, err)
	var text strings.Builder
	for line := range strings.Lines(string(doc)) {
		if code, ok := strings.CutPrefix(line, "//\t"); ok {
			text.WriteString(code)
		}
	}
	f, err := config.Parse("q.toml", []byte(text.String()))
	if f != nil || err == nil || strings.Count(err.Error(), "\n") != 0 ||
		!strings.Contains(err.Error(), `rates[3].unit: "tokens"`) {
		t.Fatalf("%v", err)
	}
	for field := range strings.SplitSeq(encode(&config.File{
		Limiters: map[string]config.Limiter{"a": {}},
		Proxy: &config.Proxy{TLS: &config.TLS{}, JWT: &config.JWT{},
			Admin: config.Admin{TLS: &config.TLS{}}},
		Leases: &config.Leases{Election: &config.Election{}},
	}, true), "\n") {
		name, _, ok := strings.Cut(field, " = ")
		if ok && !strings.Contains(text.String(), name) {
			t.Errorf("%s is not in the comment", name)
		}
	}
}

// TestExampleFiles: the files of testdata that pages show are valid.
func TestExampleFiles(t *testing.T) {
	for _, name := range []string{"quotient.toml", "library.toml"} {
		if _, err := config.Read("testdata/" + name); err != nil {
			t.Error(err)
		}
	}
}
