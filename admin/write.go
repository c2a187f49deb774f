package admin

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quotient-go/quotient"
)

// maxBody is the largest request body that is read, in bytes. A limit of sixteen rates needs about
// two thousand; the rest is room for names and white space.
const maxBody = 64 << 10

// A change is a write that was read and found to make sense.
type change struct {
	what  string // was done, for the log
	field string // to blame when a limiter refuses
	value string // that it has; "" for one that the answer leaves out
	all   bool   // it is for all limiters when none is named
	show  func(l *quotient.Limiter) slog.Value
	apply func(l *quotient.Limiter) error
	try   func(l *quotient.Limiter) error // returns what apply would, and sets nothing; nil if apply cannot fail
}

// putter is the route that writes what parse makes of a body.
func putter(parse func(body []byte) (change, *Problem)) func(*handler, http.ResponseWriter, *http.Request) {
	return func(h *handler, w http.ResponseWriter, r *http.Request) {
		query, bad := queryOf(r, "limiter", "validate")
		if bad != nil {
			writeProblem(w, bad)
			return
		}
		validate, bad := flagOf(query, "validate")
		if bad != nil {
			writeProblem(w, bad)
			return
		}
		body, bad := readBody(w, r)
		if bad != nil {
			writeProblem(w, bad)
			return
		}
		c, bad := parse(body)
		if bad != nil {
			writeProblem(w, bad)
			return
		}
		act := h.commit
		if validate {
			act = try
		}
		s, bad := h.on(r, c, query, act)
		if bad != nil {
			writeProblem(w, bad)
			return
		}
		h.answerState(w, r, s)
	}
}

// on chooses the limiters of a change and acts on each, unless one is not in the state that the writer has
// seen. The lock is held from the comparison to the state that is answered, so the tag in the answer is that
// of the change.
func (h *handler) on(r *http.Request, c change, query map[string]string, act action) (State, *Problem) {
	h.writing.Lock()
	defer h.writing.Unlock()
	choose := h.chooseOne
	if c.all {
		choose = h.choose
	}
	chosen, bad := choose(query)
	if bad != nil {
		return State{}, bad
	}
	if len(chosen) == 0 {
		return State{}, h.noLimiter("", http.StatusNotFound, "there is no limiter")
	}
	if bad := precondition(r.Header.Values("If-Match"), h.tagOf(chosen)); bad != nil {
		return State{}, bad
	}
	for _, name := range slices.Sorted(maps.Keys(chosen)) {
		if err := act(r, c, name, chosen[name]); err != nil {
			return State{}, refusedBy(name, c, err)
		}
	}
	return h.newState(chosen), nil
}

// An action is what is done with a change for a limiter.
type action func(r *http.Request, c change, name string, l *quotient.Limiter) error

// try only finds out whether the limiter would take the change.
func try(_ *http.Request, c change, _ string, l *quotient.Limiter) error {
	if c.try == nil {
		return nil
	}
	return c.try(l)
}

// commit makes the change.
func (h *handler) commit(r *http.Request, c change, name string, l *quotient.Limiter) error {
	old := c.show(l)
	if err := c.apply(l); err != nil {
		return err
	}
	who, _ := h.identify(r, false)
	h.log.Info("quotient: "+c.what+" by an operator", "limiter", name,
		slog.Attr{Key: "old", Value: old}, slog.Attr{Key: "new", Value: c.show(l)}, "from", r.RemoteAddr, "by", who.name)
	return nil
}

// refusedBy is the answer when a limiter does not take a change that is in range: it has learned three units,
// or has too many overrides or plans.
func refusedBy(name string, c change, err error) *Problem {
	return &Problem{
		Status: http.StatusUnprocessableEntity,
		Detail: err.Error(), Field: c.field, Value: c.value, Range: "what limiter " + name + " takes as it stands",
	}
}

// precondition compares If-Match with the tag of what is there, "" for several limiters.
func precondition(given []string, tag string) *Problem {
	if len(given) == 0 || matches(given, tag) {
		return nil
	}
	bad := &Problem{
		Status: http.StatusPreconditionFailed,
		Detail: "the limiter was changed since", Field: "If-Match", Value: clip(strings.Join(given, ", ")), Range: tag,
	}
	if tag == "" {
		bad.Detail, bad.Range = "several limiters have no tag; name one with ?limiter=", "*"
	}
	return bad
}

// matches reports whether a list of tags has the tag. "*" stands for any, but only alone: in a list it is no
// tag. A weak tag never matches: none is sent.
func matches(given []string, tag string) bool {
	list := strings.Split(strings.Join(given, ","), ",")
	for i := range list {
		list[i] = strings.Trim(list[i], " \t")
	}
	return len(list) == 1 && list[0] == "*" || tag != "" && slices.Contains(list, tag)
}

// readBody reads the JSON text of a request. A body whose Content-Length is too long is not read at all,
// others up to the bound; the connection then ends.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, *Problem) {
	contentType := r.Header.Get("Content-Type")
	if media, _, err := mime.ParseMediaType(contentType); err != nil || media != "application/json" {
		return nil, &Problem{
			Status: http.StatusUnsupportedMediaType,
			Detail: "the Content-Type is not application/json",
			Field:  "Content-Type", Value: clip(contentType), Range: "application/json",
		}
	}
	if r.ContentLength > maxBody {
		return nil, tooLarge(w, strconv.FormatInt(r.ContentLength, 10)+" bytes")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if over := (*http.MaxBytesError)(nil); errors.As(err, &over) {
		hangUp(w)
		return nil, tooLarge(w, "more")
	}
	if err != nil {
		return nil, &Problem{Status: http.StatusBadRequest, Detail: "the body could not be read", Field: "body"}
	}
	return body, nil
}

func tooLarge(w http.ResponseWriter, sent string) *Problem {
	w.Header().Set("Connection", "close")
	return &Problem{
		Status: http.StatusRequestEntityTooLarge,
		Detail: "the body is too large",
		Field:  "body", Value: sent, Range: fmt.Sprintf("at most %d bytes", maxBody),
	}
}

// hangUp reads nothing more of a body that went over the bound. The server would read some of the rest, in
// the hope of its end.
func hangUp(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now()) // a recorder of a test has no connection
}
