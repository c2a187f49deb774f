package config

import (
	"bytes"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// place is where something stands in a text, from 1; the zero value is nowhere.
type place struct{ line, column int }

// places are those of the keys and values of a file in its text, by their paths: limiters.api.rates[0].per.
type places struct {
	keys, values map[string]place
}

// key is where a key stands, or else what it is in.
func (p *places) key(path string) place {
	if p == nil {
		return place{}
	}
	for end := len(path); end > 0; end = strings.LastIndexAny(path[:end], ".[") {
		if at, ok := p.keys[path[:end]]; ok { // no part of a name in quotes is a path
			return at
		}
	}
	return place{1, 1}
}

// has reports whether a key stands in the text.
func (p *places) has(path string) bool {
	if p == nil {
		return true
	}
	_, ok := p.keys[path]
	return ok
}

// value is where the value of a key stands, or else what it is in.
func (p *places) value(path string) place {
	if p != nil {
		if at, ok := p.values[path]; ok {
			return at
		}
	}
	return p.key(path)
}

func inner(path, name string) string {
	if name == "" || !isOf(name, "_-") { // it needs quotes
		name = strconv.Quote(name)
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

func element(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

type lines struct {
	text   []byte
	starts []int
}

func newLines(text []byte) *lines {
	l := &lines{text: text, starts: []int{0}}
	for i, c := range text {
		if c == '\n' {
			l.starts = append(l.starts, i+1)
		}
	}
	return l
}

// at is the place of an offset; columns are characters. One in the middle of a character is that of it.
func (l *lines) at(offset int) place {
	for offset > 0 && offset < len(l.text) && !utf8.RuneStart(l.text[offset]) {
		offset--
	}
	i := sort.SearchInts(l.starts, offset+1) - 1
	return place{i + 1, 1 + utf8.RuneCount(l.text[l.starts[i]:offset])}
}

// atColumn is the place of a line and a column in bytes.
func (l *lines) atColumn(line, column int) place {
	line = min(max(line, 1), len(l.starts))
	return l.at(min(l.starts[line-1]+max(column-1, 0), len(l.text)))
}

type indexer struct {
	parser unstable.Parser
	lines  *lines
	places *places
	arrays map[string]int // how many tables an array of tables has so far
	table  string         // the path of the table that the text is in
	count  int
	bytes  int // of the paths
}

const (
	// maxValues bounds the keys and values of a file: the time to read it grows with their square.
	maxValues = 20_000
	// maxPaths bounds the bytes of the paths of all of them: that of a key repeats the names of all that it is in.
	maxPaths = 16 << 20
)

var (
	errTooMany = errors.New("more than 20,000 keys and values")
	errTooLong = fmt.Errorf("names too long, or too many parts of keys: their paths have more than %d bytes", maxPaths)
)

// index finds the places of a text. A text that is no TOML has those up to the first error.
func index(text []byte, l *lines) (*places, error) {
	x := &indexer{
		lines: l, arrays: make(map[string]int),
		places: &places{keys: make(map[string]place), values: make(map[string]place)},
	}
	x.parser.Reset(text)
	for x.parser.NextExpression() {
		switch n := x.parser.Expression(); n.Kind {
		case unstable.Table:
			x.table = x.header(n, false)
		case unstable.ArrayTable:
			x.table = x.header(n, true)
		case unstable.KeyValue:
			x.pair(x.table, n)
		}
		if err := x.full(); err != nil {
			return x.places, err
		}
	}
	return x.places, nil
}

// full is an error as soon as there is more than is read.
func (x *indexer) full() error {
	switch {
	case x.count > maxValues:
		return errTooMany
	case x.bytes > maxPaths:
		return errTooLong
	}
	return nil
}

// pathIn is the path of a key or an element in another, made by inner or element, unless there is too much already.
func pathIn[T string | int](x *indexer, path string, in T, made func(string, T) string) string {
	if x.full() == nil {
		path = made(path, in)
		x.bytes += len(path)
	}
	return path
}

func (x *indexer) header(n *unstable.Node, array bool) string {
	path := ""
	for it := n.Key(); it.Next(); {
		path = pathIn(x, path, string(it.Node().Data), inner)
		x.note(x.places.keys, path, it.Node())
		if last := it.IsLast(); last && array {
			x.arrays[path]++
		}
		if n := x.arrays[path]; n > 0 {
			path = pathIn(x, path, n-1, element)
			x.note(x.places.keys, path, it.Node())
		}
	}
	return path
}

func (x *indexer) pair(path string, n *unstable.Node) {
	for it := n.Key(); it.Next(); {
		path = pathIn(x, path, string(it.Node().Data), inner)
		x.note(x.places.keys, path, it.Node())
	}
	x.value(path, n.Value())
}

func (x *indexer) value(path string, n *unstable.Node) {
	if n.Raw.Length > 0 {
		x.note(x.places.values, path, n)
	}
	if x.full() != nil {
		return
	}
	switch n.Kind {
	case unstable.InlineTable:
		for it := n.Children(); it.Next(); {
			if it.Node().Kind == unstable.KeyValue {
				x.pair(path, it.Node())
			}
		}
	case unstable.Array:
		i := 0
		for it := n.Children(); it.Next(); {
			if it.Node().Kind != unstable.Comment {
				x.value(pathIn(x, path, i, element), it.Node())
				i++
			}
		}
	}
}

// note keeps the first place of a path.
func (x *indexer) note(in map[string]place, path string, n *unstable.Node) {
	x.count++
	if _, ok := in[path]; !ok {
		in[path] = x.lines.at(int(n.Raw.Offset))
	}
}

// unmarshal reads a text into tables. Mistakes in its TOML are noted.
func unmarshal(r *report, text []byte, l *lines) map[string]any {
	var all map[string]any
	err := toml.Unmarshal(bytes.Clone(text), &all)
	if err == nil {
		return all
	}
	at, field := place{1, 1}, ""
	var decode *toml.DecodeError
	if errors.As(err, &decode) {
		at = l.atColumn(decode.Position())
		for _, name := range decode.Key() {
			field = inner(field, name)
		}
	}
	r.add(at, field, "", "%s", strings.TrimPrefix(err.Error(), "toml: "))
	return nil
}
