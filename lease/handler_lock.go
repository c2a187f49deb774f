package lease

import (
	"net/http"
	"strconv"
	"time"
)

func (s *Server) putLock(w http.ResponseWriter, r *http.Request, p place) {
	a, err := readAsk(r, p)
	token := uint64(0)
	if err == nil {
		token, err = s.acquire(r.Context(), a)
	}
	switch {
	case err != nil:
		refuse(w, r, err)
	case token == 0:
		answerJSON(w, http.StatusAccepted, strconv.FormatUint(a.peer, 10))
	default:
		w.Header()["Fencing-Token"] = []string{strconv.FormatUint(token, 10)}
		answerJSON(w, http.StatusOK, strconv.FormatUint(a.peer, 10))
	}
}

func readAsk(r *http.Request, p place) (a ask, err error) {
	a.semaphore = p.semaphore
	if a.peer, err = p.peer(); err != nil {
		return a, err
	}
	if a.blockFor, err = queryDuration(r, "block_for", 0); err != nil {
		return a, err
	}
	if a.expiresIn, err = queryDuration(r, "expires_in", unchanged); err != nil {
		return a, err
	}
	body, err := readJSON(r)
	if err != nil {
		return a, err
	}
	a.count, err = parseCount(body)
	return a, err
}

func (s *Server) deleteLock(w http.ResponseWriter, r *http.Request, p place) {
	id, err := p.peer()
	if err == nil {
		err = s.do(func(t *Table, now time.Time) error { return t.Release(id, p.semaphore, now) })
	}
	if err != nil {
		refuse(w, r, err)
		return
	}
	answerText(w, http.StatusOK, "Ok")
}
