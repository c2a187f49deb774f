package dnstest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sort"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// Sizes of messages in bytes. A question of one name is at most 12 + 255 + 4 long, with EDNS0 some
// more; RFC 1035 gives a datagram 512, and 1,232 passes every network whole.
const (
	maxQuestion = 1232
	minDatagram = 512
	maxDatagram = 1232
	maxStream   = 1<<16 - 1
	maxUDP      = 1<<16 - 1 - 20 - 8 // what is left beside the headers of IPv4 and UDP
)

func (s *Server) serveUDP() {
	buf := make([]byte, maxQuestion)
	for {
		n, from, err := s.udp.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // the word of a client that has gone
		}
		if answer := s.answer(buf[:n], false); answer != nil {
			s.udp.WriteTo(answer, from)
		}
	}
}

func (s *Server) serveTCP() {
	for {
		c, err := s.tcp.Accept()
		if err != nil {
			return
		}
		if !s.admit(c) {
			c.Close()
			continue
		}
		s.wg.Go(func() { s.serveConn(c) })
	}
}

// admit keeps a connection for Close to close, unless there are too many.
func (s *Server) admit(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.conns) >= maxConns {
		return false
	}
	s.conns[c] = struct{}{}
	return true
}

// serveConn answers what comes over one connection, each message after two bytes of length.
func (s *Server) serveConn(c net.Conn) {
	defer func() {
		c.Close()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()
	buf := make([]byte, maxQuestion)
	for {
		c.SetDeadline(time.Now().Add(idle))
		if _, err := io.ReadFull(c, buf[:2]); err != nil {
			return
		}
		n := int(binary.BigEndian.Uint16(buf))
		if n > len(buf) {
			return
		}
		if _, err := io.ReadFull(c, buf[:n]); err != nil {
			return
		}
		answer := s.answer(buf[:n], true)
		if answer == nil {
			continue
		}
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)); err != nil {
			return
		}
	}
}

// answer is the answer to a message, nil for none.
func (s *Server) answer(message []byte, stream bool) []byte {
	q, err := parseQuestion(message)
	if errors.Is(err, errNoQuestion) {
		return nil
	}
	mode, r, exists := s.find(q.Name.String())
	a := reply{q: q, limit: limit(q, mode, stream)}
	switch {
	case mode == Silent:
		return nil
	case err != nil:
		a.code = dnsmessage.RCodeFormatError
	case mode == ServFail || mode == ServFailAAAA && q.Type == dnsmessage.TypeAAAA:
		a.code = dnsmessage.RCodeServerFailure
	case mode == Garbage:
		return a.garbage()
	case mode == NXDomain || mode != Empty && !exists:
		a.code = dnsmessage.RCodeNameError
	case mode != Empty:
		a.records = r.of(q)
	}
	if mode == Truncated {
		a.truncated, a.records = true, a.records[:(len(a.records)+1)/2]
	}
	return a.message()
}

func limit(q question, mode Mode, stream bool) int {
	switch {
	case stream:
		return maxStream
	case mode == Oversized:
		return maxUDP
	}
	return q.size
}

// of are the records that a question asks for.
func (r records) of(q question) (all []dnsmessage.ResourceBody) {
	if q.Class != dnsmessage.ClassINET {
		return nil
	}
	for _, a := range r.addrs {
		switch {
		case a.Is4() && q.Type == dnsmessage.TypeA:
			all = append(all, &dnsmessage.AResource{A: a.As4()})
		case !a.Is4() && q.Type == dnsmessage.TypeAAAA:
			all = append(all, &dnsmessage.AAAAResource{AAAA: a.As16()})
		}
	}
	for _, t := range r.srv {
		if target, _ := messageName(t.Target); q.Type == dnsmessage.TypeSRV { // SetSRV has refused invalid ones
			all = append(all,
				&dnsmessage.SRVResource{Priority: t.Priority, Weight: t.Weight, Port: t.Port, Target: target})
		}
	}
	return all
}

