package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/quotient-go/quotient/poolsize/dns/dnstest"
	"github.com/quotient-go/quotient/poolsize/redis/redistest"
)

// A world is what the replicas learn the pool size from. It plays the platform: it writes the file and the records of DNS
// when processes come and go; in Redis they count themselves.
type world struct {
	dir     string
	pool    string // path of the file
	dns     *dnstest.Server
	steady  *dnstest.Server // says the same, and never fails
	redis   *redistest.Server
	cluster *cluster // nil where there is no redis-server

	first, last netip.Addr // that were given away

	count    int  // replicas that the file should say
	fileDown bool // a fault has the file
}

// newWorld makes the world. The directory is its own from then on.
func newWorld(ctx context.Context, dir string) (*world, error) {
	middle := netip.AddrFrom4([4]byte{127, 1, 128, 0})
	w := &world{dir: dir, pool: filepath.Join(dir, "pool"), first: middle, last: middle}
	var err1, err2, err3, err4 error
	w.dns, err1 = dnstest.New()
	w.steady, err2 = dnstest.New()
	if w.redis, err3 = redistest.Start(); err3 == nil && w.redis.Real() {
		w.cluster, err4 = newCluster(ctx)
	}
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

// address is an address that no replica has had, behind all others or before them.
func (w *world) address(behind bool) netip.Addr {
	if behind {
		w.last = w.last.Next()
		return w.last
	}
	w.first = w.first.Prev()
	return w.first
}

func (w *world) close() error {
	var err error
	for _, dns := range []*dnstest.Server{w.dns, w.steady} {
		if dns != nil {
			err = errors.Join(err, dns.Close())
		}
	}
	if w.redis != nil {
		err = errors.Join(err, w.redis.Close())
	}
	return errors.Join(err, w.cluster.close(), os.RemoveAll(w.dir))
}

// store says what stands in for Redis.
func (w *world) store() string {
	if w.redis.Real() {
		return "redis-server"
	}
	return "miniredis, as there is no redis-server on the PATH"
}

// publish tells the file and DNS who is there.
func (w *world) publish(addrs []netip.Addr) error {
	w.dns.Set(dnsName, addrs...)
	w.steady.Set(dnsName, addrs...)
	w.count = len(addrs)
	if w.fileDown {
		return nil
	}
	return w.writePool()
}

// content is what the file should say; now as a number, now as JSON.
func (w *world) content() []byte {
	if w.count%2 == 0 {
		return fmt.Appendf(nil, "%d\n", w.count)
	}
	return fmt.Appendf(nil, "{\"replicas\":%d}\n", w.count)
}

// writePool replaces the file as a whole, whatever is in its place.
func (w *world) writePool() error {
	next := w.pool + ".next"
	if err := os.WriteFile(next, w.content(), 0o644); err != nil {
		return err
	}
	if info, err := os.Lstat(w.pool); err == nil && info.IsDir() {
		if err := os.Remove(w.pool); err != nil {
			return err
		}
	}
	return os.Rename(next, w.pool)
}

var dnsKinds = []dnstest.Mode{
	dnstest.NXDomain, dnstest.ServFail, dnstest.ServFailAAAA, dnstest.Truncated, dnstest.Empty, dnstest.Silent, dnstest.Garbage,
}

// fileKinds are the ways in which the file goes. The last one is no fault: what the name leads to is whole and right.
var fileKinds = []struct {
	name string
	do   func(w *world) error
	fine bool
}{
	{"deleted", func(w *world) error { return os.Remove(w.pool) }, false},
	{"half written", func(w *world) error { return os.WriteFile(w.pool, []byte(`{"replicas":`), 0o644) }, false},
	{"a directory", func(w *world) error { return errors.Join(os.Remove(w.pool), os.Mkdir(w.pool, 0o755)) }, false},
	{"garbage", func(w *world) error { return os.WriteFile(w.pool, []byte("-1e9\x00\xff"), 0o644) }, false},
	{"symlink swap", (*world).swap, true},
}

// swap does as the kubelet does with a ConfigMap: the file's name is a link into ..data, which is a link to a directory
// and is replaced.
func (w *world) swap() error {
	dir, err := os.MkdirTemp(w.dir, "..v")
	if err != nil {
		return err
	}
	name, next, data := filepath.Join(dir, "pool"), filepath.Join(w.dir, "..next"), filepath.Join(w.dir, "..data")
	if err := os.WriteFile(name, w.content(), 0o644); err != nil {
		return err
	}
	if err := errors.Join(os.Symlink(dir, next), os.Rename(next, data)); err != nil {
		return err
	}
	return errors.Join(os.Symlink(filepath.Join("..data", "pool"), next), os.Rename(next, w.pool))
}

// redisKinds are the ways in which Redis is restarted.
var redisKinds = []struct {
	name string
	kill bool
	wipe bool
}{
	{"stopped", false, false}, {"killed, data lost", true, true}, {"killed", true, false}, {"stopped, data lost", false, true},
}

// A breakage is how a source breaks and is mended.
type breakage struct {
	source      source
	name        string
	begin, mend func() error
	fine        bool // nothing is broken, the source must go on to follow
}

// breakage turns a fault of a source's lane into what is to be done.
func (w *world) breakage(f fault) breakage {
	switch f.lane {
	case laneDNS:
		mode := dnsKinds[f.kind]
		set := func(m dnstest.Mode) func() error { return func() error { w.dns.Fail(m); return nil } }
		return breakage{fromDNS, "dns " + mode.String(), set(mode), set(dnstest.Healthy), false}
	case laneFile:
		k := fileKinds[f.kind]
		return breakage{fromFile, "file " + k.name,
			func() error { w.fileDown = !k.fine; return k.do(w) },
			func() error { w.fileDown = false; return w.writePool() }, k.fine}
	default:
		k := redisKinds[f.kind]
		begin := w.redis.Stop
		if k.kill {
			begin = w.redis.Kill
		}
		return breakage{fromRedis, "redis " + k.name, begin, func() error { return w.redis.Restart(k.wipe) }, false}
	}
}
