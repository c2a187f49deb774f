package gossip

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/poolsize/pooltest"
)

// The source does what every source must do. Its world is a fleet on loopback, and the join file of the
// source.
func TestPooltest(t *testing.T)          { conforms(t, 1) }
func TestPooltestOfAWeight(t *testing.T) { conforms(t, 2) }

func conforms(t *testing.T, weight int) {
	others := startChild(t, config("other"))
	others.ask(t, "set 2")
	file := filepath.Join(t.TempDir(), "join")
	write(t, file, "# the first\n"+others.ask(t, "where"))
	pooltest.Run(t, pooltest.World{
		Source: func(testing.TB) quotient.Source {
			c := config("this")
			c.JoinFile, c.Weight = file, weight
			return source(t, c)
		},
		Weight: weight,
		Set: func(t testing.TB, n int) {
			if got := others.ask(t, "set %d", n-weight); got != fmt.Sprint(n-weight) {
				t.Fatalf("the child says %s", got)
			}
		},
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
