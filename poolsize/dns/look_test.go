package dns

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/poolsize/dns/dnstest"
	"golang.org/x/net/dns/dnsmessage"
)

// Types of questions, and codes of answers.
const (
	typeA     = int(dnsmessage.TypeA)
	typeAAAA  = int(dnsmessage.TypeAAAA)
	typeSRV   = int(dnsmessage.TypeSRV)
	noError   = byte(dnsmessage.RCodeSuccess)
	nameError = byte(dnsmessage.RCodeNameError)
)

// kind is what a message asks for.
func kind(m []byte) int { return int(binary.BigEndian.Uint16(m[behindQuestion(m)-4:])) }

// change is what becomes of an answer on its way.
type change func(m []byte) []byte

func untouched(m []byte) []byte { return m }

// short takes bytes from the end. The last 11 are the OPT record, an A record has 16 and an AAAA record 28.
func short(n int) change { return func(m []byte) []byte { return m[:len(m)-n] } }

// code is an answer without records.
func code(c byte) change {
	return func(m []byte) []byte {
		m[codeAt] = m[codeAt]&^codeBits | c
		clear(m[questionsAt+2 : headerSize])
		return m[:behindQuestion(m)]
	}
}

func behindQuestion(m []byte) int { return headerSize + bytes.IndexByte(m[headerSize:], 0) + 1 + 4 }

// bare is a header alone, which some servers send with an error.
func bare(m []byte) []byte {
	m[codeAt] |= 1
	clear(m[questionsAt:headerSize])
	return m[:headerSize]
}

func gone([]byte) []byte { return nil }

func questions(n byte) change { return func(m []byte) []byte { m[questionsAt+1] = n; return m } }

// label puts a byte where the first record's name begins.
func label(b byte) change { return func(m []byte) []byte { m[behindQuestion(m)] = b; return m } }

func garbage(m []byte) []byte {
	return append(m[:behindQuestion(m)], bytes.Repeat([]byte{0xff}, 40)...)
}

// packets is a datagram connection whose answers change on their way.
type packets struct {
	*net.UDPConn
	change change
}

func (c packets) Read(b []byte) (int, error) {
	n, err := c.UDPConn.Read(b)
	if err != nil {
		return n, err
	}
	return copy(b, c.change(b[:n])), nil
}

// bytewise is a stream whose answer changes on its way, and comes byte by byte.
type bytewise struct {
	net.Conn
	change change
	rest   *bytes.Reader
}

func (c *bytewise) Read(b []byte) (int, error) {
	if c.rest == nil {
		size := make([]byte, 2)
		if _, err := io.ReadFull(c.Conn, size); err != nil {
			return 0, err
		}
		m := make([]byte, binary.BigEndian.Uint16(size))
		if _, err := io.ReadFull(c.Conn, m); err != nil {
			return 0, err
		}
		if m = c.change(m); m != nil {
			m = append(binary.BigEndian.AppendUint16(nil, uint16(len(m))), m...)
		}
		c.rest = bytes.NewReader(m)
	}
	return c.rest.Read(b[:1])
}

// changing asks the server, and changes the answers to questions of one type. With over "tcp" all
// datagrams are truncated.
func changing(s *dnstest.Server, over string, asked int, c change) *net.Resolver {
	of := func(m []byte) []byte {
		if kind(m) == asked {
			return c(m)
		}
		return m
	}
	cut := func(m []byte) []byte { m[flagsAt] |= truncationBit; return m }
	return &net.Resolver{Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, s.Addr())
		if err != nil {
			return nil, err
		}
		switch u, ok := conn.(*net.UDPConn); {
		case !ok:
			return &bytewise{Conn: conn, change: of}, nil
		case over == "tcp":
			return packets{u, cut}, nil
		default:
			return packets{u, of}, nil
		}
	}}
}

