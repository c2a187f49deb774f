package lease_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// clients are the clients of a script, and what each knows of its peer.
type clients []*client

type client struct {
	Peer      uint64            `json:"peer_id"`
	ExpiresIn string            `json:"expires_in"`
	Acquired  map[string]int64  `json:"acquired"`
	Tokens    map[string]uint64 `json:"tokens"`
	waits     string            // semaphore of the lock that is pending
	count     string
}

// restart puts an empty server in place. The clients restore what they hold, and ask again for what they
// wait for.
func (r *run) restart() {
	for _, c := range r.clients {
		if c.waits == "" {
			continue
		}
		a := r.ask(r.read(c.again(200)))
		if a.problem == "" { // granted meanwhile
			r.take(a)
		}
	}
	r.start()
	for _, c := range r.clients {
		body, _ := json.Marshal(c)
		r.take(r.ask(r.read("POST /restore " + string(body) + " -> 200 Ok")))
	}
	for _, c := range r.clients {
		if c.waits != "" {
			r.take(r.ask(r.read(c.again(202))))
		}
	}
}

// again is the line that asks again for the lock which is pending.
func (c *client) again(status int) string {
	return fmt.Sprintf("PUT /peers/%d/%s %s -> %d %d", c.Peer, url.PathEscape(c.waits), c.count,
		status, c.Peer)
}

// peer returns the client of a peer, which may be new.
func (c *clients) peer(id uint64) *client {
	if i := slices.IndexFunc(*c, func(c *client) bool { return c.Peer == id }); i >= 0 {
		return (*c)[i]
	}
	*c = append(*c, &client{Peer: id, ExpiresIn: "5m", Acquired: map[string]int64{},
		Tokens: map[string]uint64{}})
	return (*c)[len(*c)-1]
}

// learn takes over what a client knows after an answer.
func (c *clients) learn(a answer) error {
	if a.status >= 300 {
		return nil
	}
	u, err := url.Parse(a.target)
	if err != nil {
		return err
	}
	parts := strings.Split(strings.Trim(u.EscapedPath(), "/"), "/")
	for i := range parts {
		if parts[i], err = url.PathUnescape(parts[i]); err != nil {
			return err
		}
	}
	switch {
	case parts[0] == "new_peer":
		id, err := strconv.ParseUint(a.text, 10, 64)
		if err != nil {
			return err
		}
		return json.Unmarshal([]byte(a.body), c.peer(id))
	case parts[0] == "restore":
		back := client{Tokens: map[string]uint64{}}
		if err := json.Unmarshal([]byte(a.body), &back); err != nil {
			return err
		}
		waits, count := c.peer(back.Peer).waits, c.peer(back.Peer).count
		*c.peer(back.Peer) = back
		c.peer(back.Peer).waits, c.peer(back.Peer).count = waits, count
	case len(parts) == 2 && strings.HasPrefix(parts[0], "peer"):
		return c.learnPeer(a, parts[1])
	case len(parts) == 3 && a.method != http.MethodGet:
		return c.learnLock(a, u, parts)
	}
	return nil
}

func (c *clients) learnPeer(a answer, part string) error {
	id, err := strconv.ParseUint(part, 10, 64)
	if err != nil {
		return err
	}
	if a.method == http.MethodDelete {
		*c = slices.DeleteFunc(*c, func(c *client) bool { return c.Peer == id })
		return nil
	}
	return json.Unmarshal([]byte(a.body), c.peer(id))
}

func (c *clients) learnLock(a answer, u *url.URL, parts []string) error {
	id, err := strconv.ParseUint(parts[1], 10, 64)
	if err != nil {
		return err
	}
	k, name := c.peer(id), parts[2]
	if expiresIn := u.Query().Get("expires_in"); expiresIn != "" {
		k.ExpiresIn = expiresIn
	}
	if k.waits == name {
		k.waits = ""
	}
	switch {
	case a.method == http.MethodDelete:
		delete(k.Acquired, name)
		delete(k.Tokens, name)
	case a.status == http.StatusAccepted:
		k.waits, k.count = name, a.body
	default:
		if k.Acquired[name], err = strconv.ParseInt(strings.TrimSpace(a.body), 10, 64); err != nil {
			return err
		}
		k.Tokens[name], err = strconv.ParseUint(a.header.Get("Fencing-Token"), 10, 64)
	}
	return err
}
