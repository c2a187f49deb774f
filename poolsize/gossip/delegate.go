package gossip

import (
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/netip"
	"strings"
	"sync/atomic"

	"github.com/hashicorp/memberlist"
)

// delegate is what memberlist calls. It calls under its own locks, so nothing here waits or calls it back.
type delegate struct {
	own     string
	meta    atomic.Pointer[meta]
	roster  *roster
	receive func(packet []byte)
	changed chan struct{} // gets a value when the roster has changed
	rival   atomic.Pointer[rival]
	count   atomic.Uint64 // of rivals that were seen, each time again
}

// rival is another replica that goes by this one's name.
type rival struct {
	address string
	meta
}

// note has the session look at what has changed.
func (d *delegate) note() {
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// NodeMeta returns what this replica says of itself.
func (d *delegate) NodeMeta(int) []byte { return d.meta.Load().encode() }

// NotifyMsg takes in a packet of numbers.
func (d *delegate) NotifyMsg(b []byte) { d.receive(b) }

// GetBroadcasts returns nothing: numbers go to neighbours alone.
func (d *delegate) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState returns nothing besides what memberlist itself exchanges.
func (d *delegate) LocalState(bool) []byte { return nil }

// MergeRemoteState ignores what a later version may say.
func (d *delegate) MergeRemoteState([]byte, bool) {}

// NotifyAlive refuses a member that says nothing that can be read of itself, or is too many.
func (d *delegate) NotifyAlive(n *memberlist.Node) error {
	if _, err := parseMeta(n.Meta); err != nil {
		return err
	}
	if len(n.Name) > longestName {
		return fmt.Errorf("its name has %d bytes", len(n.Name))
	}
	if !d.roster.admits(n.Name) {
		return errors.New("there are too many members")
	}
	return nil
}

// NotifyJoin puts a member on the roster.
func (d *delegate) NotifyJoin(n *memberlist.Node) {
	if m, err := parseMeta(n.Meta); err == nil {
		a, _ := netip.AddrFromSlice(n.Addr)
		d.roster.put(member{n.Name, netip.AddrPortFrom(a.Unmap(), n.Port), m.id, m.weight})
		d.note()
	}
}

// NotifyUpdate is NotifyJoin: a replica that was restarted has another number.
func (d *delegate) NotifyUpdate(n *memberlist.Node) { d.NotifyJoin(n) }

// NotifyLeave takes a member off the roster.
func (d *delegate) NotifyLeave(n *memberlist.Node) {
	d.roster.remove(n.Name)
	d.note()
}

// NotifyConflict notes another replica with this one's name. Those of others are their own affair.
func (d *delegate) NotifyConflict(_, other *memberlist.Node) {
	if other.Name != d.own {
		return
	}
	m, _ := parseMeta(other.Meta) //nolint:errcheck // then it has no number
	d.rival.Store(&rival{other.Address(), m})
	d.count.Add(1)
	d.note()
}

// logger returns what memberlist logs to. Its lines are for those who look for a fault in it.
func logger(to *slog.Logger) *log.Logger {
	if to == nil {
		to = slog.New(slog.DiscardHandler)
	}
	return log.New(lines{to}, "", 0)
}

// lines logs each line that is written.
type lines struct{ to *slog.Logger }

// Write logs a line.
func (l lines) Write(b []byte) (int, error) {
	l.to.Debug(strings.TrimSpace(string(b)))
	return len(b), nil
}
