package gossip

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/tested"
	"github.com/quotient-go/quotient/poolsize/pooltest"
)

// IPv6 is as good as IPv4. A replica that listens on all interfaces is found by the address that it finds
// itself, and by others too.
func TestKindsOfAddresses(t *testing.T) {
	t.Parallel()
	for _, bind := range []string{"[::1]:0", ":0"} {
		t.Run(bind, func(t *testing.T) {
			if l, err := net.Listen("tcp", bind); err != nil {
				t.Skip(err)
			} else {
				must(t, l.Close())
			}
			c := config("a")
			c.Bind, c.KeyFile = bind, filepath.Join(t.TempDir(), "keys")
			write(t, c.KeyFile, key(1, 32))
			if bind == ":0" {
				if _, err := ownAddress(); err != nil {
					t.Skip(err)
				}
			}
			a := start(t, c)
			at := netip.MustParseAddrPort(a.address())
			c.Name, c.Join = "b", []string{at.String()}
			if bind == ":0" {
				c.Join = []string{fmt.Sprintf("127.0.0.1:%d", at.Port())}
				tested.Not(t, at.Addr().IsLoopback(), "it advertises %v", at)
			}
			b := start(t, c)
			b.Wants(2, 2)
			a.Counters().Add("k", 1)
			totals([]*replica{a, b}, "k", 1)
		})
	}
}

// Gossip costs a replica of a fleet of 50, which encrypts, this much: processor time and bytes. First it is
// idle. Then there are 100 keys, of which every replica says something else in each interval. All run in one
// process, so that the machine's other work weighs less.
func TestCost(t *testing.T) {
	if testing.Short() || racing {
		t.Skip("15 s of a whole processor")
	}
	const replicas, span = 50, 3 * time.Second
	c := Config{Name: "r", Bind: "127.0.0.1:0", KeyFile: filepath.Join(t.TempDir(), "keys"), Rejoin: rejoin}
	write(t, c.KeyFile, key(1, 32))
	p := startChild(t, c)
	p.does("set", replicas)
	p.does("until", replicas)
	measure := func() (cpu time.Duration, bytes int64) { // of one replica in a second
		ask := func(what string) int64 { p.tell("%s", what); return p.number() }
		cpu0, bytes0, began := ask("cpu"), ask("bytes"), time.Now()
		<-time.After(span)
		cpu1, bytes1, took := ask("cpu"), ask("bytes"), time.Since(began)
		seconds := replicas * took.Seconds()
		return time.Duration(float64(cpu1-cpu0) / seconds), int64(float64(bytes1-bytes0) / seconds)
	}
	<-time.After(time.Second) // reports of members ebbs
	idleCPU, idleBytes := measure()
	p.does("load", 100)
	<-time.After(time.Second)
	cpu, bytes := measure()
	t.Logf("a replica of %d in a second: idle %v of a processor and %d bytes; 100 keys: %v and %d bytes",
		replicas, idleCPU, idleBytes, cpu, bytes)
	if cpu > 30*time.Millisecond || bytes > 24<<10 || idleBytes > 3<<10 {
		t.Error("it costs too much")
	}
}

// The source does what every source must do, also where it counts as two. Its world is a fleet on loopback,
// and the join file of the source. The checks look at all goroutines: no other test may run beside this one.
func TestPooltest(t *testing.T) {
	const weight = 2
	others := startChild(t, config("other"))
	others.does("set", 2)
	file := filepath.Join(t.TempDir(), "join")
	write(t, file, "# the first\n"+others.ask("where"))
	pooltest.Run(t, pooltest.World{
		Source: func(testing.TB) quotient.Source {
			c := config("this")
			c.JoinFile, c.Weight = file, weight
			return source(t, c)
		},
		Weight: weight,
		Set:    func(_ testing.TB, n int) { others.does("set", n-weight) },
	})
}

// write puts a file in place at once.
func write(t testing.TB, path, content string) {
	t.Helper()
	must(t, os.WriteFile(path+".new", []byte(content), 0o600))
	must(t, os.Rename(path+".new", path))
}

// deaf returns an address at which nothing answers.
func deaf(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	must(t, l.Close())
	return l.Addr().String()
}
