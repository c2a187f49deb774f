package dnstest

import (
	"errors"
	"fmt"
	"sort"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

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
