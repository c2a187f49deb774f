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
	what  string    // was done, for the log
	field string    // to blame when a limiter refuses
	value string    // that it has; "" for one that the answer leaves out
	own   *override // nil: it is of no single key's limit
	all   bool      // it is for all limiters when none is named
	deed  bool      // it may change more than show shows, and is logged in any case
	show  func(l *quotient.Limiter) slog.Value
	apply func(l *quotient.Limiter) error
	warn  func(l *quotient.Limiter) // logs what is suspicious in it, after it was made; nil: nothing is
	// try returns the error that apply would, and sets nothing, though it may evict an idle key. Nil: there is none.
	try func(l *quotient.Limiter) error
}

// putter is the route that writes what parse makes of a body.
func putter(parse func(body []byte) (change, *Problem)) server {
	return answering(func(h *handler, c *call) any {
		validate := c.flag("validate")
		v := readBody(c, parse)
		if c.bad != nil {
			return nil
		}
		return h.on(c, v, validate)
	}, "limiter", "validate")
}

// on chooses the limiters of a change and makes it for each, unless one is not in the state that the writer has
// seen. The lock is held from the comparison to the state that is answered, so the tag in the answer is that
// of the change. With validate it only finds out whether they would take the change.
func (h *handler) on(c *call, v change, validate bool) any {
	h.writing.Lock()
	defer h.writing.Unlock()
	chosen := h.chooseSome(c, v.all)
	if c.bad != nil {
		return nil
	}
	if c.precondition(h.tagOf(chosen), "the limiter was changed since"); c.bad != nil {
		return nil
	}
	was := make(map[string]*OverrideState)
	for _, name := range slices.Sorted(maps.Keys(chosen)) {
		l := chosen[name]
		if v.own != nil && !validate {
			was[name] = v.own.of(l)
		}
		if err := h.make(c, v, name, l, validate); err != nil {
			c.notMade(v, name, err)
			return nil
		}
	}
	s := h.newState(chosen)
	for name, own := range was {
		l := s.Limiters[name]
		l.Was = own
		s.Limiters[name] = l
	}
	return s
}

// make makes a change of a limiter, or only tries it.
func (h *handler) make(c *call, v change, name string, l *quotient.Limiter, try bool) error {
	// A limit can always be taken off, and a request has had a key that is remembered.
	if v.own != nil && v.own.limit != nil && h.checkKey != nil && !l.Explain(v.own.key).Remembered {
		if err := h.checkKey(name, v.own.key); err != nil {
			return err
		}
	}
	switch {
	case !try:
		return h.commit(c, v, name, l)
	case v.try != nil:
		return v.try(l)
	}
	return nil
}

// notMade is the refusal of a limiter, such as of three units, too many overrides or plans, or a key that it never has.
func (c *call) notMade(v change, name string, err error) {
	if errors.Is(err, errNotKept) {
		c.fail(http.StatusInternalServerError, Problem{Detail: err.Error()})
		return
	}
	c.fail(http.StatusUnprocessableEntity, Problem{
		Detail: err.Error(), Field: v.field, Value: v.value, Range: "what limiter " + name + " takes as it stands",
	})
}

// commit makes the change once it is kept, and logs it if there is one. The limiter has no line of it: one change is
// one line.
func (h *handler) commit(c *call, v change, name string, l *quotient.Limiter) error {
	old := v.show(l)
	forget, err := h.keep(v, name, l)
	if err != nil {
		return err
	}
	if err := v.apply(l); err != nil {
		return errors.Join(err, forget())
	}
	now := v.show(l)
	if !v.deed && now.Equal(old) {
		return nil
	}
	who, _ := h.identify(c.Request, false)
	h.log.Info("quotient: "+v.what+" by an operator", "limiter", name,
		slog.Attr{Key: "old", Value: old}, slog.Attr{Key: "new", Value: now}, "from", c.RemoteAddr, "by", who.name)
	if v.warn != nil {
		v.warn(l)
	}
	return nil
}

// precondition compares If-Match with the tag of what is there, "" for several limiters.
func (c *call) precondition(tag, changed string) {
	given := c.Header.Values("If-Match")
	if len(given) == 0 || matches(given, tag) {
		return
	}
	bad := Problem{Detail: changed, Field: "If-Match", Value: clip(strings.Join(given, ", ")), Range: tag}
	if tag == "" {
		bad.Detail, bad.Range = "several limiters have no tag; name one with ?limiter=", "*"
	}
	c.fail(http.StatusPreconditionFailed, bad)
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

// readBody reads what parse makes of the JSON text of a request. A body whose Content-Length is too long is not read at all,
// others up to the bound; the connection then ends.
func readBody[T any](c *call, parse func(body []byte) (T, *Problem)) (v T) {
	if c.bad != nil {
		return v
	}
	contentType := strings.Join(c.Header.Values("Content-Type"), ", ")
	if media, _, err := mime.ParseMediaType(contentType); err != nil || media != "application/json" {
		c.fail(http.StatusUnsupportedMediaType, Problem{
			Detail: "the Content-Type is not application/json",
			Field:  "Content-Type", Value: clip(contentType), Range: "application/json",
		})
		return v
	}
	if c.ContentLength > maxBody {
		c.tooLarge(strconv.FormatInt(c.ContentLength, 10) + " bytes")
		return v
	}
	body, err := io.ReadAll(http.MaxBytesReader(c.w, c.Body, maxBody))
	switch over := (*http.MaxBytesError)(nil); {
	case errors.As(err, &over):
		hangUp(c.w)
		c.tooLarge("more")
	case err != nil:
		c.fail(http.StatusBadRequest, Problem{Detail: "the body could not be read", Field: "body"})
	default:
		v, c.bad = parse(body)
	}
	return v
}

func (c *call) tooLarge(sent string) {
	c.w.Header().Set("Connection", "close")
	c.fail(http.StatusRequestEntityTooLarge, Problem{
		Detail: "the body is too large", Field: "body", Value: sent, Range: fmt.Sprintf("at most %d bytes", maxBody),
	})
}

// hangUp reads nothing more of a body that went over the bound. The server would read some of the rest, in
// the hope of its end.
func hangUp(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now()) // a recorder of a test has no connection
}