// A part of the answers is no list: neither a part of one message, nor the answer for one family while the
// other family's is an error.
func TestHalfAnswers(t *testing.T) {
	rows := []struct {
		what   string
		asked  int
		change change
		want   int // 0 is an error
	}{
		{"untouched", typeAAAA, untouched, 5},
		{"without OPT", typeAAAA, short(11), 5},
		{"IPv6 lacks a byte", typeAAAA, short(11 + 1), 0},
		{"IPv6 lacks a record", typeAAAA, short(11 + 28), 0},
		{"IPv6 lacks a record and a bit", typeAAAA, short(11 + 28 + 4), 0},
		{"IPv4 lacks two records and a bit", typeA, short(11 + 2*16 + 4), 0},
		{"IPv4 lacks all records", typeA, short(11 + 3*16), 0},
		{"no IPv6", typeAAAA, code(noError), 3},
		{"no such name for IPv6", typeAAAA, code(nameError), 3},
		{"no IPv4", typeA, code(noError), 5},
		{"FORMERR for IPv6", typeAAAA, code(1), 0},
		{"NOTIMP for IPv6", typeAAAA, code(4), 0},
		{"REFUSED for IPv6", typeAAAA, code(5), 0},
		{"REFUSED for IPv4", typeA, code(5), 0},
		{"garbage for IPv6", typeAAAA, garbage, 0},
		{"two questions", typeAAAA, questions(2), 0},
		{"a label of 64 bytes", typeAAAA, label(64), 0},
		{"a pointer forward", typeAAAA, label(0xff), 0},
	}
	s := server(t)
	s.Set(name, append(run("10.0.0.1", 3), run("fd00::1", 5)...)...)
	for _, over := range []string{"udp", "tcp"} {
		for _, r := range rows {
			t.Run(over+" "+r.what, func(t *testing.T) {
				believes(t, s, false, changing(s, over, r.asked, r.change), r.want)
			})
		}
	}
	// A later datagram is not read as an answer over UDP: forged ones would be, too.
	believes(t, s, false, changing(s, "tcp", typeAAAA, bare), 0)
	believes(t, s, false, changing(s, "tcp", typeAAAA, gone), 0)
}

func TestHalfTargets(t *testing.T) {
	s := server(t)
	s.SetSRV(name, targets("a:1 b:1 c:1 d:1 e:1")...)
	for _, over := range []string{"udp", "tcp"} {
		believes(t, s, true, changing(s, over, typeSRV, untouched), 5)
		believes(t, s, true, changing(s, over, typeSRV, short(11+1)), 0)
		believes(t, s, true, changing(s, over, typeSRV, code(5)), 0)
	}
}

// believes fails unless a look-up finds so many; 0 is an error.
func believes(t *testing.T, s *dnstest.Server, srv bool, r *net.Resolver, want int) {
	t.Helper()
	src := source(s)
	src.SRV, src.Resolver = srv, r
	if want == 0 {
		fails(t, watching(t, src), "")
		return
	}
	says(t, watching(t, src), quotient.Pool{Replicas: want})
}

// One connection can be made, and no other: the family that was queried over it is not all there is.
func TestHalfTheConnections(t *testing.T) {
	s := server(t)
	s.Set(name, append(run("10.0.0.1", 3), run("fd00::1", 3)...)...)
	none := errors.New("no way there")
	for _, err := range []error{none, &net.OpError{Op: "dial", Net: "udp", Err: none}} {
		var dialed atomic.Int32
		src := source(s)
		src.Resolver = &net.Resolver{Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			if dialed.Add(1) > 1 {
				return nil, err
			}
			return (&net.Dialer{}).DialContext(ctx, network, s.Addr())
		}}
		fails(t, watching(t, src), none.Error())
	}
}

// The first server that a look-up asks is dead, and the second one, or the second attempt, is well.
func TestSecondServerIsQueried(t *testing.T) {
	for _, srv := range []bool{false, true} {
		t.Run(fmt.Sprint("srv ", srv), func(t *testing.T) {
			dead, well := server(t), server(t)
			dead.Fail(dnstest.Silent)
			well.Set(name, run("10.0.0.1", 5)...)
			well.SetSRV(name, targets("a:1 b:1 c:1 d:1 e:1")...)
			first := int32(2) // one question for each family goes to the dead server
			if srv {
				first = 1
			}
			var dialed atomic.Int32
			src := source(well)
			src.SRV, src.Timeout = srv, 800*time.Millisecond
			src.Resolver = &net.Resolver{Dial: func(ctx context.Context,
				network, _ string) (net.Conn, error) {
				addr := well.Addr()
				if dialed.Add(1) <= first {
					addr = dead.Addr()
				}
				return (&net.Dialer{}).DialContext(ctx, network, addr)
			}}
			reports := through(t, func(ctx context.Context, report func(quotient.Pool, error)) error {
				return src.Watch(ctx, func(p quotient.Pool, err error) {
					dialed.Store(0) // the next look-up begins with the dead server again
					report(p, err)
				})
			})
			finds(t, reports, quotient.Pool{Replicas: 5})
		})
	}
}

