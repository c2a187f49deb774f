package lease

import (
	"net/http"
	"strconv"
	"time"
)

func (s *Server) putLock(w http.ResponseWriter, r *http.Request, p place) error {
	a, err := readAsk(r, p)
	if err != nil {
		return err
	}
	token, err := s.acquire(r.Context(), a)
	if err != nil {
		return err
	}
	status := http.StatusAccepted
	if token != 0 {
		status = http.StatusOK
		w.Header()["Fencing-Token"] = []string{strconv.FormatUint(token, 10)}
	}
	answerJSON(w, status, strconv.FormatUint(a.peer, 10))
	return nil
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

func (s *Server) deleteLock(w http.ResponseWriter, _ *http.Request, p place) error {
	id, err := p.peer()
	if err != nil {
		return err
	}
	err = s.do(func(t *Table, now time.Time) error { return t.Release(id, p.semaphore, now) })
	if err != nil {
		return err
	}
	answerText(w, http.StatusOK, "Ok")
	return nil
}
