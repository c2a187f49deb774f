package quotient

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestPoolValidate(t *testing.T) {
	for _, c := range []struct {
		pool  Pool
		words []string // of the error; none: valid
	}{
		{Pool{Replicas: 1}, nil},
		{Pool{Replicas: maxReplicas, Ordinal: maxReplicas, Fixed: true}, nil},
		{Pool{Replicas: -1}, []string{"Pool.Replicas", "-1"}},
		{Pool{Replicas: maxReplicas + 1}, []string{"Pool.Replicas", "1000001"}},
		{Pool{Replicas: math.MaxInt}, []string{"Pool.Replicas", fmt.Sprint(math.MaxInt)}},
		{Pool{Replicas: 3, Ordinal: 4}, []string{"Pool.Ordinal", "4", "3 replicas"}},
		{Pool{Replicas: 3, Ordinal: -1}, []string{"Pool.Ordinal", "-1"}},
		{Pool{Replicas: 5, Weight: 5, Ordinal: 1}, nil},
		{Pool{Replicas: 5, Weight: 2, Ordinal: 4, Fixed: true}, nil},
		{Pool{Replicas: maxReplicas, Weight: maxReplicas}, nil},
		{Pool{Replicas: 5, Weight: -1}, []string{"Pool.Weight", "-1"}},
		{Pool{Replicas: 5, Weight: 6}, []string{"Pool.Weight", "6", "5 replicas"}},
		{Pool{Replicas: 5, Weight: 2, Ordinal: 5}, []string{"Pool.Ordinal", "5", "weight 2"}},
		{Pool{Replicas: 5, Weight: 5, Ordinal: 2}, []string{"Pool.Ordinal", "2", "weight 5"}},
	} {
		if err := c.pool.validate(); len(c.words) > 0 {
			says(t, err, c.words...)
		} else if err != nil {
			t.Errorf("%+v: %v", c.pool, err)
		}
	}
}

func TestSources(t *testing.T) {
	row(t, "static", func(t *testing.T) {
		l := mustNew(t, Limit{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		want := Pool{Replicas: 5, Ordinal: 2, Fixed: true}
		go func() {
			time.Sleep(30 * time.Second)
			is(t, "in force", l.Stats().Pool.Pool, want)
		}()
		must(t, l.Follow(ctx, steady(want)))
		st := l.Stats().Pool
		is(t, "source, reports, age", fmt.Sprint(st.Source, " ", st.Reports, " ", st.Age), "followed 1 1m0s")
	})
	// The ordinal stays the replica's own whatever the source makes of it, and counts only in pools that are
	// large enough.
	row(t, "fixed ordinal", func(t *testing.T) {
		l, src := mustNew(t, Limit{}, HoldDown(0)), &spoken{}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- l.Follow(ctx, FixedOrdinal(3, src)) }()
		synctest.Wait()
		for _, c := range []struct{ says, want Pool }{
			{Pool{Replicas: 2, Ordinal: 1}, Pool{Replicas: 2}},
			{Pool{Replicas: 5, Ordinal: 1}, Pool{Replicas: 5, Ordinal: 3, Fixed: true}},
			{Pool{Replicas: 9}, Pool{Replicas: 9, Ordinal: 3, Fixed: true}},
			{Pool{Replicas: 9, Weight: 7}, Pool{Replicas: 9, Ordinal: 3, Fixed: true, Weight: 7}},
			{Pool{Replicas: 10, Weight: 9, Ordinal: 2}, Pool{Replicas: 10, Weight: 9}},
			{Pool{Replicas: 81, Weight: 9}, Pool{Replicas: 81, Weight: 9, Ordinal: 3, Fixed: true}},
		} {
			src.saysPool(c.says)
			is(t, c.says, l.Stats().Pool.Pool, c.want)
		}
		src.fails("no answer")
		src.says(0)
		st := l.Stats().Pool
		is(t, "errors, rejected, replicas", fmt.Sprint(st.Errors, st.Rejected, st.Replicas), "1 1 81")
		cancel()
		must(t, <-ended)
		for want, wrong := range map[string]Source{
			"FixedOrdinal: ordinal 0": FixedOrdinal(0, src), "source <nil>": FixedOrdinal(1, nil),
			"ordinal -1": FixedOrdinal(1, FixedOrdinal(-1, src)), // what it holds is asked as well
		} {
			says(t, wrong.(interface{ Validate() error }).Validate(), want)
			says(t, l.Follow(t.Context(), wrong), want)
		}
	})
}

func TestEnv(t *testing.T) {
	for _, c := range []struct {
		replicas, ordinal string // "-": not set; the ordinal may be followed by a weight
		want              Pool
		words             []string
	}{
		{"7", "- 2", Pool{Replicas: 7, Weight: 2}, nil},
		{"7", "5 2", Pool{Replicas: 7, Ordinal: 6, Fixed: true, Weight: 2}, nil},
		{"7", "6 2", Pool{}, []string{"Pool.Ordinal", "7", "weight 2"}},
		{"7", "- 8", Pool{}, []string{"Pool.Weight", "8"}},
		{"7", "- 0", Pool{}, []string{"QUOTIENT_WEIGHT", `"0"`}},
		{"7", "- ", Pool{}, []string{"QUOTIENT_WEIGHT", `""`}},
		{"4", "-", Pool{Replicas: 4}, nil},
		{"4", "0", Pool{Replicas: 4, Ordinal: 1, Fixed: true}, nil},
		{"4", "3", Pool{Replicas: 4, Ordinal: 4, Fixed: true}, nil},
		{"4", "4", Pool{}, []string{"Pool.Ordinal", "5"}},
		{"4", "", Pool{}, []string{"QUOTIENT_ORDINAL", `""`}},
		{"4", fmt.Sprint(math.MaxInt), Pool{}, []string{"Pool.Ordinal"}},
		{"-", "-", Pool{}, []string{"QUOTIENT_REPLICAS", `""`}},
		{"", "0", Pool{}, []string{"QUOTIENT_REPLICAS", `""`}},
		{"0", "-", Pool{}, []string{"Pool.Replicas", "0"}},
		{"many", "-", Pool{}, []string{"QUOTIENT_REPLICAS", `"many"`}},
		{"99999999999999999999", "-", Pool{}, []string{"QUOTIENT_REPLICAS"}},
		{"1000001", "-", Pool{}, []string{"Pool.Replicas", "1000001"}},
	} {
		t.Run(c.replicas+" "+c.ordinal, func(t *testing.T) {
			ordinal, weight, weighted := strings.Cut(c.ordinal, " ")
			if !weighted {
				weight = "-"
			}
			for name, v := range map[string]string{
				envReplicas: c.replicas, envOrdinal: ordinal, envWeight: weight,
			} {
				if v != "-" {
					t.Setenv(name, v)
				}
			}
			inFakeTime(t, func(t *testing.T) {
				l := mustNew(t, Limit{}, Replicas(7))
				ctx, cancel := context.WithCancel(t.Context())
				go l.Follow(ctx, Env()) //nolint:errcheck // the context's end
				synctest.Wait()
				cancel()
				st := l.Stats().Pool
				if c.words == nil {
					is(t, "in force", st.Pool, c.want)
					return
				}
				counted(t, l, 7) // the configured size, never 1
				says(t, errors.New(st.LastError), c.words...)
				is(t, "errors", st.Errors+st.Rejected, 1)
			})
		})
	}
}
