package file

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/quotient-go/quotient"
)

// FuzzParse checks that no content panics. An accepted file is in range, is what encoding/json reads, and
// reads back from its plainest form. A refused file comes with a reason in bounded text.
func FuzzParse(f *testing.F) {
	f.Add(`{"replicas":5,"ordinal":2,"fixed":true}`)
	f.Add(`{"weight":2,"replicas":5,"ordinal":4}`)
	f.Fuzz(func(t *testing.T, content string) {
		p, err := parse(content)
		if err != nil {
			if p != (quotient.Pool{}) || len(err.Error()) > 300 {
				t.Fatalf("refused %+v with %d bytes: %v", p, len(err.Error()), err)
			}
			return
		}
		if _, bad := quotient.New(quotient.Limit{}, quotient.StartPool(p)); bad != nil ||
			p.Fixed && p.Ordinal == 0 {
			t.Fatalf("accepted %+v: %v", p, bad)
		}
		loose := quotient.Pool{}
		if trimmed := strings.TrimSpace(content); trimmed[0] == '{' {
			err = json.Unmarshal([]byte(content), &loose)
		} else {
			err = json.Unmarshal([]byte(content), &loose.Replicas)
		}
		if err != nil || loose != p {
			t.Fatalf("encoding/json reads %+v (%v), parse %+v", loose, err, p)
		}
		plain := fmt.Sprintf(`{"replicas":%d,"ordinal":%d,"fixed":%v}`, p.Replicas, p.Ordinal, p.Fixed)
		if p.Weight > 0 {
			plain = fmt.Sprintf(`{"replicas":%d,"weight":%d,"ordinal":%d,"fixed":%v}`, p.Replicas, p.Weight,
				p.Ordinal, p.Fixed)
		}
		if again, err := parse(plain); err != nil || again != p {
			t.Fatalf("%s reads back as %+v, %v", plain, again, err)
		}
	})
}
