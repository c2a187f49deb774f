package admin

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/quotient-go/quotient/admin/pods"
	"github.com/quotient-go/quotient/internal/shown"
)

// Peers is the answer of GET /peers: the processes of a fleet, as the one that answers sees them.
type Peers struct {
	Time  time.Time `json:"time"`  // of the look at them
	Error string    `json:"error"` // why the list of the pods could not be read; "" for none
	Pods  []Peer    `json:"pods"`  // in the order of the list
}

// Peer is one process of a fleet. Sums are of all its limiters, since each was made. Where its limiters have different
// numbers, From is the lowest and To the highest of them.
type Peer struct {
	Name    string `json:"name"`    // of the replica, or else its address
	Address string `json:"address"` // host and port, or the path of a socket; "" of one that is not in its own list
	Self    bool   `json:"self"`    // it is the one that answers
	Error   string `json:"error"`   // why nothing else is known of it; "" for none

	Started      time.Time `json:"started,omitzero"` // absent: unknown
	Limiters     int       `json:"limiters"`
	ReplicasFrom int       `json:"replicas_from"` // replicas that it believes there are, each by its weight
	ReplicasTo   int       `json:"replicas_to"`
	ShareFrom    float64   `json:"share_from"` // of each limit, by division: 0 to 1; 0 while it awaits the count
	ShareTo      float64   `json:"share_to"`
	AgeSeconds   float64   `json:"age_seconds"` // of the oldest report of replicas; 0 where none is followed
	Admitted     uint64    `json:"admitted"`
	Refused      uint64    `json:"refused"`
	Waiting      int       `json:"waiting"`
	InFlight     int       `json:"in_flight"`
	Differs      []string  `json:"differs"` // what it has otherwise than most pods, such as "api: replicas 2, others 3"
}

// WithPeers shows the other processes of the fleet: GET /peers, and one row a pod on the page. Without it the route is
// answered with 404. The list may or may not have the process itself. The config is for pods of https; it may be nil,
// and is cloned.
//
// A request for GET /peers asks each pod for its GET /state, 16 at a time, each within two seconds and all within
// five. It looks the list up anew, follows no redirect, and asks no proxy. A bearer token that the handler has
// accepted is sent along: what a pod answers is what it shows to that caller. Callers without a token, who are known by
// a certificate or by their address, see what pods show to the process itself, by the certificate of the config.
//
// There is one look at a time, and its answer serves all who send the same token for a second. An answer of a pod has
// at most 4 MiB and 65,536 objects. The first 200 limiters by name are compared.
func WithPeers(list *pods.List, config *tls.Config) Option {
	return func(h *handler) {
		h.mustBe(list != nil, "WithPeers: list: nil")
		if list != nil {
			client := &http.Client{Transport: list.Transport(config)}
			h.peers = &peers{list, client, make(chan struct{}, 1), make(map[[sha256.Size]byte]Peers)}
		}
	}
}

const (
	peerPatience    = 2 * time.Second // for the answer of one pod
	peersPatience   = 5 * time.Second // for those of all
	peersFresh      = time.Second     // for which a look serves others
	mostPeerState   = 4 << 20         // bytes of an answer
	mostPeerObjects = 1 << 16         // of its JSON
	mostCompared    = 200             // limiters of a pod
	mostOdd         = 20              // lines of what one pod has otherwise
)

// peers are the looks at other processes. What follows place belongs to the goroutine that has put something in.
type peers struct {
	list   *pods.List
	client *http.Client
	place  chan struct{}
	done   map[[sha256.Size]byte]Peers // by the hash of the token that was sent: no more than the handler has
}

// getPeers answers with the pods as they are for the caller.
func (h *handler) getPeers(c *call) any {
	p := h.peers
	if p == nil {
		notFound(c.w, c.Request)
		return nil
	}
	select {
	case p.place <- struct{}{}:
		defer func() { <-p.place }()
		if found, ok := h.freshPeers(c); ok {
			return found
		}
	case <-c.Context().Done():
	}
	c.fail(http.StatusServiceUnavailable, Problem{Detail: "the request ended before there was a look at the pods"})
	return nil
}

