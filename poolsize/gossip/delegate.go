package gossip

import (
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/quotient-go/quotient/internal/rest"
)

// delegate is what memberlist calls. It calls under its own locks, so nothing here waits or calls it back.
type delegate struct {
	meta    meta
	settled atomic.Bool // the start is over
	leaving atomic.Bool // the end has begun

	metItself atomic.Bool // it was at the other end of a connection too
	roster    *roster
	receive   func(packet []byte)
	changed   chan struct{} // gets a value when the roster has changed
}

// NodeMeta returns what this replica says of itself.
func (d *delegate) NodeMeta(int) []byte {
	m := d.meta
	m.settled, m.leaving = d.settled.Load(), d.leaving.Load()
	return m.encode()
}

// NotifyMsg takes in a packet of numbers.
func (d *delegate) NotifyMsg(b []byte) { d.receive(b) }

// GetBroadcasts returns nothing: numbers go to neighbours alone.
func (d *delegate) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState returns which replica it is that compares its members with another one.
func (d *delegate) LocalState(bool) []byte { return d.NodeMeta(0) }

// MergeRemoteState notes that the other one is this replica, by an address that it did not take for its own.
func (d *delegate) MergeRemoteState(b []byte, _ bool) {
	if m, err := parseMeta(b); err == nil && m.id == d.meta.id {
		d.metItself.Store(true)
	}
}

// NotifyAlive refuses a member that says nothing that can be read of itself, or is too many.
func (d *delegate) NotifyAlive(n *memberlist.Node) error {
	if _, err := parseMeta(n.Meta); err != nil {
		return err
	}
	if _, ok := baseName(n.Name); !ok {
		return fmt.Errorf("its name is %.40q", n.Name)
	}
	if !d.roster.admits(n.Name) {
		return errors.New("there are too many members")
	}
	return nil
}

// NotifyJoin puts a member on the roster.
func (d *delegate) NotifyJoin(n *memberlist.Node) {
	m, err := parseMeta(n.Meta)
	name, ok := baseName(n.Name)
	if err != nil || !ok {
		return // NotifyAlive has refused it
	}
	a, _ := netip.AddrFromSlice(n.Addr)
	d.roster.put(n.Name, member{name: name, at: netip.AddrPortFrom(a.Unmap(), n.Port), meta: m})
	rest.Wake(d.changed)
}

// NotifyUpdate is NotifyJoin: the start of a replica is over.
func (d *delegate) NotifyUpdate(n *memberlist.Node) { d.NotifyJoin(n) }

// NotifyLeave takes a member off the roster.
func (d *delegate) NotifyLeave(n *memberlist.Node) {
	d.roster.remove(n.Name, time.Now())
	rest.Wake(d.changed)
}