// question is what a client asks.
type question struct {
	head dnsmessage.Header
	dnsmessage.Question
	edns bool
	size int // of the largest datagram that the client takes
}

var (
	errNoQuestion = errors.New("no question") // nothing that may be answered
	errMalformed  = errors.New("malformed")
)

// parseQuestion reads a standard query with one question. After errMalformed the header is right, so that it can be
// answered; errNoQuestion is not to be answered.
func parseQuestion(m []byte) (question, error) {
	var p dnsmessage.Parser
	head, err := p.Start(m)
	if err != nil || head.Response {
		return question{}, errNoQuestion
	}
	q := question{head: head, size: minDatagram}
	asked, err := p.AllQuestions()
	_, answers := p.AnswerHeader()
	if head.OpCode != 0 || err != nil || len(asked) != 1 || answers != dnsmessage.ErrSectionDone ||
		p.SkipAllAnswers() != nil {
		return q, errMalformed
	}
	if _, err := p.AuthorityHeader(); err != dnsmessage.ErrSectionDone || p.SkipAllAuthorities() != nil {
		return q, errMalformed
	}
	q.Question = asked[0]
	if more, err := p.AdditionalHeader(); err == nil && more.Type == dnsmessage.TypeOPT {
		q.edns = true
		q.size = min(max(int(more.Class), minDatagram), maxDatagram)
	}
	return q, nil
}

// messageName is a name as a message holds it. "" and "." are the root.
func messageName(name string) (dnsmessage.Name, error) {
	n, err := dnsmessage.NewName(strings.TrimSuffix(name, ".") + ".")
	if err == nil {
		_, err = (&dnsmessage.Message{Questions: []dnsmessage.Question{{Name: n}}}).Pack() // which looks at its parts
	}
	if err != nil {
		return n, fmt.Errorf("name %q: %w", name, err)
	}
	return n, nil
}

// reply is an answer to be written.
type reply struct {
	q         question
	limit     int // of the message, in bytes
	code      dnsmessage.RCode
	truncated bool
	records   []dnsmessage.ResourceBody // of the kind that was asked for
}

// message writes the answer. Records that do not fit are left out, and the message has the mark of a truncated one.
func (a reply) message() []byte {
	return a.pack(sort.Search(len(a.records), func(i int) bool { return len(a.pack(i+1)) > a.limit }))
}

func (a reply) pack(n int) []byte {
	m := dnsmessage.Message{Header: dnsmessage.Header{
		ID: a.q.head.ID, Response: true, OpCode: a.q.head.OpCode, Authoritative: true, RCode: a.code,
		RecursionDesired: a.q.head.RecursionDesired, RecursionAvailable: true,
		Truncated: a.truncated || n < len(a.records),
	}}
	if a.q.Name.Length > 0 {
		m.Questions = []dnsmessage.Question{a.q.Question}
	}
	for _, body := range a.records[:n] {
		head := dnsmessage.ResourceHeader{Name: a.q.Name, Type: a.q.Type, Class: a.q.Class}
		m.Answers = append(m.Answers, dnsmessage.Resource{Header: head, Body: body})
	}
	if a.q.edns {
		root := dnsmessage.MustNewName(".")
		head := dnsmessage.ResourceHeader{Name: root, Type: dnsmessage.TypeOPT, Class: maxDatagram}
		m.Additionals = []dnsmessage.Resource{{Header: head, Body: &dnsmessage.OPTResource{}}}
	}
	packed, err := m.Pack()
	if err != nil {
		panic(err) // change and parseQuestion let no such name in
	}
	return packed
}

// garbage promises three records, and there is no record in it.
func (a reply) garbage() []byte {
	a.q.edns = false
	m := a.pack(0)
	m[7] = 3
	return append(m, 0xff, 0xff, 0xff, 0xff, 0xff)
}
