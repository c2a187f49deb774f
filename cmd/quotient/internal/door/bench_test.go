package door

import (
	"net/http"
	"testing"
)

// silent is a writer that keeps nothing.
type silent struct{ header http.Header }

func (s *silent) Header() http.Header       { return s.header }
func (*silent) Write(b []byte) (int, error) { return len(b), nil }
func (*silent) WriteHeader(int)             {}

// benched are the decisions that are measured: an admission of a rule without a limit of its own, and a refusal.
func benched(b *testing.B, run func(b *testing.B, s sent)) {
	s := plain()
	s.header = http.Header{"User-Agent": {"curl"}, "Accept": {"*/*"}, "X-Tenant": {"a"}}
	s.target = "/slots/"
	b.Run("admitted", func(b *testing.B) { run(b, s) })
	s.target = "/"
	b.Run("refused", func(b *testing.B) { run(b, s) })
}

func BenchmarkDecide(b *testing.B) {
	benched(b, func(b *testing.B, s sent) {
		w, r := newWorld(b, "nginx"), s.described("nginx")
		out := &silent{make(http.Header)}
		b.ReportAllocs()
		for b.Loop() {
			clear(out.header)
			w.door.ServeHTTP(out, r)
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	benched(b, func(b *testing.B, s sent) {
		w, in, ctx := newWorld(b, "envoy"), s.attributes(false), ofPeer(b.Context(), asker)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := w.door.Check(ctx, in); err != nil {
				b.Fatal(err)
			}
		}
	})
}