// finds waits for a pool; a busy machine may need some look-ups more.
func finds(t *testing.T, reports <-chan report, want quotient.Pool) {
	t.Helper()
	var r report
	for range 5 {
		if r = receive(t, reports); r.err == nil && r.pool == want {
			return
		}
	}
	t.Errorf("five look-ups: %+v, %v; want %+v", r.pool, r.err, want)
}

// A name of one part that ends with a dot is not looked for in the hosts file, where a machine lists itself.
func TestNameWithADotIsNotInTheHostsFile(t *testing.T) {
	s := server(t)
	s.Set("localhost.", run("10.0.0.1", 5)...)
	src := source(s)
	src.Name = "localhost."
	says(t, watching(t, src), quotient.Pool{Replicas: 5})
}

// answer is a message with a question for the name and so many A records.
func answer(records int) []byte {
	m := []byte{0x12, 0x34, 0x84, 0x80, 0, 1, byte(records >> 8), byte(records), 0, 0, 0, 0}
	m = append(m, "\x03web\x04test\x00\x00\x01\x00\x01"...)
	for i := range records {
		m = append(m, 0xc0, headerSize, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 10, 0, byte(i>>8), byte(i))
	}
	return m
}

// An answer that lacks its last byte, or any number of bytes, has a flaw; more bytes than it promises are
// none.
func TestFlawOfACutAnswer(t *testing.T) {
	for _, n := range []int{0, 1, 2, 300} {
		whole := answer(n)
		if err := flaw(whole); err != nil {
			t.Errorf("%d records: %v", n, err)
		}
		if err := flaw(append(answer(n), "and more"...)); err != nil {
			t.Errorf("%d records and more: %v", n, err)
		}
		for i := range whole {
			if flaw(whole[:i]) == nil {
				t.Errorf("%d records: no flaw in the first %d of %d bytes", n, i, len(whole))
			}
		}
	}
}

func TestFlawOfACode(t *testing.T) {
	for c := range byte(16) {
		m := answer(1)
		m[codeAt] |= c
		if err := flaw(m); (err == nil) != (c == noError || c == nameError) {
			t.Errorf("code %d: %v", c, err)
		}
	}
}

// FuzzFlaw holds: no message panics; one that is cut has a flaw if it had one before. A message that was
// spoiled is a failure of the server, with its id, its flags and its question, and no record.
func FuzzFlaw(f *testing.F) {
	whole, head := answer(2), []byte("\x12\x34\x84\x80\x00\x01\x00\x01\x00\x00\x00\x00")
	question := "\x03web\x04test\x00\x00\x01\x00\x01"
	record := "\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x05\x00\x04\x0a\x00\x00\x01"
	for _, m := range [][]byte{
		{}, whole, whole[:len(whole)-2], whole[:len(whole)-9], answer(0), head, // cut in data, in a record's head
		append(head, question+"\xc0"...), append(head, "\x3fweb"...), // cut in a pointer, in a name
		append(head, question+"\xff\x0c"+record[2:]...), append(head, question+"\x40"+record...), // no names
		append(head, question+record[:11]+"\xff"+record[12:]...), // data beyond the end
		append([]byte("\x12\x34\x84\x80\x00\x01\xff\xff\x00\x00\x00\x00"), question+record...),
		[]byte("\x12\x34\x84\x81\x00\x00\x00\x00\x00\x00\x00\x00"),
	} {
		f.Add(m)
	}
	f.Fuzz(func(t *testing.T, m []byte) {
		had := flaw(m) != nil
		if cut := m[:len(m)-min(1, len(m))]; had && flaw(cut) == nil {
			t.Fatalf("%x has a flaw, and not without its last byte", m)
		}
		was := bytes.Clone(m)
		spoil(m)
		if len(m) < headerSize {
			return
		}
		if !bytes.Equal(m[:codeAt], was[:codeAt]) || !bytes.Equal(m[headerSize:], was[headerSize:]) {
			t.Fatalf("%x becomes %x", was, m)
		}
		if m[codeAt]&codeBits != byte(dnsmessage.RCodeServerFailure) || flaw(m) == nil ||
			!bytes.Equal(m[questionsAt:headerSize], []byte{0, 1, 0, 0, 0, 0, 0, 0}) {
			t.Fatalf("spoiled: %x", m)
		}
	})
}