// freshPeers is a look that serves the caller. Only the holder of the place may ask for it. What a look found for a
// caller that has gone meanwhile is no answer for others.
func (h *handler) freshPeers(c *call) (found Peers, ok bool) {
	p := h.peers
	secret, _ := h.bearer(c.Request)
	sum := sha256.Sum256([]byte(secret))
	found = p.done[sum]
	if c.Context().Err() == nil && time.Since(found.Time) >= peersFresh {
		found = h.lookAtPeers(c.Context(), secret)
	}
	if c.Context().Err() != nil {
		return found, false
	}
	maps.DeleteFunc(p.done, func(_ [sha256.Size]byte, old Peers) bool { return time.Since(old.Time) >= peersFresh })
	p.done[sum] = found
	return found, true
}

// lookAtPeers asks all pods of the list. This process is one of them, also where the list does not have it.
func (h *handler) lookAtPeers(ctx context.Context, secret string) Peers {
	ctx, cancel := context.WithTimeoutCause(ctx, peersPatience, fmt.Errorf("no answer in %v", peersPatience))
	defer cancel()
	found := Peers{Pods: []Peer{}}
	all, err := h.peers.list.Pods(ctx)
	if err != nil {
		found.Error = shorten(err.Error(), longestText)
	}
	var seen []map[string]facets
	add := func(p Peer, f map[string]facets) { found.Pods, seen = append(found.Pods, p), append(seen, f) }
	own := pods.Process{Replica: h.replica, Started: started.UTC()}
	has := false
	for _, a := range pods.Ask(ctx, all, peerPatience, h.peers.asker(secret, h.seed)) {
		p := a.Value.peer
		if p.Name, p.Address, p.Self = a.Name, a.Address, a.Err == nil && same(a.Process, own); a.Err != nil {
			p.Error = shorten(a.Err.Error(), longestText)
		}
		has = has || p.Self
		add(p, a.Value.facets)
	}
	if !has {
		p, f := newPeer(h.newState(maps.Collect(h.reg.All())), h.seed)
		p.Name, p.Self = h.replica, true
		add(p, f)
	}
	for i, odd := range oddOnes(seen) {
		found.Pods[i].Differs = odd
	}
	found.Time = time.Now()
	return found
}

func same(a, b pods.Process) bool { return a.Replica == b.Replica && a.Started.Equal(b.Started) }

// looked is what a look at one pod has come to.
type looked struct {
	peer   Peer
	facets map[string]facets // by limiter
}

// asker asks one pod for its state, and keeps what is shown of it.
func (p *peers) asker(secret string, seed maphash.Seed) func(context.Context, pods.Pod) (pods.Process, looked, error) {
	return func(ctx context.Context, pod pods.Pod) (pods.Process, looked, error) {
		opts := []ClientOption{BearerToken(secret), func(c *Client) { c.most, c.objects = mostPeerState, mostPeerObjects }}
		socket := strings.HasPrefix(pod.URL, "unix:")
		if !socket {
			opts = append(opts, HTTPClient(p.client))
		}
		c, err := NewClient(pod.URL, opts...)
		if err != nil {
			return pods.Process{}, looked{}, err
		}
		if socket {
			defer c.Close()
		}
		s, err := c.State(ctx)
		if err != nil {
			return pods.Process{}, looked{}, errors.New(strings.TrimPrefix(err.Error(), "admin: Client: "))
		}
		peer, facets := newPeer(s, seed)
		return pods.Process{Replica: s.Process.Replica, Started: s.Process.Started}, looked{peer, facets}, nil
	}
}

// newPeer sums up the state of one process.
func newPeer(s State, seed maphash.Seed) (Peer, map[string]facets) {
	p := Peer{Started: s.Process.Started, Limiters: len(s.Limiters), Differs: []string{}}
	seen := make(map[string]facets, min(len(s.Limiters), mostCompared))
	for i, name := range slices.Sorted(maps.Keys(s.Limiters)) {
		l := s.Limiters[name]
		share := 0.0
		if l.Pool.Source != "awaited" {
			share = float64(l.Pool.Weight) / float64(max(1, l.Pool.Replicas))
		}
		if i == 0 {
			p.ReplicasFrom, p.ShareFrom = l.Pool.Replicas, share
		}
		p.ReplicasFrom, p.ReplicasTo = min(p.ReplicasFrom, l.Pool.Replicas), max(p.ReplicasTo, l.Pool.Replicas)
		p.ShareFrom, p.ShareTo = min(p.ShareFrom, share), max(p.ShareTo, share)
		p.AgeSeconds = max(p.AgeSeconds, l.Pool.AgeSeconds)
		p.Admitted, p.Waiting, p.InFlight = p.Admitted+l.Admitted, p.Waiting+l.Waiting, p.InFlight+l.InFlight
		for _, n := range l.Refused {
			p.Refused += n
		}
		if i < mostCompared {
			seen[shown.Line(shorten(name, longestCell))] = newFacets(l, seed)
		}
	}
	return p, seen
}

