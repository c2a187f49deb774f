package main

import (
	"errors"

	"github.com/quotient-go/quotient/admin"
	"github.com/quotient-go/quotient/lease"
)

// leaseAdmin shows a lease server to operators.
type leaseAdmin struct{ s *lease.Server }

// Leases returns every semaphore.
func (a leaseAdmin) Leases() admin.LeaseState {
	st := a.s.Stats()
	state := admin.LeaseState{
		Leads: st.Leads, Leader: st.Leader, GraceSeconds: max(st.Grace.Seconds(), 0), Peers: st.Peers,
		Semaphores: make([]admin.Semaphore, 0, len(st.Semaphores)),
	}
	for _, s := range st.Semaphores {
		t := s.Totals
		state.Semaphores = append(state.Semaphores, admin.Semaphore{
			Name: s.Name, Max: s.Max, Level: s.Level, Gone: s.Gone,
			Acquired: s.Acquired, Pending: s.Pending, Holders: s.Holders, Waiters: s.Waiters,
			LongestPendingSeconds: s.LongestPending.Seconds(),
			Totals: admin.LeaseTotals{
				Granted: t.Granted, Released: t.Released, Expired: t.Expired, Broken: t.Broken,
				Restored: t.Restored, Beyond: t.Beyond,
			},
		})
	}
	return state
}

// Locks returns the oldest locks of a semaphore.
func (a leaseAdmin) Locks(semaphore string, most int) (held, pending []admin.LeaseLock, err error) {
	h, p, err := a.s.Locks(semaphore, most)
	if errors.Is(err, lease.ErrUnknownSemaphore) {
		return nil, nil, admin.ErrNoSemaphore
	}
	return shownLocks(h), shownLocks(p), err
}

// Break takes a lock away from its holder.
func (a leaseAdmin) Break(peer uint64, semaphore string, token uint64) (admin.LeaseLock, error) {
	l, err := a.s.Break(peer, semaphore, token)
	for _, gone := range []error{lease.ErrNotHeld, lease.ErrUnknownPeer, lease.ErrUnknownSemaphore} {
		if errors.Is(err, gone) {
			return admin.LeaseLock{}, admin.ErrNotHeld
		}
	}
	return shownLock(l), err
}

func shownLocks(locks []lease.Lock) []admin.LeaseLock {
	all := make([]admin.LeaseLock, 0, len(locks))
	for _, l := range locks {
		all = append(all, shownLock(l))
	}
	return all
}

func shownLock(l lease.Lock) admin.LeaseLock {
	return admin.LeaseLock{Peer: l.Peer, Count: l.Count, Token: l.Token, Since: l.Since, Expires: l.Expires}
}
