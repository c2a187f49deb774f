package admin

import (
	"html"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/quotient-go/quotient"
)

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
	source, err := os.ReadFile("empty_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(source), "\t// on the page:\n")
	code, _, _ = strings.Cut(code, "\t// so far\n")
	code = strings.TrimSpace(strings.ReplaceAll("\n"+code, "\n\t", "\n"))
	shown := shownCode.FindSubmatch(pageFiles()["/"].body)
	if shown == nil || html.UnescapeString(string(shown[1])) != code {
		t.Errorf("the page shows\n%s\nwant\n%s", shown, code)
	}
	var limiters quotient.Registry
	if err := addsFirst(&limiters); err != nil {
		t.Fatal(err)
	}
	if _, there := limiters.Get("api"); !there {
		t.Error("they add no limiter")
	}
}
