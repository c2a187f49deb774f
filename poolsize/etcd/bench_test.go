package etcd

import (
	"fmt"
	"testing"

	"github.com/quotient-go/quotient/internal/etcdtest"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// BenchmarkLook measures one look, round trips included, in fleets of several sizes.
func BenchmarkLook(b *testing.B) {
	c := &client{Client: clientOf(b, etcdtest.Start(b)), ctx: b.Context()}
	lease, err := c.grant(b.Context(), 600)
	must(b, err)
	made := 0
	for _, n := range []int{1, 100, 1000, 10_000} {
		for ; made < n; made += min(100, n-made) {
			var ops []clientv3.Op
			for i := range min(100, n-made) {
				name := fmt.Sprintf("quotient/f/web-%d:26lettersandnumbersofchance", made+i)
				ops = append(ops, clientv3.OpPut(name, value, clientv3.WithLease(lease)))
			}
			_, err := c.Txn(b.Context()).Then(ops...).Commit()
			must(b, err)
		}
		b.Run(fmt.Sprint("renew/", n), func(b *testing.B) {
			for b.Loop() {
				must(b, c.renew(b.Context(), lease))
			}
		})
		b.Run(fmt.Sprint("newest/", n), func(b *testing.B) {
			for b.Loop() {
				if keys, _, err := c.newest(b.Context(), "quotient/f/"); err != nil || keys != int64(n) {
					b.Fatal(keys, err)
				}
			}
		})
		b.Run(fmt.Sprint("list/", n), func(b *testing.B) {
			for b.Loop() {
				if keys, _, err := list(b.Context(), c, "quotient/f/"); err != nil || len(keys) != n {
					b.Fatal(len(keys), err)
				}
			}
		})
	}
}
