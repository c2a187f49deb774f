package lease

import (
	"net/http"
	"net/url"
	"strconv"
	"time"
)

func (s *Server) postNewPeer(w http.ResponseWriter, r *http.Request, _ place) {
	id, err := s.addPeer(w, r)
	if err != nil {
		refuse(w, r, err)
		return
	}
	answerJSON(w, http.StatusOK, strconv.FormatUint(id, 10))
}

func (s *Server) addPeer(w http.ResponseWriter, r *http.Request) (uint64, error) {
	o, err := readObject(r)
	if err != nil {
		return 0, err
	}
	expiresIn, err := o.expiresIn()
	if err != nil {
		return 0, err
	}
	id, grace, err := s.newPeer(expiresIn)
	answerGrace(w, grace)
	return id, err
}

func (s *Server) putPeer(w http.ResponseWriter, r *http.Request, p place) {
	if err := s.heartbeat(w, r, p); err != nil {
		refuse(w, r, err)
		return
	}
	answerText(w, http.StatusOK, "Ok")
}

func (s *Server) heartbeat(w http.ResponseWriter, r *http.Request, p place) error {
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
	for _, name := range broken {
		w.Header().Add("Lease-Broken", url.PathEscape(name))
	}
	return err
}

func (s *Server) deletePeer(w http.ResponseWriter, r *http.Request, p place) {
	id, err := p.peer()
	found := false
	if err == nil {
		err = s.do(func(t *Table, now time.Time) error {
			found = t.RemovePeer(id, now)
			return nil
		})
	}
	switch {
	case err != nil:
		refuse(w, r, err)
	case found:
		answerJSON(w, http.StatusOK, `"Peer released"`)
	default:
		answerJSON(w, http.StatusOK, `"Peer not found"`)
	}
}

func (s *Server) getAcquired(w http.ResponseWriter, r *http.Request, p place) {
	id, err := p.peer()
	acquired := false
	if err == nil {
		err = s.do(func(t *Table, now time.Time) (err error) {
			acquired, err = t.Acquired(id, now)
			return err
		})
	}
	if err != nil {
		refuse(w, r, err)
		return
	}
	answerJSON(w, http.StatusOK, strconv.FormatBool(acquired))
}

func (s *Server) postRestore(w http.ResponseWriter, r *http.Request, _ place) {
	if err := s.restore(w, r); err != nil {
		refuse(w, r, err)
		return
	}
	answerText(w, http.StatusOK, "Ok")
}

func (s *Server) restore(w http.ResponseWriter, r *http.Request) error {
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
	if len(beyond) > 0 {
		s.options.Log.Warn("lease: a peer was restored beyond the maximum", "peer", back.peer, "semaphores", beyond)
	}
	return err
}
