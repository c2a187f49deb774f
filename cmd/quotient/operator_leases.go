package main

import (
	"errors"

	"github.com/quotient-go/quotient/admin"
	"github.com/quotient-go/quotient/lease"
)

// leasesOf shows a lease server to its operators.
type leasesOf struct{ *lease.Server }

var _ admin.Leases = leasesOf{}

// Leases is the server's state.
func (l leasesOf) Leases() admin.LeaseState {
	st := l.Stats()
	s := admin.LeaseState{Leads: st.Leads, Leader: st.Leader, GraceSeconds: max(0, st.Grace.Seconds()), Peers: st.Peers}
	for _, of := range st.Semaphores {
		t := of.Totals
		s.Semaphores = append(s.Semaphores, admin.Semaphore{
			Name: of.Name, Max: of.Max, Level: of.Level, Gone: of.Gone, Acquired: of.Acquired, Pending: of.Pending,
			Holders: of.Holders, Waiters: of.Waiters, LongestPendingSeconds: of.LongestPending.Seconds(),
			Totals: admin.LeaseTotals{
				Granted: t.Granted, Released: t.Released, Expired: t.Expired, Broken: t.Broken, Restored: t.Restored, Beyond: t.Beyond,
			},
		})
	}
	return s
}

// Locks are the oldest locks of a semaphore.
func (l leasesOf) Locks(semaphore string, most int) (held, pending []admin.LeaseLock, err error) {
	h, p, err := l.Server.Locks(semaphore, most)
	if errors.Is(err, lease.ErrUnknownSemaphore) {
		err = admin.ErrNoSemaphore
	}
	return leaseLocks(h), leaseLocks(p), err
}

func leaseLocks(locks []lease.Lock) []admin.LeaseLock {
	shown := make([]admin.LeaseLock, len(locks))
	for i, l := range locks {
		shown[i] = leaseLock(l)
	}
	return shown
}

func leaseLock(l lease.Lock) admin.LeaseLock {
	return admin.LeaseLock{Peer: l.Peer, Count: l.Count, Token: l.Token, Since: l.Since, Expires: l.Expires}
}

// Break takes a lock from its holder.
func (l leasesOf) Break(peer uint64, semaphore string, token uint64) (admin.LeaseLock, error) {
	old, err := l.Server.Break(peer, semaphore, token)
	if errors.Is(err, lease.ErrUnknownPeer) || errors.Is(err, lease.ErrNotHeld) {
		err = admin.ErrNotHeld
	}
	return leaseLock(old), err
}
