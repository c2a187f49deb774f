package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"time"
)

const (
	maxAddresses = 64               // of one name
	lookAgain    = 30 * time.Second // after a lookup, while all is well
	lookSoon     = time.Second      // and when a check has failed
	lookFor      = 5 * time.Second
)

// resolver finds the addresses of a name.
type resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// name is what is known of the name of a host. Pool.mu guards it.
type name struct {
	addrs  []netip.Addr // in order; none before the first answer
	looked time.Time    // when a lookup began or ended last
	failed bool         // there was no answer to the last lookup
}

// name is the name that is looked up; empty for an address.
func (t target) name() string {
	host := t.hostname()
	if _, err := netip.ParseAddr(host); err == nil || t.socket != "" {
		return ""
	}
	return host
}

// unknown reports whether a target has a name that was not looked up.
func (t target) unknown() bool { return t.at == "" && t.name() != "" }

// sameName reports whether two targets are of one URL of the configuration.
func (t target) sameName(o target) bool {
	t.at, o.at = "", ""
	return t == o
}

// each returns a target for each address. One of each family are most often those of one server, such as localhost's:
// they are one target. A name without an answer is dialled as it is.
func (t target) each(addrs []netip.Addr) []target {
	if len(addrs) == 0 {
		return []target{t}
	}
	all := make([]target, len(addrs))
	_, port, _ := net.SplitHostPort(t.addr())
	for i, a := range addrs {
		all[i] = t
		all[i].at = net.JoinHostPort(a.String(), port)
	}
	if len(addrs) == 2 && addrs[0].Is4() != addrs[1].Is4() {
		all[0].at += " " + all[1].at
		all = all[:1]
	}
	return all
}

// expand returns the targets of all addresses that are known. Other names are forgotten. The caller holds p.mu.
func (p *Pool) expand(targets []target) (all []target) {
	names := make(map[string]*name)
	for _, t := range targets {
		n := &name{}
		if host := t.name(); host != "" {
			if old := p.names[host]; old != nil {
				n = old
			}
			names[host] = n
		}
		all = append(all, t.each(n.addrs)...)
	}
	p.names = names
	return all
}

// look looks a name up if that was not begun for a while, and has the upstreams follow the answer. Without an answer
// they stay.
func (p *Pool) look(ctx context.Context, host string, after time.Duration) error {
	p.mu.Lock()
	n := p.names[host]
	if n == nil || time.Since(n.looked) < after {
		p.mu.Unlock()
		return nil
	}
	n.looked = time.Now()
	p.mu.Unlock()
	limited, cancel := context.WithTimeout(ctx, lookFor)
	defer cancel()
	addrs, err := p.resolver.LookupNetIP(limited, "ip", host)
	if err == nil && len(addrs) == 0 {
		err = errors.New("it has no address")
	}
	for i, a := range addrs {
		addrs[i] = a.Unmap()
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	addrs = slices.Compact(addrs)
	if ctx.Err() == nil {
		p.learn(host, addrs[:min(len(addrs), maxAddresses)], err)
	}
	return err
}

// learn puts the answer to a lookup in force.
func (p *Pool) learn(host string, addrs []netip.Addr, err error) {
	var idle []*sender
	p.mu.Lock()
	n := p.names[host]
	if n == nil { // it has gone meanwhile
		p.mu.Unlock()
		return
	}
	news := err != nil && !n.failed && n.addrs != nil
	n.failed, n.looked = err != nil, time.Now()
	changed := err == nil && !slices.Equal(addrs, n.addrs)
	if changed {
		n.addrs = addrs
		idle = p.swap(p.targets)
	}
	p.mu.Unlock()
	closeIdle(idle)
	if news {
		p.log.Warn("the name of an upstream cannot be looked up: its addresses stay", "name", host, "error", err)
	} else if changed {
		p.log.Info("addresses of an upstream", "name", host, "addresses", fmt.Sprint(addrs))
	}
}

// share is how long an attempt to connect to a target may take: where its name has other addresses, a part of the
// whole, so that there is time for another two.
func (p *Pool) share(t target, whole time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, u := range p.ups {
		if u.target.sameName(t) {
			n++
		}
	}
	if n < 2 {
		return whole
	}
	return whole / time.Duration(min(n, 3)+1)
}

// where is what a log says of a target.
func (t target) where() slog.Attr {
	url := slog.String("url", t.String())
	if t.at == "" {
		return url
	}
	return slog.Attr{Value: slog.GroupValue(url, slog.String("address", t.at))} // without a key it is inlined
}
