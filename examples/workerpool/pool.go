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

func newPool() *pool {
	reads := quotient.Rate{Name: "reads", Events: readsPerSecond, Per: time.Second, Burst: batchMost}
	tokens := quotient.Rate{Name: "tokens", Unit: "tokens", Events: tokensPerSecond, Per: time.Second, Burst: tokensAtOnce}
	work := quotient.Limit{Rates: []quotient.Rate{tokens}, InFlight: weightInFlight}
	return &pool{reader: quotient.Must(quotient.New(quotient.Rates(reads))), model: quotient.Must(quotient.New(work))}
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
	for ctx.Err() == nil {
		permit, n := p.reader.TryAcquireUpTo("queue", batchMost)
		if n == 0 {
			select {
			case <-ctx.Done():
			case <-time.After(max(time.Millisecond, p.reader.Check("queue").RetryAfter)):
			}
			continue
		}
		batch := q.read(n)
		p.unused += n - len(batch)
		err := permit.Correct("", len(batch)) // the rest counts for the next batch
		permit.Release()
		if err != nil || len(batch) == 0 {
			return err
		}
		for _, msg := range batch {
			todo <- msg
		}
	}
	return ctx.Err()
}

// handle asks for what a message will probably cost, and corrects that when it is known.
func (p *pool) handle(ctx context.Context, m *model, msg message) error {
	permit, err := p.model.Acquire(ctx, "model-a", quotient.Weight(msg.weight), quotient.Cost("tokens", len(msg.text)/4))
	if err != nil {
		return err
	}
	defer permit.Release()
	return permit.Correct("tokens", m.answer(msg))
}
