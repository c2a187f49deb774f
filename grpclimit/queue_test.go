package grpclimit

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/quotient-go/quotient"
)

// twenty is a limiter of 20 calls a second over two replicas, whose key m has its next call in 100 ms.
func twenty(t *testing.T) *quotient.Limiter {
	rate := quotient.Rate{Events: 20, Per: time.Second, Burst: 2}
	l := limiter(t, quotient.Rates(rate), quotient.Replicas(2))
	l.TryAcquire("m")
	return l
}

// The queue of a rate holds max x rate / replicas calls, and none of a low class behind as many of a high
// one.
func TestQueueOfAShortWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := twenty(t)
		class := func(p quotient.Priority) Option {
			return PriorityBy(func(Call) quotient.Priority { return p })
		}
		wait, start := Wait(210*time.Millisecond), time.Now() // 200 ms would end at the second turn
		for range 2 {
			go func() {
				if err := call(t.Context(), l, wait, class(quotient.PriorityHigh)); err != nil {
					t.Errorf("in the queue: %v", err)
				}
			}()
			synctest.Wait()
		}
		for _, p := range []quotient.Priority{quotient.PriorityHigh, quotient.PriorityLow} {
			d, _ := Refused(call(t.Context(), l, wait, class(p)))
			if d.Reason != quotient.ReasonRate ||
				d.RetryAfter.Round(time.Millisecond) != 300*time.Millisecond {
				t.Errorf("class %d behind two: %+v, want a turn in 300ms", p, d)
			}
		}
		if s := l.Stats(); s.Waiting != 2 || time.Since(start) != 0 {
			t.Errorf("%d wait after %v, want 2 at once", s.Waiting, time.Since(start))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		idle(t, l)
	})
}

// A client sends ten times as many calls as it may. All calls that are sent have their answers in time if
// Wait leaves the time for them.
func TestWaitBelowTheTimeout(t *testing.T) {
	insecurely := grpc.WithTransportCredentials(insecure.NewCredentials())
	conn, err := grpc.NewClient("passthrough:///nowhere", insecurely)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	run := func(opts ...Option) (int64, int64) {
		var sent, inTime atomic.Int64
		synctest.Test(t, func(t *testing.T) {
			answer := func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn,
				_ ...grpc.CallOption) error {
				sent.Add(1)
				select {
				case <-time.After(80 * time.Millisecond):
					inTime.Add(1)
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			interceptor := UnaryClient(twenty(t), FullMethod(), opts...)
			for range 1000 {
				go func() {
					ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
					defer cancel()
					_ = interceptor(ctx, "m", nil, nil, conn, answer)
				}()
				time.Sleep(10 * time.Millisecond)
				synctest.Wait()
			}
			time.Sleep(time.Second)
		})
		return sent.Load(), inTime.Load()
	}
	if sent, inTime := run(Wait(200 * time.Millisecond)); sent < 90 || inTime != sent {
		t.Errorf("with Wait %d of %d sent calls were in time, want all", inTime, sent)
	}
	if sent, inTime := run(); sent < 90 || inTime > sent*9/10 {
		t.Errorf("without Wait %d of %d sent calls were in time, want fewer than nine of ten", inTime, sent)
	}
}
