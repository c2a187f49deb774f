package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/quotient-go/quotient/poolsize/dns/dnstest"
	"github.com/quotient-go/quotient/poolsize/redis/redistest"
)

// A world is what replicas learn the pool size from. It plays the platform: it writes the file and the records of
// DNS when processes come and go. In Redis they count themselves.
type world struct {
	pool     string // path of the file
	dns      *dnstest.Server
	steady   *dnstest.Server // says the same, and never fails
	redis    *redistest.Server
	count    int  // replicas that the file should say
	fileDown bool // a fault has the file
}

// newWorld makes the world. What it has made is there to be closed after an error too.
func newWorld(dir string) (*world, error) {
	w := &world{pool: filepath.Join(dir, "pool")}
	var err1, err2, err3 error
	w.dns, err1 = dnstest.New()
	w.steady, err2 = dnstest.New()
	w.redis, err3 = redistest.Start("--loglevel", "warning") // with arguments: redis-server, which can be stopped
	return w, errors.Join(err1, err2, err3)
}

func (w *world) close() (err error) {
	for _, dns := range []*dnstest.Server{w.dns, w.steady} {
		if dns != nil {
			err = errors.Join(err, dns.Close())
		}
	}
	if w.redis != nil {
		err = errors.Join(err, w.redis.Close())
	}
	return err
}

func (w *world) publish(addrs []netip.Addr) error {
	w.dns.Set(dnsName, addrs...)
	w.steady.Set(dnsName, addrs...)
	w.count = len(addrs)
	return w.writePool()
}

// writePool writes the file, now a number, now JSON, unless a fault has it.
func (w *world) writePool() error {
	text := fmt.Sprintf("%d\n", w.count)
	if w.count%2 == 1 {
		text = fmt.Sprintf("{\"replicas\":%d}\n", w.count)
	}
	if w.fileDown {
		return nil
	}
	return replace(w.pool, text)
}

// replace replaces a file as a whole; nobody sees half of it.
func replace(file, text string) error {
	return errors.Join(os.WriteFile(file+".next", []byte(text), 0o644), os.Rename(file+".next", file))
}
