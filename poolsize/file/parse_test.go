package file

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/quotient-go/quotient"
)

func TestParse(t *testing.T) {
	rows := []struct {
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
		{"", quotient.Pool{}, "empty"},
		{"0", quotient.Pool{}, "Replicas: 0"},
		{"-3", quotient.Pool{}, "Replicas: -3"},
		{"1000001", quotient.Pool{}, "Replicas: 1000001"},
		{"99999999999999999999", quotient.Pool{}, `"99999999999999999999" is no whole number`},
		{"+5", quotient.Pool{}, `"+5" is no whole number`},
		{"05", quotient.Pool{}, `"05" is no whole number`},
		{"5.0", quotient.Pool{}, "no whole number"},
		{"1e3", quotient.Pool{}, "no whole number"},
		{"NaN", quotient.Pool{}, "no whole number"},
		{"5 6", quotient.Pool{}, "no whole number"},
		{"5\n6", quotient.Pool{}, "no whole number"},
		{"\ufeff5", quotient.Pool{}, "no whole number"},
		{strings.Repeat("é", 100), quotient.Pool{}, `"` + strings.Repeat("é", 20) + `…"`},
		{"[5]", quotient.Pool{}, "no whole number"},
		{`"5"`, quotient.Pool{}, "no whole number"},
		{"{}", quotient.Pool{}, "replicas is missing"},
		{"{", quotient.Pool{}, "no JSON object: unexpected EOF"},
		{`{"replicas":5`, quotient.Pool{}, "no JSON object"},
		{`{"replicas":5,}`, quotient.Pool{}, "no JSON object"},
		{`{"replicas":}`, quotient.Pool{}, "no JSON object"},
		{`{"replicas":5} x`, quotient.Pool{}, "something follows"},
		{`{"replicas":5}{}`, quotient.Pool{}, "something follows"},
		{`{"replicas":5,"replicas":6}`, quotient.Pool{}, `"replicas" comes twice`},
		{`{"Replicas":5}`, quotient.Pool{}, `"Replicas" is no field`},
		{`{"replicas":5,"size":6}`, quotient.Pool{}, `"size" is no field`},
		{`{"replicas":"5"}`, quotient.Pool{}, "replicas: "},
		{`{"replicas":null}`, quotient.Pool{}, `replicas: "null"`},
		{`{"replicas":5.5}`, quotient.Pool{}, `replicas: "5.5"`},
		{`{"replicas":5,"weight":0}`, quotient.Pool{}, "weight: 0"},
		{`{"replicas":5,"weight":-1}`, quotient.Pool{}, "Weight: -1"},
		{`{"replicas":5,"weight":6}`, quotient.Pool{}, "Weight: 6"},
		{`{"replicas":5,"weight":0.5}`, quotient.Pool{}, "weight: "},
		{`{"replicas":5,"weight":2,"weight":2}`, quotient.Pool{}, "twice"},
		{`{"replicas":5,"weight":2,"ordinal":5}`, quotient.Pool{}, "Ordinal: 5"},
		{`{"weight":2}`, quotient.Pool{}, "replicas"},
		{`{"replicas":5,"Weight":2}`, quotient.Pool{}, "no field"},
		{`{"replicas":5,"ordinal":6}`, quotient.Pool{}, "Ordinal: 6"},
		{`{"replicas":5,"ordinal":-1}`, quotient.Pool{}, "Ordinal: -1"},
		{`{"replicas":5,"ordinal":[1]}`, quotient.Pool{}, "ordinal: "},
		{`{"replicas":5,"ordinal":1,"fixed":1}`, quotient.Pool{}, "fixed: "},
		{`{"replicas":5,"fixed":true}`, quotient.Pool{}, "without an ordinal"},
	}
	for _, r := range rows {
		got, err := parse(r.content)
		if got != r.want || (err != nil) != (r.says != "") ||
			err != nil && !strings.Contains(err.Error(), r.says) {
			t.Errorf("%q: %+v, %v; want %+v, %q", r.content, got, err, r.want, r.says)
		}
	}
}

func TestErrorsAreDistinct(t *testing.T) {
	if _, err := read(fresh(t)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v is not %v", err, os.ErrNotExist)
	}
}
