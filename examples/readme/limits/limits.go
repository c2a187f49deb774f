// Package limits is a file of the README, to the letter: limiters that count their replicas, and their page.
package limits

import (
	"context"
	"os"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/admin"
	"github.com/quotient-go/quotient/poolsize/dns"
)

// Run counts replicas by DNS, and serves the page, until ctx ends.
func Run(ctx context.Context, limiters *quotient.Registry) error {
	page, err := admin.New(limiters, admin.Token(os.Getenv("ADMIN_TOKEN"))) // 16 random bytes or more
	if err != nil {
		return err
	}
	go limiters.Follow(ctx, &dns.Source{Name: "api.prod.svc.cluster.local.", Uncapped: true})
	return page.ListenAndServe(ctx, "127.0.0.1:9091")
}
