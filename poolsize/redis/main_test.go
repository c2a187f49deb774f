package redis

import (
	"context"
	"flag"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/quotient-go/quotient/internal/needed"
	"github.com/quotient-go/quotient/internal/tested"
	"github.com/quotient-go/quotient/poolsize/internal/watched"
	"github.com/quotient-go/quotient/poolsize/redis/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"
)

// childArg makes the test binary one processor: it watches the fleet at the address that follows, and prints
// each report.
const childArg = "redis-child"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == childArg {
		c := redis.NewClient(&redis.Options{Addr: os.Args[2]})
		watched.Print(source(c, "child"))
		return
	}
	flag.Set("test.parallel", "8")         //nolint:errcheck // the flag exists; most tests wait for real servers
	redis.SetLogger(&logging.VoidLogger{}) // the client's own words about servers that tests have killed

	// The client's dials end up to a second after it is closed.
	const pool = "github.com/redis/go-redis/v9/internal/pool.(*ConnPool)."
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(pool+"tryDial"),
		goleak.IgnoreAnyFunction(pool+"dialConn"))
}

// Periods for tests in real time: short, and still an expiry that a busy machine does not miss by chance.
const (
	period = 50 * time.Millisecond
	expiry = 2 * time.Second
)

// watch runs Watch until the test ends.
func watch(t testing.TB, s *Source) *watched.Log {
	t.Helper()
	return watched.Start(t, s.Watch)
}

var must = tested.Must

// start returns a server that ends with the test, and says if it is not a real one.
func start(t testing.TB, config ...string) *redistest.Server {
	t.Helper()
	s, err := redistest.Start(config...)
	must(t, err)
	if !s.Real() {
		t.Log("miniredis stands in for redis-server, which is not installed")
	}
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

// needReal skips a test that only a real server can pass.
func needReal(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		needed.Without(t, "redis-server",
			"redis-server is not installed: nothing is known about a real one (apt-get install redis-server)")
	}
}

// clientOf returns a client with the options, which may be nil, for a server.
func clientOf(t testing.TB, s *redistest.Server, o *redis.Options) *redis.Client {
	t.Helper()
	if o == nil {
		o = &redis.Options{}
	}
	o.ContextTimeoutEnabled = true
	if o.Addr == "" {
		o.Addr = s.Addr()
	}
	c := redis.NewClient(o)
	t.Cleanup(func() { c.Close() }) //nolint:errcheck // a test may have closed it
	return c
}

// pipeAddr is where clients with a dialer of their own seem to dial. A name would be looked up, which a
// bubble cannot do.
const pipeAddr = "127.0.0.1:6379"

// ending is what a test and a property have in common.
type ending interface {
	tested.TB
	Cleanup(func())
}

// pipeClient returns a client of miniredis without a network between them.
func pipeClient(t ending, mini *miniredis.Miniredis) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: pipeAddr,
		Dialer: func(context.Context, string, string) (net.Conn, error) { return mini.Dial() }})
	t.Cleanup(func() { must(t, c.Close()) })
	return c
}

// source returns a processor of the fleet f at test speed.
func source(c redis.UniversalClient, id string) *Source {
	return &Source{Client: c, Fleet: "f", ID: id, Period: period, Expiry: expiry}
}

// hook is what a client's commands pass through.
type hook func(next redis.ProcessHook) redis.ProcessHook

func (hook) DialHook(next redis.DialHook) redis.DialHook { return next }
func (hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return h(next) }

// newMini returns an imitation of a store that ends with the test.
func newMini(t ending) *miniredis.Miniredis {
	mini := miniredis.NewMiniRedis()
	t.Cleanup(mini.Close)
	return mini
}
