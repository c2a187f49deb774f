package gossip

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/tested"
	"pgregory.net/rapid"
)

// saysTaken waits for an error that names both addresses.
func (w *replica) saysTaken(t *testing.T, name, rival string) {
	t.Helper()
	w.says(fmt.Sprintf("the name %q is taken", name), w.Stats().Address, rival)
}

// If two replicas have one name, the earlier goes on. The later one reports no pool, but an error that names
// both addresses, until the earlier one has gone.
func TestDuplicateName(t *testing.T) {
	t.Parallel()
	a := start(t, config("a"))
	first := start(t, config("x", a.address()))
	first.Wants(2, 2)
	second := start(t, config("x", a.address()))
	second.saysTaken(t, "x", first.address())
	first.Counters().Add("k", 1)
	totals([]*replica{a, first}, "k", 1)
	second.silent(t)
	first.Leave()
	second.Wants(2, 2)
	a.Wants(2, 1)
	second.Counters().Add("k", 1)
	totals([]*replica{a, second}, "k", 2)
}

// Two halves of a fleet that meet, each with a replica of one name, count all, and say what is wrong.
func TestDuplicateNameOfTwoFleets(t *testing.T) {
	t.Parallel()
	a := start(t, config("x"))
	a.Wants(1, 1)
	b := start(t, config("x"))
	b.Wants(1, 1)
	c := start(t, config("y", a.address(), b.address()))
	for _, w := range []*replica{a, b, c} {
		w.Until("it counts three", func() bool { return w.Last().Replicas == 3 })
	}
	a.saysTaken(t, "x", b.address())
	b.saysTaken(t, "x", a.address())
	if a.Last().Ordinal+b.Last().Ordinal != 3 || c.Last().Ordinal != 3 {
		t.Errorf("the ordinals are %d, %d and %d", a.Last().Ordinal, b.Last().Ordinal, c.Last().Ordinal)
	}
}

// A replica that was killed and restarted at its address takes the place of the former one at once.
func TestRestartInPlace(t *testing.T) {
	t.Parallel()
	a := start(t, config("a"))
	c := config("x", a.address())
	c.Bind = deaf(t)
	p := startChild(t, c)
	p.does("set", 1)
	a.Wants(2, 1)
	must(t, p.Process.Kill())
	p.Wait() //nolint:errcheck // it was killed
	before := a.Count()
	c.Name = "x0" // as the child has called it
	b := start(t, c)
	b.Wants(2, 2)
	a.Wants(2, 1)
	if _, most := a.Range(before); most > 2 {
		t.Errorf("meanwhile it has counted %d", most)
	}
	if _, errs := b.Since(0); strings.Contains(fmt.Sprint(errs), "taken") {
		t.Error(errs)
	}
	a.complete(2)
}

// A replica that no longer reaches half of the fleet does not take their share for its own, until they are
// forgotten. Nor are its sums complete until then. When they are back all is as before.
func TestCutOff(t *testing.T) {
	t.Parallel()
	c := config("a")
	c.Forget = 6 * time.Second
	a := start(t, c)
	p := startChild(t, config("b", a.address()))
	p.does("set", 3)
	a.Wants(4, 1)
	must(t, p.Process.Signal(syscall.SIGSTOP)) // as if the network were gone
	before := a.Count()
	cut := quotient.Pool{Replicas: 4}
	a.Is(cut)
	tested.Not(t, a.Least(before) < 3, "it has counted %d", a.Least(before))
	a.says("of 4 replicas 3 have died")
	tested.Want(t, "the age of the sums", a.Stats().Age, never)
	must(t, p.Process.Signal(syscall.SIGCONT))
	a.Wants(4, 1)
	a.complete(4)
	must(t, p.Process.Kill())
	a.Is(cut)
	a.Wants(1, 1)
	a.complete(1)
}

// Replicas that die and are replaced, one after the other, are no partition, whether the new one comes
// before the old one goes or after it. Replicas that leave in order never are a partition.
func TestRolloutIsNoPartition(t *testing.T) {
	now := time.Now()
	name := func(i int) string { return fmt.Sprint("m", i) }
	at := func(i int) member { return member{name(i), address64(uint64(i)), meta{id: uint64(i), weight: 1}} }
	for _, surge := range []int{0, 1, 3} {
		r := newRoster(100, time.Minute)
		for i := range 4 + surge {
			r.put(fullName(name(i), 0), at(i))
		}
		for i := range 40 {
			r.remove(fullName(name(i), 0), now)
			if surge == 0 {
				r.put(fullName(name(i+4), 0), at(i+4))
			} else {
				r.put(fullName(name(i+4+surge), 0), at(i+4+surge))
			}
			now = now.Add(time.Second)
			if v := r.view(now); v.cut() || v.lost != 0 {
				t.Fatalf("surge %d, step %d: of %d are lost %d", surge, i, len(v.members), v.lost)
			}
		}
	}
	r := newRoster(100, time.Minute)
	for i := range 4 {
		r.put(fullName(name(i), 0), at(i))
	}
	for i, want := range []bool{false, true, true} { // of which the last one comes back in a moment
		r.remove(fullName(name(i), 0), now)
		if v := r.view(now); v.cut() != want || v.lost != i+1 {
			t.Errorf("after %d deaths: cut off %v, lost %d", i+1, v.cut(), v.lost)
		}
	}
	r.put(fullName(name(2), 1), at(2))
	if v := r.view(now); v.lost != 2 || !v.cut() {
		t.Errorf("one is back, and %d are lost", v.lost)
	}
	if v := r.view(now.Add(time.Minute)); v.lost != 0 || v.cut() {
		t.Errorf("after a minute %d are lost", v.lost)
	}
	leaver := at(3)
	leaver.leaving = true
	r.put(fullName(name(3), 0), leaver)
	r.remove(fullName(name(3), 0), now)
	if v := r.view(now.Add(time.Minute)); len(v.members) != 1 || v.lost != 0 {
		t.Errorf("after a leave %d live and %d are lost", len(v.members), v.lost)
	}
}

