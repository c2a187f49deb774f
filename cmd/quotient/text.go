package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/quotient-go/quotient/config"
)

// The tables of a configuration file that the flags can say something about, in the order of the file. The
// names are those of package config.
type (
	fileText struct {
		Pool     poolText               `toml:"pool"`
		Limiters map[string]limiterText `toml:"limiters"`
		Proxy    proxyText              `toml:"proxy"`
	}
	poolText struct {
		Source   string `toml:"source,omitempty"`
		Replicas int    `toml:"replicas,omitempty"`
		Ordinal  int    `toml:"ordinal,omitempty"`
		Await    bool   `toml:"await,omitempty"`
		MaxAge   string `toml:"max-age,omitempty"`
	}
	limiterText struct {
		Rates    []rateText `toml:"rates,omitempty,inline"`
		InFlight int        `toml:"in-flight,omitempty"`
		Mode     string     `toml:"mode"`
		MaxWait  string     `toml:"max-wait,omitempty"`
		MaxKeys  int        `toml:"max-keys"`
		Policy   string     `toml:"policy"`
	}
	rateText struct {
		Name    string `toml:"name"`
		Events  int    `toml:"events"`
		Per     string `toml:"per"`
		Aligned bool   `toml:"aligned"`
	}
	proxyText struct {
		Listen    string     `toml:"listen"`
		Upstreams []string   `toml:"upstreams"`
		Rules     []ruleText `toml:"rules"`
		Admin     adminText  `toml:"admin"`
	}
	ruleText struct {
		Pattern string `toml:"pattern"`
		Limiter string `toml:"limiter"`
		Key     string `toml:"key"`
	}
	adminText struct {
		Listen string `toml:"listen"`
	}
)

// limiterName is what the limiter of the flags is called.
const limiterName = "path"

// How long a source may say nothing before --replicas counts. Without that flag the last answer counts for as
// long as a file can say: a source that is down must not make this proxy one of one.
const (
	silence = "1m"
	longest = "8760h"
)

// text returns the configuration file that equals the flags.
func (c *proxyCmd) text() ([]byte, error) {
	l := limiterText{InFlight: c.Inflight, Mode: "wait", MaxKeys: c.MaxKeys, Policy: c.Policy}
	if c.RPM != 0 {
		l.Rates = []rateText{{Name: "minute", Events: c.RPM, Per: "1m", Aligned: true}}
	}
	if c.Refuse {
		l.Mode = "refuse"
	}
	if c.MaxWait > 0 {
		l.MaxWait = c.MaxWait.String()
	}
	pool := poolText{Source: c.Pool, Replicas: c.Replicas, Ordinal: c.Ordinal}
	if c.Pool != "" {
		pool.Await, pool.MaxAge = true, longest
		if c.Replicas != 0 {
			pool.MaxAge = silence
		}
	}
	file := fileText{
		Pool:     pool,
		Limiters: map[string]limiterText{limiterName: l},
		Proxy: proxyText{
			Listen: c.Listen, Upstreams: c.Upstreams, Admin: adminText{Listen: c.Admin},
			Rules: []ruleText{{Pattern: "/", Limiter: limiterName, Key: string(config.KeyPath)}},
		},
	}
	var text bytes.Buffer
	fmt.Fprintln(&text, "# The file that equals the flags of: quotient proxy")
	if err := toml.NewEncoder(&text).Encode(file); err != nil {
		return nil, fmt.Errorf("flags: %w", err)
	}
	return text.Bytes(), nil
}

// parse returns the configuration that the flags make.
func (c *proxyCmd) parse() (*config.File, error) {
	text, err := c.text()
	if err != nil {
		return nil, err
	}
	file, err := config.Parse("flags", text)
	return file, c.named(err)
}

// named is an error with the names of flags, where there is no file.
func (c *proxyCmd) named(err error) error {
	var wrong config.Errors
	if c.Config == "" && errors.As(err, &wrong) {
		return ofFlags(wrong)
	}
	return err
}

// flagOf names the flag that a field of the file comes from.
var flagOf = map[string]string{
	"pool.source":                            "--pool",
	"pool.replicas":                          "--replicas",
	"pool.ordinal":                           "--ordinal",
	"limiters." + limiterName + ".rates":     "--rpm",
	"limiters." + limiterName + ".in-flight": "--inflight",
	"limiters." + limiterName + ".max-wait":  "--max-wait",
	"limiters." + limiterName + ".max-keys":  "--max-keys",
	"limiters." + limiterName + ".policy":    "--policy",
	"proxy.listen":                           "--listen",
	"proxy.upstreams":                        "UPSTREAM",
	"proxy.admin.listen":                     "--admin",
}

// ofFlags is what is wrong with the flags: fields go by the names of their flags, and positions are left out.
func ofFlags(wrong config.Errors) error {
	var lines []string
	for _, e := range wrong {
		line := e.Field + ": " + e.Text
		for field, flag := range flagOf {
			if rest, ok := strings.CutPrefix(e.Field, field); ok && (rest == "" || rest[0] == '[' || rest[0] == '.') {
				line = flag + ": " + e.Text
			}
		}
		if e.Hint != "" {
			line += " (" + e.Hint + ")"
		}
		lines = append(lines, line)
	}
	return usagef("%s", strings.Join(lines, "\n"))
}
