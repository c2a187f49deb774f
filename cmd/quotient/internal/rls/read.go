package rls

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/internal/files"
)

// Bounds of files.
const (
	maxFile   = 1 << 20 // bytes
	maxRules  = 999     // with the limiter for limits of requests as many as a file of package config has
	maxNodes  = 100_000 // of a file, and again for each alias
	maxDepth  = 32      // of descriptors, in a file and in a request
	maxIndent = 512     // spaces, and so levels of blocks
	maxFlow   = 64      // brackets that are open, and signs on one line that open a block
	maxErrors = 20      // that are reported
)

// Read reads YAML files of the reference service, each for a domain of its own. All that the reference refuses is
// refused, and so is what it accepts and would not be kept here. The error is config.Errors, with file, line and column
// of each mistake, or that of the first file that cannot be read.
func Read(paths []string) (*Rules, error) {
	r := newRules()
	for _, path := range paths {
		text, _, err := files.Read(context.Background(), path, maxFile)
		if err != nil {
			return nil, fmt.Errorf("ratelimit-files: %w", err)
		}
		if err := r.add(path, text); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func newRules() *Rules { return &Rules{domains: map[string]*node{}, named: map[string]*rule{}} }

// reader reads one file.
type reader struct {
	rules   *Rules
	file    string
	errs    config.Errors
	anchors map[string]ast.Node
	nodes   int
}

// add reads a file. After an error the rules are of no use.
func (r *Rules) add(file string, text []byte) error {
	d := &reader{rules: r, file: file, anchors: map[string]ast.Node{}}
	if root := d.parse(text); root != nil {
		d.root(root)
	}
	if len(d.errs) == 0 {
		return nil
	}
	slices.SortStableFunc(d.errs, func(a, b config.Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return d.errs[:min(len(d.errs), maxErrors)]
}

// wrong notes a mistake at a token; nil is the start of the file.
func (d *reader) wrong(at *token.Token, field, hint, format string, args ...any) {
	d.errs = append(d.errs, d.note(at, field, hint, format, args...))
}

func (d *reader) note(at *token.Token, field, hint, format string, args ...any) config.Error {
	e := config.Error{File: d.file, Line: 1, Column: 1, Field: field, Text: fmt.Sprintf(format, args...), Hint: hint}
	if at != nil && at.Position != nil {
		e.Line, e.Column = max(1, at.Position.Line), max(1, at.Position.Column)
	}
	return e
}

// parse returns the body of a file's one document; nil after a mistake.
func (d *reader) parse(text []byte) ast.Node {
	tokens := lexer.Tokenize(string(text))
	if at := tooDeep(tokens); at != nil {
		d.wrong(at, "", "", "nested too deep")
		return nil
	}
	f, err := parser.Parse(tokens, 0)
	if err != nil {
		if syntax, ok := errors.AsType[*yaml.SyntaxError](err); ok {
			d.wrong(syntax.Token, "", "", "%s", syntax.Message)
		} else {
			d.wrong(nil, "", "", "%v", err)
		}
		return nil
	}
	var body ast.Node
	for _, doc := range f.Docs {
		switch {
		case doc.Body == nil:
		case body != nil:
			d.wrong(doc.Body.GetToken(), "", "one domain a file", "a second document, which the reference ignores")
			return nil
		default:
			body = doc.Body
		}
	}
	if body == nil {
		d.wrong(nil, "domain", "", "it is missing")
	}
	return body
}

// tooDeep returns the first token that might nest values deeper than the parser, which calls itself, should go. A block
// is indented more than the one that it is in, unless both begin on one line.
func tooDeep(tokens token.Tokens) *token.Token {
	flow, opened, line := 0, 0, 0
	for _, t := range tokens {
		if t.Position.Line != line {
			opened, line = 0, t.Position.Line
		}
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			flow++
		case token.SequenceEndType, token.MappingEndType:
			flow--
		case token.SequenceEntryType, token.MappingKeyType, token.AnchorType, token.TagType:
			opened++
		}
		if flow > maxFlow || opened > maxFlow || t.Position.IndentNum > maxIndent {
			return t
		}
	}
	return nil
}

// fields reads the values of a mapping by their names.
type fields map[string]func(ast.Node)

// table reads a mapping. An unknown name is a mistake; the hint is where it belongs, if anywhere.
func (d *reader) table(n ast.Node, at string, known fields) {
	m := d.resolve(n)
	values, ok := entries(m)
	if !ok {
		if m != none {
			d.wrong(m.GetToken(), at, "", "it is no mapping")
		}
		return
	}
	for _, v := range values {
		key, ok := v.Key.(*ast.StringNode)
		if !ok {
			d.wrong(v.Key.GetToken(), at, "", "a key that is no string")
			continue
		}
		read := known[key.Value]
		switch where := belongs[key.Value]; {
		case read != nil:
			read(v.Value)
		case where != "":
			d.wrong(key.Token, dot(at, key.Value), "it belongs "+where, "it is not known here")
		default:
			names := strings.Join(slices.Sorted(maps.Keys(known)), ", ")
			d.wrong(key.Token, dot(at, key.Value), "it may be one of "+names, "unknown key")
		}
	}
}

// belongs is where each field of the reference has its place. The reference takes each in any place, and ignores it.
var belongs = map[string]string{
	"domain": "at the top", "descriptors": "at the top, and into a descriptor",
	"key": "into a descriptor", "value": "into a descriptor", "rate_limit": "into a descriptor",
	"shadow_mode": "beside rate_limit", "quota_mode": "beside rate_limit", "detailed_metric": "beside rate_limit",
	"value_to_metric": "beside key", "share_threshold": "beside value", "metadata": "into a descriptor",
	"unit": "into rate_limit", "requests_per_unit": "into rate_limit", "unlimited": "into rate_limit",
	"name": "into rate_limit, and into replaces", "replaces": "into rate_limit",
}

func entries(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	}
	return nil, false
}

// start is the first token of a value.
func start(n ast.Node) *token.Token {
	if values, _ := entries(n); len(values) > 0 {
		return values[0].Key.GetToken()
	}
	return n.GetToken()
}

func dot(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

// none stands for what is left out, and for what an alias may not stand for.
var none ast.Node = ast.Null(token.New("", "", &token.Position{Line: 1, Column: 1}))

// resolve returns what an anchor names, or an alias stands for. Each look counts, since aliases of aliases grow fast.
func (d *reader) resolve(n ast.Node) ast.Node {
	for {
		if d.nodes++; d.nodes > maxNodes {
			if d.nodes == maxNodes+1 {
				d.wrong(n.GetToken(), "", "", "more than %d values", maxNodes)
			}
			return none
		}
		switch is := n.(type) {
		case nil:
			return none
		case *ast.AnchorNode:
			d.anchors[is.Name.GetToken().Value] = is.Value
			n = is.Value
		case *ast.AliasNode:
			name := is.Value.GetToken().Value
			if n = d.anchors[name]; n == nil {
				d.wrong(is.GetToken(), "", "anchors come first", "no anchor %q", name)
				return none
			}
		default:
			return n
		}
	}
}

// list calls read with each mapping of a list.
func (d *reader) list(n ast.Node, at string, read func(n ast.Node, at string)) {
	switch is := d.resolve(n).(type) {
	case *ast.NullNode:
	case *ast.SequenceNode:
		for i, v := range is.Values {
			read(v, at+"["+strconv.Itoa(i)+"]")
		}
	default:
		d.wrong(is.GetToken(), at, "", "it is no list")
	}
}

// text reads a scalar as its text in the file, as the reference does: true and 5 are texts too.
func (d *reader) text(into *string, at string) func(ast.Node) {
	return func(n ast.Node) {
		switch is := d.resolve(n).(type) {
		case *ast.StringNode:
			*into = is.Value
		case *ast.LiteralNode:
			*into = is.Value.Value
		case *ast.NullNode:
		case *ast.IntegerNode, *ast.BoolNode:
			*into = is.GetToken().Value
		default:
			d.wrong(is.GetToken(), at, "put it in quotes", "it is no string, whole number or boolean")
		}
	}
}

// plain is the text of a scalar without quotes.
func plain(n ast.Node) (string, bool) {
	switch n.(type) {
	case *ast.StringNode, *ast.IntegerNode, *ast.BoolNode:
		t := n.GetToken()
		return t.Value, t.Type != token.SingleQuoteType && t.Type != token.DoubleQuoteType
	}
	return "", false
}

// flag reads a boolean of YAML 1.1, as the reference does.
func (d *reader) flag(into *bool, at string) func(ast.Node) {
	return func(n ast.Node) {
		is := d.resolve(n)
		if _, empty := is.(*ast.NullNode); empty {
			return
		}
		text, ok := plain(is)
		switch lower := strings.ToLower(text); {
		case ok && slices.Contains([]string{"true", "yes", "on", "y"}, lower):
			*into = true
		case ok && slices.Contains([]string{"false", "no", "off", "n"}, lower):
			*into = false
		default:
			d.wrong(is.GetToken(), at, "", "it is neither true nor false")
		}
	}
}

// number reads a whole number of 32 bits.
func (d *reader) number(into *uint32, at string) func(ast.Node) {
	return func(n ast.Node) {
		is := d.resolve(n)
		if _, empty := is.(*ast.NullNode); empty {
			return
		}
		text, ok := plain(is)
		v, err := strconv.ParseUint(strings.ReplaceAll(text, "_", ""), 0, 32)
		if !ok || err != nil {
			d.wrong(is.GetToken(), at, "", "it is no whole number from 0 to 4294967295")
			return
		}
		*into = uint32(v)
	}
}

// root reads the top of a file.
func (d *reader) root(n ast.Node) {
	var domain string
	var descriptors ast.Node
	d.table(n, "", fields{
		"domain": d.text(&domain, "domain"), "descriptors": func(n ast.Node) { descriptors = n },
	})
	at := start(n)
	switch _, taken := d.rules.domains[domain]; {
	case len(d.errs) > 0:
		return
	case domain == "":
		d.wrong(at, "domain", "", "it is missing or empty")
		return
	case taken:
		d.wrong(at, "domain", "put its descriptors into one file", "duplicate domain %q", domain)
		return
	}
	top := new(node)
	d.rules.domains[domain] = top
	if descriptors != nil {
		d.descriptors(descriptors, "descriptors", above{top, domain, 0})
	}
}

// above is what a list of descriptors is in.
type above struct {
	node  *node
	path  string // as the reference's statistics name it
	depth int
}

func (d *reader) descriptors(n ast.Node, at string, in above) {
	if in.depth == maxDepth {
		d.wrong(n.GetToken(), at, "", "more than %d levels of descriptors", maxDepth)
		return
	}
	d.list(n, at, func(n ast.Node, at string) { d.descriptor(n, at, in) })
}

// descriptor reads one descriptor, and those that are in it.
func (d *reader) descriptor(n ast.Node, at string, in above) {
	var key, value string
	var inner, limit ast.Node
	var shadow, detailed, valued bool
	here := &node{}
	before := len(d.errs)
	n = d.resolve(n)
	t := start(n)
	d.table(n, at, fields{
		"key": d.text(&key, dot(at, "key")), "value": d.text(&value, dot(at, "value")),
		"rate_limit":      func(n ast.Node) { limit = d.resolve(n) },
		"descriptors":     func(n ast.Node) { inner = n },
		"shadow_mode":     d.flag(&shadow, dot(at, "shadow_mode")),
		"quota_mode":      d.flag(&here.quota, dot(at, "quota_mode")),
		"detailed_metric": d.flag(&detailed, dot(at, "detailed_metric")),
		"value_to_metric": d.flag(&valued, dot(at, "value_to_metric")),
		"share_threshold": d.flag(&here.share, dot(at, "share_threshold")),
		"metadata": func(n ast.Node) {
			d.wrong(n.GetToken(), dot(at, "metadata"), "take it out", "answers have no dynamic metadata")
		},
	})
	if len(d.errs) > before {
		return
	}
	here.composite = composite(key, value)
	here.open = in.node.open || value == "" || strings.Contains(key, "*") || strings.Contains(value, "*") && !here.share
	path := in.path + "." + here.composite
	if !d.place(t, at, path, key, here, in.node) {
		return
	}
	if _, null := limit.(*ast.NullNode); limit != nil && !null {
		d.limit(limit, dot(at, "rate_limit"), path, here, shadow)
	} else if shadow || here.quota {
		d.warn(t, at, "shadow_mode and quota_mode have no effect without a rate_limit beside them")
	}
	if detailed || valued {
		d.warn(t, at, "there are no metrics of single values: see the keys of the limiter")
	}
	if inner != nil {
		d.descriptors(inner, dot(at, "descriptors"), above{here, path, in.depth + 1})
	}
}

// composite is what the reference finds a descriptor by.
func composite(key, value string) string {
	if value == "" {
		return key
	}
	return key + "_" + value
}

// place puts a descriptor into the one that it is in, unless it may not be there.
func (d *reader) place(t *token.Token, at, path, key string, here, in *node) bool {
	wild := strings.Contains(here.composite, "*")
	switch _, taken := in.children[here.composite]; {
	case key == "":
		d.wrong(t, dot(at, "key"), "", "it is missing or empty")
	case taken:
		d.wrong(t, at, "", "duplicate descriptor %q", path)
	case here.share && !wild:
		d.wrong(t, dot(at, "share_threshold"), "give it a value with *", "it is set without a wildcard")
	default:
		if in.children == nil {
			in.children = map[string]*node{}
		}
		in.children[here.composite] = here
		if wild {
			here.parts = bytes.Split([]byte(here.composite), []byte("*"))
			in.wild = append(in.wild, here)
		}
		return true
	}
	return false
}

func (d *reader) warn(t *token.Token, at, text string) {
	d.rules.warnings = append(d.rules.warnings, d.note(t, at, "", "%s", text))
}

// limit reads rate_limit.
func (d *reader) limit(n ast.Node, at, path string, here *node, shadow bool) {
	var unit string
	var requests uint32
	var numbered bool
	l := &rule{path: path, shadow: shadow, open: here.open}
	before := len(d.errs)
	d.table(n, at, fields{
		"unit": d.text(&unit, dot(at, "unit")), "unlimited": d.flag(&l.unlimited, dot(at, "unlimited")),
		"requests_per_unit": func(n ast.Node) { numbered = true; d.number(&requests, dot(at, "requests_per_unit"))(n) },
		"name":              d.text(&l.name, dot(at, "name")),
		"replaces": func(n ast.Node) {
			d.list(n, dot(at, "replaces"), func(n ast.Node, at string) {
				l.replaces = append(l.replaces, "")
				d.table(n, at, fields{"name": d.text(&l.replaces[len(l.replaces)-1], dot(at, "name"))})
			})
		},
	})
	known := ratelimit.RateLimitResponse_RateLimit_Unit(
		ratelimit.RateLimitResponse_RateLimit_Unit_value[strings.ToUpper(unit)])
	t := start(n)
	switch {
	case len(d.errs) > before:
	case l.unlimited && (unit != "" || numbered):
		d.wrong(t, at, "take out one of them", "unlimited beside unit or requests_per_unit")
	case !l.unlimited && known == 0:
		d.wrong(t, dot(at, "unit"), "one of second, minute, hour, day, week, month and year", "%q is no unit", unit)
	case slices.Contains(l.replaces, ""):
		d.wrong(t, dot(at, "replaces"), "", "an entry without a name")
	case slices.Contains(l.replaces, l.name):
		d.wrong(t, dot(at, "replaces"), "", "it names the rule itself")
	default:
		l.limit = limitOf(requests, known, l.name)
		here.rule = l
		d.keep(t, at, l)
	}
}

// keep gives a rule its limiter.
func (d *reader) keep(t *token.Token, at string, l *rule) {
	if l.unlimited {
		return
	}
	l.limiter = limiterName(l.path)
	switch other := d.rules.named[l.limiter]; {
	case other != nil:
		d.wrong(t, at, "change a key or a value", "its limiter would have the name %q of another one", l.limiter)
	case len(d.rules.named) == maxRules:
		d.wrong(t, at, "let values without a rule of their own share one, or run several services",
			"more than %d rules", maxRules)
	default:
		l.index = len(d.rules.named)
		d.rules.named[l.limiter] = l
	}
}
