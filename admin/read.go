package admin

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/quotient-go/quotient"
)

// A call is a request of the API. The first error in it stays; what is read after it is empty.
type call struct {
	*http.Request
	w     http.ResponseWriter
	query map[string]string
	bad   *Problem
}

// fail notes the first error.
func (c *call) fail(status int, p Problem) {
	if c.bad == nil {
		p.Status = status
		c.bad = &p
	}
}

// wrong is fail for a parameter, with what was sent there.
func (c *call) wrong(p Problem) {
	p.Value = clip(p.Value)
	c.fail(http.StatusBadRequest, p)
}

// A server serves a route.
type server func(h *handler, w http.ResponseWriter, r *http.Request)

// answering serves what serve returns, unless something was wrong with the call. With nil serve has answered itself.
func answering(serve func(*handler, *call) any, params ...string) server {
	return func(h *handler, w http.ResponseWriter, r *http.Request) {
		c := &call{Request: r, w: w}
		c.readQuery(params)
		var answer any
		if c.bad == nil {
			answer = serve(h, c)
		}
		switch s, state := answer.(State); {
		case c.bad != nil:
			writeProblem(w, c.bad)
		case state:
			who, _ := h.identify(r, false)
			if s.May = []string{"read", "write"}; who.readOnly { // the page does not know what a proxy in front forbids
				s.May = s.May[:1]
			}
			writeState(w, r, s)
		case answer != nil:
			writeJSON(w, "application/json", http.StatusOK, answer)
		}
	}
}

// readQuery reads the parameters of the path. None may be unknown or come twice.
func (c *call) readQuery(names []string) {
	known := strings.Join(names, ", ")
	given, err := url.ParseQuery(c.URL.RawQuery)
	if err != nil {
		c.wrong(Problem{Detail: "the query cannot be read", Field: "query", Value: c.URL.RawQuery, Range: known})
		return
	}
	c.query = make(map[string]string, len(given))
	for _, name := range slices.Sorted(maps.Keys(given)) {
		switch {
		case !slices.Contains(names, name):
			c.wrong(Problem{Detail: "there is no such parameter", Field: clip(name), Value: given.Get(name), Range: known})
		case len(given[name]) > 1:
			c.wrong(Problem{Detail: "the parameter comes twice", Field: name, Value: given.Get(name), Range: known})
		}
		c.query[name] = given.Get(name)
	}
}

// flag reads a parameter that is 1, or left out.
func (c *call) flag(name string) bool {
	text, given := c.query[name]
	if given && text != "1" {
		c.wrong(Problem{Detail: "not a flag", Field: name, Value: text, Range: "1; leave it out for no"})
	}
	return given
}

// getState answers with all limiters, or with the one that was named, and its tag.
func (h *handler) getState(c *call) any {
	history := c.flag("history")
	chosen := h.choose(c)
	if c.bad != nil {
		return nil
	}
	h.samples.seen()
	_, named := c.query["limiter"]
	plain := named || h.file == nil && len(h.tables) == 0 // what the program adds has no tag, nor has the history
	tag := h.tagOf(chosen)
	if tag != "" && plain && !history && matches(c.Header.Values("If-None-Match"), tag) {
		c.w.Header().Set("ETag", tag)
		c.w.WriteHeader(http.StatusNotModified)
		return nil
	}
	s := h.newState(chosen)
	if !named {
		s.File, s.Tables = h.fileState(), h.currentTables()
	}
	if history {
		s.History = h.samples.history(s.Time, s.Limiters)
	}
	return s
}

// writeState answers with s, compressed if it is long and the client accepts that; the state of one limiter
// has its tag. A history is hundreds of numbers for each limiter: they are not put on lines of their own.
func writeState(w http.ResponseWriter, r *http.Request, s State) {
	if len(s.Limiters) == 1 {
		_, l := only(s.Limiters)
		w.Header().Set("ETag", l.ETag)
	}
	encode := func(v any) ([]byte, error) { return json.MarshalIndent(v, "", "  ") }
	if s.History != nil {
		encode = json.Marshal
	}
	body, err := encode(s)
	if err == nil {
		body = pack(w, r, append(body, '\n'))
	}
	writeBody(w, "application/json", http.StatusOK, body, err)
}

// stateJSON is the answer of GET /state for all limiters, on one line, but for May: all streams share it.
func (h *handler) stateJSON() ([]byte, error) {
	s := h.newState(maps.Collect(h.reg.All()))
	s.File, s.Tables = h.fileState(), h.currentTables()
	return json.Marshal(s)
}

