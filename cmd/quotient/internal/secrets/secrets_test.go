package secrets

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quotient-go/quotient/internal/tested"
)

func TestTokens(t *testing.T) {
	for name, c := range map[string]struct {
		text, want, err string
	}{
		"one":      {"secret-0123456789\n", "secret-0123456789", ""},
		"two":      {"# old\none\n\n  two  \r\n", "one two", ""},
		"none":     {"# none\n\n", "", "has no token"},
		"empty":    {"", "", "has no token"},
		"too long": {strings.Repeat("x", 65<<10), "", "it is larger than 65536 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "tokens")
			tested.Must(t, os.WriteFile(path, []byte(c.text), 0o600))
			got, err := Tokens(path)
			if strings.Join(got, " ") != c.want || (err == nil) != (c.err == "") || !strings.Contains(fmt.Sprint(err), c.err) {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}
