package main

import (
	"math"
	"testing"
	"time"

	"github.com/quotient-go/quotient/examples/fleet/upstream"

	"pgregory.net/rapid"
)

func TestJain(t *testing.T) {
	tests := []struct {
		got  []float64
		want float64
	}{
		{nil, 1},
		{[]float64{0, 0}, 1},
		{[]float64{7}, 1},
		{[]float64{5, 5, 5, 5}, 1},
		{[]float64{1, 0}, 0.5},
		{[]float64{1, 0, 0, 0}, 0.25},
		{[]float64{1, 2}, 0.9},
	}
	for _, tt := range tests {
		if got := jain(tt.got); math.Abs(got-tt.want) > 1e-12 {
			t.Errorf("jain(%v) = %v, want %v", tt.got, got, tt.want)
		}
	}
}

// TestPropertyJain: between 1/n and 1, and blind to the unit.
func TestPropertyJain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		requests := rapid.Map(rapid.IntRange(0, 1e6), func(n int) float64 { return float64(n) })
		got := rapid.SliceOfN(requests, 1, 20).Draw(t, "got")
		j := jain(got)
		if j < 1/float64(len(got))-1e-9 || j > 1+1e-9 {
			t.Fatalf("jain(%v) = %v", got, j)
		}
		scaled := make([]float64, len(got))
		for i, x := range got {
			scaled[i] = 1000 * x
		}
		if s := jain(scaled); math.Abs(s-j) > 1e-9 {
			t.Fatalf("jain(%v) = %v, and %v for a thousand times as much", got, j, s)
		}
	})
}

func TestQuantile(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(100 - i)
	}
	tests := []struct {
		values []time.Duration
		q      float64
		want   time.Duration
	}{
		{nil, 0.5, 0},
		{[]time.Duration{3}, 0.5, 3},
		{[]time.Duration{3, 1, 2}, 0, 1},
		{[]time.Duration{3, 1, 2}, 0.5, 2},
		{[]time.Duration{3, 1, 2}, 1, 3},
		{hundred, 0.50, 50},
		{hundred, 0.99, 99},
		{hundred, 1, 100},
	}
	for _, tt := range tests {
		if got := quantile(tt.values, tt.q); got != tt.want {
			t.Errorf("quantile(%v, %v) = %v, want %v", tt.values, tt.q, got, tt.want)
		}
	}
}

// history has two replicas in its first second and a third in its second.
var history = []upstream.Arrival{
	{Arrived: 100 * ms, Replica: 1, Accepted: true},
	{Arrived: 200 * ms, Replica: 2, Accepted: true},
	{Arrived: 900 * ms, Replica: 2, Accepted: false},
	{Arrived: 1000 * ms, Replica: 3, Accepted: true},
	{Arrived: 1999 * ms, Replica: 1, Accepted: true},
	{Arrived: 2000 * ms, Replica: 1, Accepted: true},
}

func TestMeasure(t *testing.T) {
	tests := []struct {
		ph                  phase
		goodput, r429, fair float64
	}{
		{phase{From: 0, To: time.Second, Limit: 4, Alive: []int{1, 2}}, 0.5, 1. / 3, 1},
		{phase{From: time.Second, To: 2 * time.Second, Limit: 4, Alive: []int{1, 2, 3}}, 0.5, 0, 2. / 3},
		{phase{From: 3 * time.Second, To: 4 * time.Second, Limit: 4, Alive: []int{1}}, 0, 0, 1},
	}
	for _, tt := range tests {
		got := measure(history, tt.ph)
		if got.Goodput != tt.goodput || got.Rejected != tt.r429 || math.Abs(got.Fairness-tt.fair) > 1e-12 {
			t.Errorf("%+v: %+v", tt, got)
		}
	}
}

func TestCount(t *testing.T) {
	got := count(history, 0, time.Second)
	if len(got) != 2 || got[1] != (second{Sent: 1}) || got[2] != (second{Sent: 2, Rejected: 1}) {
		t.Errorf("first second: %v", got)
	}
	if got := count(history, 2*time.Second, 3*time.Second); len(got) != 1 || got[1].Sent != 1 {
		t.Errorf("third second: %v", got)
	}
}
