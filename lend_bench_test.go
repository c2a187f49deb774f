package quotient

import (
	"testing"
	"time"
)

// speakers is a limiter with so many keys, of which it and another replica mention the first few.
func speakers(b *testing.B, keys, few int) (*Limiter, *hubEnd) {
	h := &hub{turns: 200 * time.Millisecond, said: []map[string]Terms{{}, {}}}
	l := mustNew(b, Limit{Rates: []Rate{PerSecond(1e9)}}, MaxKeys(1<<21), Replicas(2),
		Demand(100, time.Second))
	l.beginExchange()
	for i := range keys {
		l.Allow(key(i))
	}
	for i := range few {
		h.said[1][textKey+key(i)] = Terms{1, 1, 1, 0, 0, 0}
	}
	end := &hubEnd{hub: h}
	l.turn(end)
	l.turn(end)
	return l, end
}

// BenchmarkAllowSpoken is a call for a key that replicas mention. BenchmarkAllowPlain is one for another.
func BenchmarkAllowSpoken(b *testing.B) {
	l, _ := speakers(b, 1, 1)
	b.ReportAllocs()
	for b.Loop() {
		l.Allow("key-0")
	}
}

func BenchmarkAllowPlain(b *testing.B) {
	l, _ := speakers(b, 1, 0)
	b.ReportAllocs()
	for b.Loop() {
		l.Allow("key-0")
	}
}

// BenchmarkTurn is a turn of sums with 100 keys, beside none and a million others.
func BenchmarkTurn(b *testing.B) {
	for name, keys := range map[string]int{"100 keys": 100, "100 of 1,000,000 keys": 1_000_000} {
		b.Run(name, func(b *testing.B) {
			l, end := speakers(b, keys, 100)
			b.ReportAllocs()
			for b.Loop() {
				l.turn(end)
			}
		})
	}
}
