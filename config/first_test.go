package config_test

import (
	"testing"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/config"
)

func TestFirst(t *testing.T) {
	f, err := config.Read("testdata/quotient.toml")
	if err != nil {
		t.Fatal(err)
	}
	reg := &quotient.Registry{}
	c, err := config.New(f, reg)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(c.State(), f.Proxy.Rules)
	if err := c.Reload(); err != nil {
		t.Fatal(err)
	}
	_, err = config.Parse("q.toml", []byte(`
[limiters.api]
rate = 5
rates = [{ events = -1, per = 5}]
Max_Keys = "x"
[limiters.b]
deny = true
in-flight = 3
mode = "wiat"
[pool]
source = "dns"
[proxy]
[[proxy.rules]]
pattern = "/a/"
limiter = "apo"
[[proxy.rules]]
pattern = "/a/{x}"
limiter = "b"
`))
	t.Log("\n" + err.Error())
}
