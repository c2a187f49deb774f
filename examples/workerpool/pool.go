package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/quotient-go/quotient"
)

// The limits, over the fleet.
const (
	readsPerSecond  = 500
	batchMost       = 50
	tokensPerSecond = 20_000
	tokensAtOnce    = 2_000
	weightInFlight  = 10
)

// A pool reads under one limit and works under another.
type pool struct {
	reader, model *quotient.Limiter
	unused        int // that the reader asked for and did not need
}

func newPool() (*pool, error) {
	reader, err := quotient.New(quotient.Rates(quotient.Rate{Name: "reads", Events: readsPerSecond, Per: time.Second, Burst: batchMost}))
	if err != nil {
		return nil, err
	}
	tokens := quotient.Rate{Name: "tokens", Unit: "tokens", Events: tokensPerSecond, Per: time.Second, Burst: tokensAtOnce}
	model, err := quotient.New(quotient.Limit{Rates: []quotient.Rate{tokens}, InFlight: weightInFlight})
	if err != nil {
		return nil, err
	}
	return &pool{reader: reader, model: model}, nil
}

// work reads until the queue is empty and returns when all is done, or with the first error of each worker.
func (p *pool) work(ctx context.Context, q *queue, m *model) error {
	todo, errs := make(chan message), make([]error, workers+1)
	var running sync.WaitGroup
	for i := range workers {
		running.Go(func() {
			for msg := range todo { // also after an error: no worker may be left with a message
				errs[i] = errors.Join(errs[i], p.handle(ctx, m, msg))
			}
		})
	}
	errs[workers] = p.read(ctx, q, todo)
	close(todo)
	running.Wait()
	return errors.Join(errs...)
}

// read takes what there is room for, and hands it on.
func (p *pool) read(ctx context.Context, q *queue, todo chan<- message) error {
	for {
		permit, n, err := p.room(ctx)
		if err != nil {
			return err
		}
		batch := q.read(n)
		p.unused += n - len(batch)
		err = permit.Correct("", len(batch)) // the rest counts for the next batch
		permit.Release()
		if err != nil || len(batch) == 0 {
			return err
		}
		for _, msg := range batch {
			todo <- msg
		}
	}
}

// room waits for room for one message and takes what there is for more.
func (p *pool) room(ctx context.Context) (quotient.Permit, int, error) {
	for {
		if permit, n := p.reader.TryAcquireUpTo("queue", batchMost); n > 0 {
			return permit, n, nil
		}
		select {
		case <-ctx.Done():
			return quotient.Permit{}, 0, ctx.Err()
		case <-time.After(max(time.Millisecond, p.reader.Check("queue").RetryAfter)):
		}
	}
}

// handle asks for what a message will probably cost, and corrects that when it is known.
func (p *pool) handle(ctx context.Context, m *model, msg message) error {
	permit, err := p.model.Acquire(ctx, "model-a", quotient.Weight(msg.weight()), quotient.Cost("tokens", len(msg.text)/4))
	if err != nil {
		return err
	}
	defer permit.Release()
	used, err := m.answer(ctx, msg)
	if err != nil {
		return err
	}
	return permit.Correct("tokens", used)
}

// weight is how many slots a message takes.
func (m message) weight() int {
	if m.pictures {
		return 4
	}
	return 1
}
