package file

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/quotient-go/quotient"
)

var none quotient.Pool

// parsed are contents of files, and the pool or the error that they are read as.
var parsed = []struct {
	content string
	want    quotient.Pool
	says    string
}{
	{"1", quotient.Pool{Replicas: 1}, ""},
	{" 12\r\n", quotient.Pool{Replicas: 12}, ""},
	{"1000000", quotient.Pool{Replicas: 1000000}, ""},
	{`{"replicas":5}`, quotient.Pool{Replicas: 5}, ""},
	{"\n{ \"ordinal\" : 2 , \"replicas\" : 5 }\n", quotient.Pool{Replicas: 5, Ordinal: 2}, ""},
	{`{"replicas":5,"ordinal":0,"fixed":false}`, quotient.Pool{Replicas: 5}, ""},
	{`{"replicas":5,"weight":1}`, quotient.Pool{Replicas: 5, Weight: 1}, ""},
	{`{"weight":5,"replicas":5,"ordinal":1}`, quotient.Pool{Replicas: 5, Ordinal: 1, Weight: 5}, ""},
	{`{"weight":2,"replicas":5,"ordinal":4,"fixed":true}`,
		quotient.Pool{Replicas: 5, Ordinal: 4, Fixed: true, Weight: 2}, ""},
	{`{"replicas":5,"ordinal":5,"fixed":true}`, quotient.Pool{Replicas: 5, Ordinal: 5, Fixed: true}, ""},
	{"", none, "empty"},
	{"0", none, "Replicas: 0"},
	{"-3", none, "Replicas: -3"},
	{"1000001", none, "Replicas: 1000001"},
	{"99999999999999999999", none, `"99999999999999999999" is no whole number`},
	{"+5", none, `"+5" is no whole number`},
	{"05", none, `"05" is no whole number`},
	{"5.0", none, "no whole number"},
	{"5 6", none, "no whole number"},
	{"-0", none, "no whole number"},
	{"5\v", none, "no whole number"},
	{"\ufeff5", none, "no whole number"},
	{strings.Repeat("é", 100), none, `"` + strings.Repeat("é", 20) + `…"`},
	{`"5"`, none, "no whole number"},
	{"{}", none, "replicas is missing"},
	{"{", none, "no JSON object: unexpected EOF"},
	{`{"replicas":5`, none, "no JSON object"},
	{`{"replicas":5,}`, none, "no JSON object"},
	{`{"replicas":}`, none, "no JSON object"},
	{`{"replicas":5} x`, none, "something follows"},
	{`{"replicas":5,"replicas":6}`, none, `"replicas" comes twice`},
	{`{"Replicas":5}`, none, `"Replicas" is no field`},
	{`{"replicas":5,"size":6}`, none, `"size" is no field`},
	{`{"replicas":"5"}`, none, "replicas: "},
	{`{"replicas":null}`, none, `replicas: "null"`},
	{`{"replicas":5.5}`, none, `replicas: "5.5"`},
	{`{"replicas":5,"weight":0}`, none, "weight: 0"},
	{`{"replicas":5,"weight":-1}`, none, "Weight: -1"},
	{`{"replicas":5,"weight":6}`, none, "Weight: 6"},
	{`{"replicas":5,"weight":2,"ordinal":5}`, none, "Ordinal: 5"},
	{`{"replicas":5,"ordinal":6}`, none, "Ordinal: 6"},
	{`{"replicas":5,"ordinal":[1]}`, none, "ordinal: "},
	{`{"replicas":5,"ordinal":1,"fixed":1}`, none, "fixed: "},
	{`{"replicas":5,"fixed":true}`, none, "without an ordinal"},
}

func TestParse(t *testing.T) {
	for _, r := range parsed {
		got, err := parse(r.content)
		if got != r.want || (err != nil) != (r.says != "") ||
			err != nil && !strings.Contains(err.Error(), r.says) {
			t.Errorf("%q: %+v, %v; want %+v, %q", r.content, got, err, r.want, r.says)
		}
	}
}

// FuzzParse checks that no content panics. An accepted file is in range, is what encoding/json reads, and
// reads back from its plainest form. A refused file comes with a reason in bounded text.
func FuzzParse(f *testing.F) {
	for _, r := range parsed {
		f.Add(r.content)
	}
	for _, content := range []string{ // names: bad UTF-8, escaped, empty; depth
		"{\"replicas\xff\":5}", `{"\u0072eplicas":5}`, `{"":5}`, `{"replicas":` + strings.Repeat("[", 200),
	} {
		f.Add(content)
	}
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