// The numbers of the replicas follow one another, weights counted, and of two entries for one replica the
// later one counts.
func TestPropertyRoster(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRoster(1, time.Minute)
		n := rapid.IntRange(1, 20).Draw(t, "n")
		next := 1
		last := map[uint64]string{}
		for i := range n {
			id := uint64(rapid.IntRange(1, 12).Draw(t, "id"))
			name := rapid.SampledFrom([]string{"a", "m", "z"}).Draw(t, "name")
			if id == 1 {
				name = "m"
			}
			r.put(fullName(name, uint64(i)), member{name: name, at: address64(id),
				meta: meta{id: id, weight: rapid.IntRange(1, 5).Draw(t, "weight")}})
			last[id] = name
		}
		if _, ok := last[1]; !ok {
			r.put(fullName("m", 99), member{name: "m", at: address64(1), meta: meta{id: 1, weight: 3}})
			last[1] = "m"
		}
		v := r.view(time.Now())
		members := v.members
		tested.Want(t, "members", len(members), len(last))
		for _, m := range members {
			tested.Want(t, fmt.Sprintf("%v: its name", m), m.name, last[m.id])
			p, ok := v.pool(m.name, m.id)
			if !ok || p.Ordinal != next || max(1, p.Weight) != m.weight {
				t.Fatalf("%+v of %v: %+v, want ordinal %d", m, members, p, next)
			}
			next += m.weight
		}
		if p, _ := v.pool("m", 1); p.Replicas != next-1 {
			t.Fatalf("%+v of weights %d", p, next-1)
		}
	})
}

// The key file is read while addresses do not answer. Otherwise a replica would miss a key that is dropped.
func TestKeysAreReadDuringALongRound(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "keys")
	write(t, file, key(1, 16))
	c := config("a", "a.test:1", "b.test:1", "c.test:1", "d.test:1", "e.test:1")
	c.KeyFile = file
	c.Resolver = &net.Resolver{PreferGo: true,
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}
	began := time.Now()
	w := start(t, c)
	w.address()
	write(t, file, "garbage")
	w.says(file)
	if d := time.Since(began); d > 2*lookUpTimeout {
		t.Errorf("the file is read again after %v", d)
	}
}

// The sums lack what a replica adds that has another one's name, so they are not complete.
func TestPartnersOfOneName(t *testing.T) {
	one := func(name string, id uint64) member {
		return member{name: name, meta: meta{id: id, settled: true}}
	}
	all, complete := partners([]member{one("a", 1), one("b", 2), one("b", 3)})
	if len(all) != 2 || all[1].id != 2 || complete {
		t.Errorf("%v exchange numbers, complete: %v", all, complete)
	}
}

// All connections together may bring so much, and there is room again when one ends.
func TestStreamBytesAreBounded(t *testing.T) {
	tr := listening(t)
	var all []net.Conn
	read := func(bytes int) (err error) {
		c, err := net.Dial("tcp", tr.advertise.String())
		must(t, err)
		s := <-tr.StreamCh()
		all = append(all, s)
		go func() {
			c.Write(make([]byte, bytes)) //nolint:errcheck // the other end may close
			c.Close()                    //nolint:errcheck // nothing is lost
		}()
		buf := make([]byte, 1<<16)
		for n := 0; n < bytes && err == nil; {
			var k int
			k, err = s.Read(buf)
			n += k
		}
		return err
	}
	must(t, read(mostStreamBytes-1))
	tested.Not(t, read(2) == nil, "too much is read")
	for _, s := range all {
		must(t, s.Close())
	}
	must(t, read(2))
}

func address64(id uint64) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(id)}), 7946)
}

var whole = meta{id: 0x0102030405060708, weight: 300, settled: true}

