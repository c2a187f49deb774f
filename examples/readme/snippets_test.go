package readme

import (
	"context"
	"errors"
	"log"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/admin"
	"github.com/quotient-go/quotient/httplimit"
	"github.com/quotient-go/quotient/metrics"
	"github.com/quotient-go/quotient/policy"
	"github.com/quotient-go/quotient/poolsize/dns"
)

// The README's functions, to the letter.

func callAPI(ctx context.Context, limiter *quotient.Limiter) error {
	client := &http.Client{Transport: &httplimit.Transport{Limiter: limiter}} // key: the host
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://api.example.com/v1/things", nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req) // waits for its turn; the slot is free when the body is read or closed
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

func follow() (*quotient.Limiter, error) {
	most := quotient.Rates(quotient.PerSecond(100)) // more than this is never tried
	return quotient.New(most, quotient.Policy(policy.Tracking{}), quotient.BeyondShare())
}

func counted(ctx context.Context) (*quotient.Limiter, error) {
	limiter, err := quotient.New(quotient.Rates(quotient.PerSecond(100)),
		quotient.AwaitPool(),             // admit nothing before the first count,
		quotient.HintMaxAge(time.Minute), // and when there has been none for a minute
		quotient.Replicas(10))            // be one of ten
	if err != nil {
		return nil, err
	}
	pods := &dns.Source{Name: "api.prod.svc.cluster.local.", Uncapped: true} // a headless Service
	go func() { log.Print(limiter.Follow(ctx, pods)) }()                     // until ctx ends
	return limiter, nil
}

func operate(ctx context.Context) (http.Handler, error) {
	var limiters quotient.Registry // the same rule asked for twice is one limiter
	collected := metrics.New(&limiters)
	prometheus.MustRegister(collected)
	limit := quotient.Limit{Rates: []quotient.Rate{quotient.PerSecond(100)}, InFlight: 20}
	api, err := limiters.Limiter("api", limit, collected.Observe()) // times waits and overhead
	if err != nil {
		return nil, err
	}
	operator, err := admin.New(&limiters) // a page and a JSON API; without a token for the loopback alone
	if err != nil {
		return nil, err
	}
	l, err := operator.Listen(ctx, "tcp", "127.0.0.1:9091")
	if err != nil {
		return nil, err
	}
	go func() { log.Print(operator.Serve(ctx, l)) }()
	throttled := httplimit.Middleware(api, httplimit.Path(), httplimit.SendFields(httplimit.FieldsDraft11))
	return throttled(http.DefaultServeMux), nil
}

func summarize(ctx context.Context, limiter *quotient.Limiter, text string) error {
	permit, err := limiter.Acquire(ctx, "model-a", quotient.Cost("tokens", len(text)/4))
	if err != nil {
		return err // errors.Is(err, quotient.ErrLimited), with a reason and a time to come back
	}
	defer permit.Release()
	used, err := complete(ctx, text)
	if err != nil {
		return err
	}
	return permit.Correct("tokens", used) // what was over the estimate is repaid before the next admission
}

// complete stands for a call of a language model; it returns how many tokens were used.
func complete(_ context.Context, text string) (int, error) { return len(text) / 3, nil }

func TestReadmeFunctionsRun(t *testing.T) {
	tokens := quotient.Rate{Name: "tokens", Unit: "tokens", Events: 1000, Per: 1e9}
	limiter, err := quotient.New(quotient.Rates(tokens))
	if err != nil {
		t.Fatal(err)
	}
	if err := summarize(context.Background(), limiter, string(make([]byte, 300))); err != nil {
		t.Error(err)
	}
	for k := range limiter.Keys() {
		if k.Rules[0].Left > 901 {
			t.Errorf("%v tokens left after 100 of 1000 were used", k.Rules[0].Left)
		}
	}
	cancelled, cancel := context.WithCancel(context.Background())
	cancel() // nothing here may leave the machine
	if err := callAPI(cancelled, limiter); err == nil {
		t.Error("a call with a cancelled context went through")
	}
}

// Nothing is served when the program is to end already.
func TestReadmeOperates(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	h, err := operate(ended)
	if taken := (*net.OpError)(nil); errors.As(err, &taken) {
		t.Skip("port 9091 of this machine is taken:", err)
	}
	if err != nil || h == nil {
		t.Errorf("handler %v, error %v", h, err)
	}
}

// The limiter of the README waits for its first count, and gives up waiting after a minute.
func TestReadmeCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // nothing here may leave the machine
		limiter, err := counted(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if limiter.Allow("k") {
			t.Error("admitted before the first count")
		}
		if err := limiter.SetPool(quotient.Pool{Replicas: 4}, 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if !limiter.Allow("k") {
			t.Error("refused after it")
		}
	})
}

// The limiter of the README starts far below the limit, goes up while it is served, and down when it is refused.
func TestReadmePolicyFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, err := follow()
		if err != nil {
			t.Fatal(err)
		}
		in := func(seconds int, outcome policy.Outcome) (n int) {
			for end := time.Now().Add(time.Duration(seconds) * time.Second); time.Now().Before(end); n++ {
				permit, err := limiter.Acquire(t.Context(), "host")
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Millisecond) // the round trip
				permit.Done(policy.Feedback{Outcome: outcome})
			}
			return n
		}
		before := in(1, policy.Success)
		in(10, policy.Success)
		most := in(1, policy.Success)
		in(1, policy.Throttled)
		if after := in(1, policy.Success); before > 10 || most < 50 || most > 101 || after > most/2 {
			t.Errorf("%d in the first second, %d at the top, %d after a second of refusals", before, most, after)
		}
	})
}