// choose finds the limiter that the query names; without a name it is all of them.
func (h *handler) choose(c *call) map[string]*quotient.Limiter {
	name, given := c.query["limiter"]
	if !given {
		return maps.Collect(h.reg.All())
	}
	l, ok := h.reg.Get(name)
	if !ok {
		h.noLimiter(c, http.StatusNotFound, "there is no limiter of that name")
	}
	return map[string]*quotient.Limiter{name: l}
}

// chooseSome is choose for a request about one limiter, or about all of them if all is set. There must be one. A name
// may be left out when there is no choice.
func (h *handler) chooseSome(c *call, all bool) map[string]*quotient.Limiter {
	chosen := h.choose(c)
	if len(chosen) == 0 {
		h.noLimiter(c, http.StatusNotFound, "there is no limiter")
	}
	if len(chosen) > 1 && !all {
		h.noLimiter(c, http.StatusBadRequest, "there are several limiters, and none is named")
	}
	return chosen
}

// namesShown is how many names a refusal lists.
const namesShown = 20

func (h *handler) noLimiter(c *call, status int, detail string) {
	var names []string
	for known := range h.reg.All() {
		if len(names) == namesShown {
			names = append(names, "…")
			break
		}
		names = append(names, known)
	}
	c.fail(status, Problem{
		Detail: detail, Field: "limiter", Value: clip(c.query["limiter"]), Range: strings.Join(names, ", "),
	})
}

// only is the one limiter of a choice, or its state, and its name.
func only[L any](chosen map[string]L) (name string, l L) {
	for name, l = range chosen {
		break
	}
	return name, l
}

const (
	defaultTop = 20
	mostTop    = 1000
	longestKey = 4096 // bytes of a key in a path or an override
)

// getKeys answers with the hottest keys, or the most refused.
func (h *handler) getKeys(c *call) any {
	top, byRefused := c.top("keys", defaultTop), c.byRefused()
	name, l := only(h.chooseSome(c, false))
	if c.bad != nil {
		return nil
	}
	uses, err := h.scans.top(c.Context(), h.seen.number(l), l, top, byRefused)
	if err != nil {
		c.fail(http.StatusServiceUnavailable, Problem{Detail: "the request ended while others looked at all keys"})
		return nil
	}
	return newKeys(name, uses)
}

// byRefused reads by what keys are to be in order.
func (c *call) byRefused() bool {
	text, given := c.query["by"]
	if given && text != "refused" {
		c.wrong(Problem{Detail: "not an order of keys", Field: "by", Value: text, Range: "refused, or absent for the hottest"})
	}
	return given
}

// top reads how many of something are asked for.
func (c *call) top(of string, usual int) int {
	text, given := c.query["top"]
	if !given {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > mostTop {
		c.wrong(Problem{
			Detail: "not a number of " + of, Field: "top", Value: text,
			Range: fmt.Sprintf("a whole number from 1 to %d", mostTop),
		})
	}
	return n
}

// getExplain answers with where one key stands, in a plan where one is named.
func (h *handler) getExplain(c *call) any {
	key := c.key()
	name, l := only(h.chooseSome(c, false))
	if c.bad != nil {
		return nil
	}
	var opts []quotient.CallOption
	plan, given := c.query["plan"]
	if given {
		opts = append(opts, quotient.Plan(plan))
	}
	e, s := l.Explain(key, opts...), l.Stats()
	if e.Next.Reason == quotient.ReasonBadRequest {
		bad := Problem{
			Detail: "limiter " + name + " has no plan of that name", Field: "plan", Value: plan,
			Range: "empty for the limiter's own limit",
		}
		names := slices.Sorted(maps.Keys(s.Plans))
		for _, name := range names[:min(len(names), namesShown)] {
			bad.Range += ", " + name
		}
		c.wrong(bad)
		return nil
	}
	return newExplanation(name, e, s)
}

// key reads exactly one of key and key_base64.
func (c *call) key() string {
	key, plain := c.query["key"]
	text, coded := c.query["key_base64"]
	bad := Problem{Field: "key", Value: key, Range: "one of key and key_base64: " + keyRange}
	raw, ok := fromBase64(text)
	switch {
	case plain == coded:
		bad.Detail = "not one key to explain"
	case plain && len(key) > longestKey:
		bad.Detail = "too long"
	case plain:
		return key
	case ok:
		return raw
	default:
		bad.Detail, bad.Field, bad.Value = "not a key in base64", "key_base64", text
	}
	c.wrong(bad)
	return ""
}

var keyRange = fmt.Sprintf("a key of at most %d bytes; it may be empty", longestKey)

// fromBase64 reads a key in standard base64, with padding and nothing else.
func fromBase64(text string) (key string, ok bool) {
	raw, err := base64.StdEncoding.DecodeString(text)
	return string(raw), err == nil && len(raw) <= longestKey && base64.StdEncoding.EncodeToString(raw) == text
}
