package gossip

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The key file is read while addresses do not answer. Otherwise a replica would miss a key that is dropped.
func TestKeysAreReadDuringALongRound(t *testing.T) {
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
	w.address(t)
	write(t, file, "garbage")
	w.until(t, "an error names the file", func() bool {
		err := w.lastError()
		return err != nil && strings.Contains(err.Error(), file)
	})
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
	if err := read(2); err == nil {
		t.Error("too much is read")
	}
	for _, s := range all {
		must(t, s.Close())
	}
	must(t, read(2))
}
