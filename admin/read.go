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

// getState answers with all limiters, or with the one that was named, and its tag.
func (h *handler) getState(w http.ResponseWriter, r *http.Request) {
	query, bad := queryOf(r, "limiter", "history")
	if bad != nil {
		writeProblem(w, bad)
		return
	}
	history, bad := flagOf(query, "history")
	if bad != nil {
		writeProblem(w, bad)
		return
	}
	chosen, bad := h.choose(query)
	if bad != nil {
		writeProblem(w, bad)
		return
	}
	h.samples.seen()
	_, named := query["limiter"]
	whole := !named && h.adds() // what the program adds has no tag, nor has the history
	if tag := h.tagOf(chosen); tag != "" && !whole && !history && matches(r.Header.Values("If-None-Match"), tag) {
		w.Header().Set("ETag", tag)
		w.WriteHeader(http.StatusNotModified)
		return
	}
	var s State
	if whole {
		s = h.wholeState()
	} else {
		s = h.newState(chosen)
	}
	if history {
		s.History = h.samples.history(s.Time, s.Limiters)
	}
	h.answerState(w, r, s)
}

// flagOf reads a parameter that is 1, or left out.
func flagOf(query map[string]string, name string) (bool, *Problem) {
	text, given := query[name]
	if given && text != "1" {
		return false, &Problem{
			Status: http.StatusBadRequest, Detail: "not a flag", Field: name, Value: clip(text), Range: "1; leave it out for no",
		}
	}
	return given, nil
}

// answerState answers with s, and with what the caller may do.
func (h *handler) answerState(w http.ResponseWriter, r *http.Request, s State) {
	who, _ := h.identify(r, false)
	s.May = who.may()
	writeState(w, r, s)
}

// writeState answers with s, compressed if it is long and the client accepts that; the state of one limiter
// has its tag. A history is hundreds of numbers for each limiter: they are not put on lines of their own.
func writeState(w http.ResponseWriter, r *http.Request, s State) {
	if len(s.Limiters) == 1 {
		for _, l := range s.Limiters {
			w.Header().Set("ETag", l.ETag)
		}
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
	return json.Marshal(h.wholeState())
}

// queryOf reads the parameters of the path. None may be unknown or come twice.
func queryOf(r *http.Request, names ...string) (map[string]string, *Problem) {
	given, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, &Problem{
			Status: http.StatusBadRequest, Detail: "the query cannot be read",
			Field: "query", Value: clip(r.URL.RawQuery), Range: strings.Join(names, ", "),
		}
	}
	query := make(map[string]string, len(given))
	for _, name := range slices.Sorted(maps.Keys(given)) {
		bad := &Problem{Status: http.StatusBadRequest, Field: clip(name), Value: clip(given.Get(name)), Range: strings.Join(names, ", ")}
		switch {
		case !slices.Contains(names, name):
			bad.Detail = "there is no such parameter"
			return nil, bad
		case len(given[name]) > 1:
			bad.Detail = "the parameter comes twice"
			return nil, bad
		}
		query[name] = given.Get(name)
	}
	return query, nil
}

// choose finds the limiter that the query names; without a name it is all of them.
func (h *handler) choose(query map[string]string) (map[string]*quotient.Limiter, *Problem) {
	name, given := query["limiter"]
	if !given {
		return maps.Collect(h.reg.All()), nil
	}
	l, ok := h.reg.Get(name)
	if !ok {
		return nil, h.noLimiter(name, http.StatusNotFound, "there is no limiter of that name")
	}
	return map[string]*quotient.Limiter{name: l}, nil
}

// chooseOne is choose for a request about one limiter. A name may be left out when there is no choice.
func (h *handler) chooseOne(query map[string]string) (map[string]*quotient.Limiter, *Problem) {
	chosen, bad := h.choose(query)
	switch {
	case bad != nil:
		return nil, bad
	case len(chosen) == 0:
		return nil, h.noLimiter("", http.StatusNotFound, "there is no limiter")
	case len(chosen) > 1:
		return nil, h.noLimiter("", http.StatusBadRequest, "there are several limiters, and none is named")
	}
	return chosen, nil
}

// namesShown is how many names a refusal lists.
const namesShown = 20

func (h *handler) noLimiter(name string, status int, detail string) *Problem {
	var names []string
	for known := range h.reg.All() {
		if len(names) == namesShown {
			names = append(names, "…")
			break
		}
		names = append(names, known)
	}
	return &Problem{Status: status, Detail: detail, Field: "limiter", Value: clip(name), Range: strings.Join(names, ", ")}
}

