package dns

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/poolsize/internal/setting"
	"golang.org/x/net/dns/dnsmessage"
)

// finding is what a look-up has found: those that are listed, and how many there are beside them.
type finding struct {
	listed  quotient.Pool
	joins   int  // 1 when this replica knows its addresses, and none of them is listed
	answers int  // that tell whether the list was cut
	ports   bool // a target may count several times, for its ports
}

// pool is all that are known to be there. A replica that joins has no ordinal: place has found none.
func (f finding) pool() quotient.Pool {
	p := f.listed
	p.Replicas += f.joins
	return p
}

func (w *watcher) look(ctx context.Context) (finding, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(w.Timeout, defaultTimeout))
	defer cancel()
	find := w.addresses
	if w.SRV {
		find = w.targets
	}
	f, err := find(ctx)
	if err != nil {
		return finding{}, fmt.Errorf("dns: %s: %w", w.Name, err)
	}
	if f.listed.Replicas == 0 {
		return finding{}, fmt.Errorf("dns: %s: the list is empty", w.Name)
	}
	return f, nil
}

// targets counts SRV records. A record whose target is the root means that there is no such service.
func (w *watcher) targets(ctx context.Context) (finding, error) {
	_, records, err := w.resolver.LookupSRV(ctx, "", "", w.Name)
	if err != nil {
		return finding{}, err
	}
	hosts, pairs := map[string]struct{}{}, map[string]struct{}{}
	for _, r := range records {
		if host := strings.ToLower(strings.TrimSuffix(r.Target, ".")); host != "" {
			hosts[host] = struct{}{}
			pairs[host+":"+strconv.Itoa(int(r.Port))] = struct{}{}
		}
	}
	f := finding{listed: quotient.Pool{Replicas: len(pairs)}, answers: len(pairs)}
	if w.Hosts {
		f.listed.Replicas = len(hosts)
	} else {
		f.ports = len(pairs) > len(hosts) && w.Name[0] != '_' // else the name asks for one service
	}
	return f, nil
}

func (w *watcher) addresses(ctx context.Context) (finding, error) {
	found, err := w.resolver.LookupNetIP(ctx, "ip", w.Name)
	if err != nil {
		return finding{}, err
	}
	own := w.Own
	if own == nil {
		if own, err = setting.OwnAddrs(); err != nil {
			return finding{}, fmt.Errorf("own addresses: %w", err)
		}
	}
	listed := list(found)
	f := finding{listed: quotient.Pool{Replicas: len(listed), Ordinal: place(listed, own)}, answers: len(listed)}
	if len(own) > 0 && place(found, own) == 0 { // found has both families: listed by either is listed
		f.joins = 1
	}
	return f, nil
}

// list is the addresses that count, in order, each once: those of the family that has more, IPv4 if
// both have as many. A replica with addresses of both families is thus one replica, and all
// replicas make the same list of the same answers.
func list(found []netip.Addr) []netip.Addr {
	var v4, v6 []netip.Addr
	for _, a := range found {
		if a = a.Unmap(); a.Is4() {
			v4 = append(v4, a)
		} else {
			v6 = append(v6, a)
		}
	}
	v4, v6 = distinct(v4), distinct(v6)
	if len(v6) > len(v4) {
		return v6
	}
	return v4
}

func distinct(a []netip.Addr) []netip.Addr {
	slices.SortFunc(a, netip.Addr.Compare)
	return slices.Compact(a)
}

// place is where the first own address stands in a list, from 1; 0 when none does.
func place(listed, own []netip.Addr) int {
	return 1 + slices.IndexFunc(listed, func(a netip.Addr) bool {
		return slices.ContainsFunc(own, func(o netip.Addr) bool { return o.Unmap() == a.Unmap() })
	})
}

// resolver asks whom r asks, with Go's own resolver, since only that one can be ended. It is strict: when one
// of the two families fails, the other's addresses are not all there are. Each server has its part of the
// time, so that there is some for the next one: package net by itself waits 5 s for each.
func resolver(r *net.Resolver, part time.Duration) *net.Resolver {
	dial := (&net.Dialer{}).DialContext
	if r != nil && r.Dial != nil {
		dial = r.Dial
	}
	limited := func(ctx context.Context, network, server string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, part)
		c, err := dial(ctx, network, server)
		if err != nil {
			defer cancel()
			return nil, failure(ctx, "dial", network, err)
		}
		// Package net waits for a silent server until its own time-out, though no caller waits for net any more.
		context.AfterFunc(ctx, func() { cancel(); c.Close() })
		fail := func(err error) error { return failure(ctx, "read", network, err) }
		if p, ok := c.(packetConn); ok {
			return datagrams{p, fail}, nil
		}
		return &stream{Conn: c, fail: fail}, nil
	}
	return &net.Resolver{PreferGo: true, StrictErrors: true, Dial: limited}
}

