package lease

import (
	"net/http"
	"net/url"
	"strconv"
	"time"
)

func (s *Server) postNewPeer(w http.ResponseWriter, r *http.Request, _ place) error {
	o, err := readObject(r)
	if err != nil {
		return err
	}
	expiresIn, err := o.expiresIn()
	if err != nil {
		return err
	}
	id, grace, err := s.newPeer(expiresIn)
	answerGrace(w, grace)
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, strconv.FormatUint(id, 10))
	return nil
}

// putPeer is a heartbeat.
func (s *Server) putPeer(w http.ResponseWriter, r *http.Request, p place) error {
	id, err := p.peer()
	if err != nil {
		return err
	}
	o, err := readObject(r)
	if err != nil {
		return err
	}
	expiresIn, err := o.expiresIn()
	if err != nil {
		return err
	}
	var broken []string
	var grace time.Duration
	err = s.do(func(t *Table, now time.Time) (err error) {
		grace = t.config.Grace
		broken, err = t.Heartbeat(id, expiresIn, now)
		return err
	})
	answerGrace(w, grace)
	if err != nil {
		return err
	}
	for _, name := range broken {
		w.Header().Add("Lease-Broken", url.PathEscape(name))
	}
	answerText(w, http.StatusOK, "Ok")
	return nil
}

func (s *Server) deletePeer(w http.ResponseWriter, _ *http.Request, p place) error {
	id, err := p.peer()
	if err != nil {
		return err
	}
	text := `"Peer not found"`
	err = s.do(func(t *Table, now time.Time) error {
		if t.RemovePeer(id, now) {
			text = `"Peer released"`
		}
		return nil
	})
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, text)
	return nil
}

func (s *Server) getAcquired(w http.ResponseWriter, _ *http.Request, p place) error {
	id, err := p.peer()
	if err != nil {
		return err
	}
	acquired := false
	err = s.do(func(t *Table, now time.Time) (err error) {
		acquired, err = t.Acquired(id, now)
		return err
	})
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, strconv.FormatBool(acquired))
	return nil
}

func (s *Server) postRestore(w http.ResponseWriter, r *http.Request, _ place) error {
	o, err := readObject(r)
	if err != nil {
		return err
	}
	back, err := o.restoration()
	if err != nil {
		return err
	}
	var beyond []string
	var grace time.Duration
	err = s.do(func(t *Table, now time.Time) (err error) {
		grace = t.config.Grace
		beyond, err = t.Restore(back.peer, back.expiresIn, back.locks, now)
		return err
	})
	answerGrace(w, grace)
	if err != nil {
		return err
	}
	if len(beyond) > 0 {
		s.options.Log.Warn("lease: a peer was restored beyond the maximum",
			"peer", back.peer, "semaphores", beyond)
	}
	answerText(w, http.StatusOK, "Ok")
	return nil
}