// only is the one limiter of a choice, and its name.
func only(chosen map[string]*quotient.Limiter) (string, *quotient.Limiter) {
	for name, l := range chosen {
		return name, l
	}
	return "", nil
}

const (
	defaultTop = 20
	mostTop    = 1000
	longestKey = 4096 // bytes of a key in a path or an override
)

// getKeys answers with the hottest keys.
func (h *handler) getKeys(w http.ResponseWriter, r *http.Request) {
	query, bad := queryOf(r, "limiter", "top")
	if bad != nil {
		writeProblem(w, bad)
		return
	}
	top, bad := readTop(query, "keys", defaultTop)
	if bad != nil {
		writeProblem(w, bad)
		return
	}
	chosen, bad := h.chooseOne(query)
	if bad != nil {
		writeProblem(w, bad)
		return
	}
	name, l := only(chosen)
	uses, err := h.scans.top(r.Context(), h.seen.number(l), l, top)
	if err != nil {
		writeProblem(w, &Problem{Status: http.StatusServiceUnavailable, Detail: "the request ended while others looked at all keys"})
		return
	}
	writeJSON(w, "application/json", http.StatusOK, newKeys(name, uses))
}

// readTop reads how many of something are asked for.
func readTop(query map[string]string, of string, usual int) (int, *Problem) {
	text, given := query["top"]
	if !given {
		return usual, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > mostTop {
		return 0, &Problem{
			Status: http.StatusBadRequest, Detail: "not a number of " + of,
			Field: "top", Value: clip(text), Range: fmt.Sprintf("a whole number from 1 to %d", mostTop),
		}
	}
	return n, nil
}

// getExplain answers with where one key stands, in a plan where one is named.
func (h *handler) getExplain(w http.ResponseWriter, r *http.Request) {
	query, bad := queryOf(r, "limiter", "key", "key_base64", "plan")
	if bad != nil {
		writeProblem(w, bad)
		return
	}
	key, bad := keyOf(query)
	if bad != nil {
		writeProblem(w, bad)
		return
	}
	chosen, bad := h.chooseOne(query)
	if bad != nil {
		writeProblem(w, bad)
		return
	}
	name, l := only(chosen)
	var opts []quotient.CallOption
	plan, given := query["plan"]
	if given {
		opts = append(opts, quotient.Plan(plan))
	}
	e, s := l.Explain(key, opts...), l.Stats()
	if e.Next.Reason == quotient.ReasonBadRequest {
		writeProblem(w, noPlan(name, plan, s.Plans))
		return
	}
	writeJSON(w, "application/json", http.StatusOK, newExplanation(name, e, s.Pool))
}

// noPlan is the answer when a limiter has no plan of that name.
func noPlan(limiter, name string, plans []quotient.PlanStats) *Problem {
	bad := &Problem{
		Status: http.StatusBadRequest, Detail: "limiter " + limiter + " has no plan of that name", Field: "plan", Value: clip(name),
		Range: "empty for the limiter's own limit",
	}
	for _, p := range plans[:min(len(plans), namesShown)] {
		bad.Range += ", " + p.Name
	}
	return bad
}

// keyOf reads the key of a query: exactly one of key and key_base64.
func keyOf(query map[string]string) (string, *Problem) {
	key, plain := query["key"]
	text, coded := query["key_base64"]
	bad := &Problem{Status: http.StatusBadRequest, Field: "key", Value: clip(key), Range: "one of key and key_base64: " + keyRange}
	switch {
	case plain == coded:
		bad.Detail = "not one key to explain"
		return "", bad
	case plain && len(key) > longestKey:
		bad.Detail = "too long"
		return "", bad
	case plain:
		return key, nil
	}
	key, ok := fromBase64(text)
	if !ok {
		bad.Detail, bad.Field, bad.Value = "not a key in base64", "key_base64", clip(text)
		return "", bad
	}
	return key, nil
}

var keyRange = fmt.Sprintf("a key of at most %d bytes; it may be empty", longestKey)

// fromBase64 reads a key in standard base64, with padding and nothing else.
func fromBase64(text string) (key string, ok bool) {
	raw, err := base64.StdEncoding.DecodeString(text)
	return string(raw), err == nil && len(raw) <= longestKey && base64.StdEncoding.EncodeToString(raw) == text
}
