package readme

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"

	"github.com/quotient-go/quotient/lease"
)

// The function of docs/leases.md, to the letter.

func nightly(ctx context.Context, c *lease.Client) error {
	l, err := c.Lock(ctx, "A", 1) // waits until it is held, or until ctx ends
	if err != nil {
		return err
	}
	defer func() { _ = l.Unlock(context.WithoutCancel(ctx)) }()
	return work(l.Context(), l.Token()) // this context ends when the lease is lost
}

var errNoLease = errors.New("the lease is not held")

// work is what nightly does with its lease.
func work(ctx context.Context, token uint64) error {
	if ctx.Err() != nil || token == 0 {
		return errNoLease
	}
	return nil
}

// TestLeasesNightly checks that the function of the page works under a lease, and gives it back.
func TestLeasesNightly(t *testing.T) {
	server, err := lease.NewServer(lease.Config{Semaphores: map[string]lease.Semaphore{"A": {Max: 1}}},
		lease.ServerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	way := httptest.NewServer(server)
	defer way.Close()
	client := &lease.Client{URLs: []string{way.URL}, HTTP: way.Client()}
	for range 2 { // the second one would wait for ever if the first kept its lease
		if err := nightly(t.Context(), client); err != nil {
			t.Fatal(err)
		}
	}
	if st := server.Stats(); st.Semaphores[0].Totals.Granted != 2 || st.Semaphores[0].Acquired != 0 ||
		st.Peers != 0 {
		t.Errorf("the server has %+v", st)
	}
}