// failure is an error that package net takes for a failure of the server. It takes the end of a context and an
// OpError for one, but not, say, the end of a stream: half a list would pass for all there is.
func failure(ctx context.Context, op, network string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if _, ok := err.(*net.OpError); ok {
		return err
	}
	return &net.OpError{Op: op, Net: network, Err: err}
}

// stream is a connection whose one answer is read whole, and fails unless it answers the whole question.
type stream struct {
	net.Conn
	fail   func(error) error
	answer *bytes.Reader // with its length before it; nil until it has come
}

func (s *stream) Read(b []byte) (int, error) {
	if s.answer == nil {
		m, err := s.receive()
		if err != nil {
			return 0, s.fail(err)
		}
		s.answer = bytes.NewReader(m)
	}
	return s.answer.Read(b)
}

// receive reads the answer and its length, which stands before it in two bytes (RFC 1035, 4.2.2).
func (s *stream) receive() ([]byte, error) {
	size := make([]byte, 2)
	if _, err := io.ReadFull(s.Conn, size); err != nil {
		return nil, err
	}
	m := make([]byte, binary.BigEndian.Uint16(size))
	if _, err := io.ReadFull(s.Conn, m); err != nil {
		return nil, err
	}
	if truncated(m) { // package net takes what it holds for all there is
		return nil, errTruncated
	}
	return append(size, m...), flaw(m)
}

// datagrams is a connection that takes an answer for truncated when it fills the whole buffer: a server that
// sends more than it was asked to has been cut there. Package net then asks again over TCP. Any other
// incomplete answer becomes a failure of the server, once net has checked the sender.
type datagrams struct {
	packetConn // package net tells it from a stream by its methods
	fail       func(error) error
}

type packetConn interface {
	net.Conn
	net.PacketConn
}

func (d datagrams) Read(b []byte) (int, error) {
	n, err := d.packetConn.Read(b)
	if err != nil {
		return 0, d.fail(err)
	}
	if n == len(b) && n > flagsAt {
		b[flagsAt] |= truncationBit
	}
	if m := b[:n]; !truncated(m) && flaw(m) != nil {
		spoil(m)
	}
	return n, nil
}

// Offsets in a message, and bits of its fields (RFC 1035, 4.1), for what is changed in place.
const (
	flagsAt       = 2 // one bit of this byte says truncated
	codeAt        = 3 // the lower half of this byte is the code
	questionsAt   = 4
	headerSize    = 12
	truncationBit = 0x02
	codeBits      = 0x0f
)

var (
	errTruncated = errors.New("the answer is truncated, over TCP too")
	errCut       = errors.New("the answer does not hold what it promises")
)

func truncated(m []byte) bool { return len(m) > flagsAt && m[flagsAt]&truncationBit != 0 }

// flaw is why a message does not say all that one question asks; nil when it does. Package net would believe the
// other answers, and those records of this one that it can read.
func flaw(m []byte) error {
	var p dnsmessage.Parser
	h, err := p.Start(m)
	if err != nil {
		return errCut
	}
	if h.RCode != dnsmessage.RCodeSuccess && h.RCode != dnsmessage.RCodeNameError {
		return fmt.Errorf("the server answers with code %d", h.RCode)
	}
	if questions, err := p.AllQuestions(); err != nil || len(questions) != 1 {
		return errCut
	}
	for {
		switch _, err := p.AnswerHeader(); {
		case errors.Is(err, dnsmessage.ErrSectionDone):
			return nil
		case err != nil || p.SkipAnswer() != nil:
			return errCut
		}
	}
}

// spoil makes a failure of the server out of an answer that has a flaw. The sender and the question stay.
func spoil(m []byte) {
	if len(m) < headerSize {
		return // package net drops it
	}
	m[codeAt] = m[codeAt]&^codeBits | byte(dnsmessage.RCodeServerFailure)
	clear(m[questionsAt:headerSize])
	m[questionsAt+1] = 1
}
