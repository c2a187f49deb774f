package etcd

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/quotient-go/quotient"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A wrong field of a Source is an error that names field and value, and the zero values are good.
func TestCompleteNamesFieldAndValue(t *testing.T) {
	c := clientAt(t, "127.0.0.1:1") // which is not called
	long := strings.Repeat("x", 201)
	for _, row := range []struct {
		change func(*Source)
		says   string
	}{
		{func(*Source) {}, ""},
		{func(s *Source) { s.Client = nil }, "Source.Client: nil"},
		{func(s *Source) { s.Client = clientv3.NewCtxClient(t.Context()) },
			"Source.Client: it has no connection"},
		{func(s *Source) { s.Fleet = "" }, `Source.Fleet: "" has 0 bytes, not 1 to 200`},
		{func(s *Source) { s.Fleet = long }, "has 201 bytes"},
		{func(s *Source) { s.Fleet = "a/b" }, `Source.Fleet: "a/b" has a slash`},
		{func(s *Source) { s.ID = "a/b" }, `Source.ID: "a/b" has a slash`},
		{func(s *Source) { s.ID = long }, "Source.ID: "},
		{func(s *Source) { s.Prefix = "/services/limits" }, ""},
		{func(s *Source) { s.Prefix = long }, "Source.Prefix: "},
		{func(s *Source) { s.Period = time.Microsecond }, "Source.Period: 1µs is not between 1ms and 5m0s"},
		{func(s *Source) { s.Period = -1 }, "Source.Period: -1ns"},
		{func(s *Source) { s.Period = 6 * time.Second }, "Source.Expiry: 10s is not between 12s and 10m0s"},
		{func(s *Source) { s.Expiry = 11 * time.Minute }, "Source.Expiry: 11m0s"},
		{func(s *Source) { s.Expiry = 2500 * time.Millisecond },
			"Source.Expiry: 2.5s is no whole number of seconds"},
		{func(s *Source) { s.Expiry = 2 * time.Second }, ""},
	} {
		s := &Source{Client: c, Fleet: "f"}
		row.change(s)
		_, err := s.complete()
		if row.says == "" && err != nil || row.says != "" &&
			(err == nil || !strings.Contains(err.Error(), row.says)) {
			t.Errorf("got %v, want %q", err, row.says)
		}
		if row.says != "" {
			got := s.Watch(context.Background(), func(quotient.Pool, error) { t.Error("it reports") })
			if got == nil || got.Error() != err.Error() {
				t.Errorf("Watch returned %v", got)
			}
		}
	}
}