// metas are what members send, and what it is read as; the zero value is an error.
var metas = []struct {
	bytes []byte
	want  meta
}{
	{whole.encode(), whole},
	{append(whole.encode(), 200, 3, 1, 2, 3, 201, 0), whole},
	{meta{id: 1, weight: 1}.encode(), meta{id: 1, weight: 1}},
	{[]byte{metaVersion}, meta{weight: 1}},
	{[]byte{metaVersion + 1, 1, 2, 3}, meta{weight: 1}},
	{nil, meta{}},
	{whole.encode()[:5], meta{}},
	{[]byte{metaVersion, tagID}, meta{}},
	{[]byte{metaVersion, tagID, 1, 1}, meta{}},
	{[]byte{metaVersion, tagWeight, 1, 0}, meta{}},
	{[]byte{metaVersion, tagWeight, 2, 0xe9, 7}, meta{}}, // 1,001
}

// A later version's additions are skipped, and its unreadable messages count as one replica.
func TestParseMeta(t *testing.T) {
	for _, row := range metas {
		got, err := parseMeta(row.bytes)
		if (err == nil) != (row.want != meta{}) || got != row.want {
			t.Errorf("%v: %+v, %v", row.bytes, got, err)
		}
	}
}

// FuzzMeta checks that no meta panics, and that what is read can be written.
func FuzzMeta(f *testing.F) {
	for _, row := range metas {
		f.Add(row.bytes)
	}
	f.Add([]byte("\x01\x02\x01\x02\x02\x01\x03"))                      // a weight twice
	f.Add([]byte("\x01\x02\x0b" + strings.Repeat("\xff", 9) + "\x01")) // a number of too many bytes
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseMeta(b)
		if err != nil {
			tested.Want(t, "what is refused", m, meta{})
			return
		}
		again, err := parseMeta(m.encode())
		if err != nil || again != m || m.weight < 1 || m.weight > mostWeight || len(m.encode()) > 40 {
			t.Fatalf("%+v reads back as %+v, %v", m, again, err)
		}
	})
}

func TestBaseName(t *testing.T) {
	for full, want := range map[string]string{
		"a#0123456789abcdef": "a", "a#b#0123456789abcdef": "a#b", "#0123456789abcdef": "", "a": "",
		"a#1": "", "": "",
	} {
		if got, ok := baseName(full); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v", full, got, ok)
		}
	}
	if got, ok := baseName(fullName("x:7946", 7)); got != "x:7946" || !ok {
		t.Errorf("it reads back as %q", got)
	}
}

// saying is a replica whose meta is of another version.
type saying struct {
	*delegate
	meta []byte
}

func (s saying) NodeMeta(int) []byte { return s.meta }

// join lets a replica with that meta into a fleet, until leave is called.
func (s saying) join(t *testing.T, name, at string) (leave func()) {
	t.Helper()
	x := &session{src: source(t, config(name)), roster: newRoster(1, time.Minute), aliases: aliases{}}
	s.delegate = &delegate{roster: x.roster, receive: func([]byte) {}, changed: make(chan struct{}, 1)}
	x.delegate = s.delegate
	var err error
	x.transport, err = listen(x.src.c, &traffic{})
	must(t, err)
	c := x.config()
	c.Delegate = s
	list, err := memberlist.Create(c)
	must(t, err)
	_, err = list.Join([]string{at})
	must(t, err)
	return func() {
		if s.meta != nil { // else it does not even know itself
			list.Leave(tested.Patience) //nolint:errcheck // the others would notice
		}
		list.Shutdown() //nolint:errcheck // the transport returns none
	}
}

// Two versions stand side by side. The additions of a later version are skipped. A replica whose meta cannot
// be read is one of the fleet, and the sums are not complete without it. A member that sends nothing is no
// replica.
func TestVersions(t *testing.T) {
	t.Parallel()
	a := start(t, config("a"))
	a.Wants(1, 1)
	a.complete(1)
	later := saying{meta: append(meta{id: 7, weight: 1}.encode(), 99, 2, 1, 1)}.join(t, "b", a.address())
	a.Wants(2, 1)
	a.complete(2)
	later()
	mute := saying{}.join(t, "c", a.address())
	other := saying{meta: []byte{metaVersion + 1, 1, 2, 3}}.join(t, "d", a.address())
	a.Wants(2, 1)
	tested.Want(t, "the age of the sums without a member's numbers", a.Stats().Age, never)
	if _, most := a.Range(0); most > 2 {
		t.Errorf("it has counted %d", most)
	}
	mute()
	other()
}

// An address to join that has no port has that of Bind, which is another one than others use behind a translation.
func TestPortToJoin(t *testing.T) {
	s, err := Config{Bind: "127.0.0.1:7", Advertise: "127.0.0.1:8", Join: []string{"127.0.0.2", "127.0.0.3:9"}}.complete(1)
	must(t, err)
	at, err := s.addresses(t.Context(), s.advertise)
	if got := fmt.Sprint(at); err != nil || got != "[127.0.0.2:7 127.0.0.3:9]" {
		t.Errorf("%s, %v", got, err)
	}
}