// facets are what all pods should have alike of a limiter, as numbers: the replicas, hashes of the limit, the plans
// and the overrides, and 1 for a dry run.
type facets [5]uint64

// oddities say of each facet that a pod has it otherwise.
var oddities = [len(facets{})]func(own, other uint64) string{
	func(own, other uint64) string { return fmt.Sprintf("replicas %d, others %d", own, other) },
	func(_, _ uint64) string { return "another limit" },
	func(_, _ uint64) string { return "other plans" },
	func(_, _ uint64) string { return "other overrides" },
	func(own, _ uint64) string { return "dry run " + map[uint64]string{0: "off", 1: "on"}[own] },
}

func newFacets(l LimiterState, seed maphash.Seed) facets {
	hash := func(v any) uint64 {
		text, _ := json.Marshal(v) // it came as JSON, or is sent as such
		return maphash.Bytes(seed, text)
	}
	plans := make(map[string]LimitState)
	for _, p := range l.Plans {
		plans[p.Name] = p.Limit
	}
	overrides := make(map[string]LimitState) // but for when they end, which is not the same instant on all
	for _, o := range l.Overrides {
		overrides[o.Key] = o.Limit
	}
	f := facets{uint64(max(0, l.Pool.Replicas)), hash(l.Limit), hash(plans), hash([]any{l.OverrideCount, overrides}), 0}
	if l.DryRun {
		f[4] = 1
	}
	return f
}

// oddOnes returns what each pod has otherwise than most of them; nil stands for a pod of which nothing is known.
// Where no value is more frequent than another one, all pods differ.
func oddOnes(seen []map[string]facets) [][]string {
	tallies, known := newTallies(seen)
	odd, names := make([][]string, len(seen)), slices.Sorted(maps.Keys(tallies))
	for i, pod := range seen {
		odd[i] = []string{}
		for _, name := range names {
			t := tallies[name]
			f, has := pod[name]
			switch rare := 2*t.pods < known; {
			case pod == nil:
			case !has && !rare:
				odd[i] = append(odd[i], name+": not there")
			case has && rare:
				odd[i] = append(odd[i], name+": not there on others")
			case has:
				odd[i] = append(odd[i], t.odd(name, f)...)
			}
		}
		if more := len(odd[i]) - mostOdd; more > 0 {
			odd[i] = append(odd[i][:mostOdd], fmt.Sprintf("%d more", more))
		}
	}
	return odd
}

// newTallies is a tally for each limiter, and of how many pods something is known.
func newTallies(seen []map[string]facets) (tallies map[string]*tally, known int) {
	tallies = make(map[string]*tally)
	for _, pod := range seen {
		if pod != nil {
			known++
		}
		for name, f := range pod {
			if tallies[name] == nil {
				tallies[name] = new(tally)
			}
			tallies[name].add(f)
		}
	}
	return tallies, known
}

// tally counts the pods that have a limiter, and each value of its facets.
type tally struct {
	pods   int
	counts [len(facets{})]map[uint64]int
}

func (t *tally) add(f facets) {
	t.pods++
	for k, v := range f {
		if t.counts[k] == nil {
			t.counts[k] = make(map[uint64]int)
		}
		t.counts[k][v]++
	}
}

// odd is what differs from the values that more pods have, or as many.
func (t *tally) odd(name string, f facets) (lines []string) {
	for k, own := range f {
		other, most := uint64(0), 0
		for v, n := range t.counts[k] {
			if v != own && (n > most || n == most && v < other) {
				other, most = v, n
			}
		}
		if most >= t.counts[k][own] {
			lines = append(lines, name+": "+oddities[k](own, other))
		}
	}
	return lines
}
