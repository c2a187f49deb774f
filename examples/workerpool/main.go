// Command workerpool shows workers that read messages in batches and call a model that counts tokens.
//
//	go run ./examples/workerpool
//
// Two limits hold. The reader takes as much of a batch as there is room for (TryAcquireUpTo), and gives back what the
// queue did not have (Correct). A worker takes the tokens that a message will probably cost, and corrects them
// afterwards. A message with pictures has a weight of four. pool.go is the part to copy. The program ends by itself
// in about two seconds. The exit status is 1 when a message was lost or a limit did not hold.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	messages = 600
	workers  = 8
)

func main() {
	fmt.Println("Look at what the reader takes and gives back, at the tokens a second, and at the units of work at a time.")
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "workerpool:", err)
		os.Exit(1)
	}
}

// run works through the queue and returns an error if what it claims does not hold.
func run(ctx context.Context, out io.Writer) error {
	p, q, m := newPool(), &queue{left: messages}, &model{}
	start := time.Now()
	if err := p.work(ctx, q, m); err != nil {
		return err
	}
	took := time.Since(start)
	fmt.Fprintf(out, "%d messages in %d batches, %d taken and given back\n", m.answered, q.batches, p.unused)
	fmt.Fprintf(out, "%d tokens in %v, %d a second and %d at once allowed\n",
		m.tokens, took.Round(time.Millisecond), tokensPerSecond, tokensAtOnce)
	fmt.Fprintf(out, "at most %d of %d units of work at a time\n", m.most, weightInFlight)
	return m.check(took)
}

// A message is one piece of work. With pictures it weighs more.
type message struct {
	text   string
	weight int
}

// A queue has messages now and then.
type queue struct{ left, batches int }

// read returns at most n messages, often fewer, and none when there will be no more.
func (q *queue) read(n int) []message {
	q.batches++
	if q.batches%3 == 0 {
		n = (n + 1) / 2 // the queue is slow at times
	}
	batch := make([]message, min(n, q.left))
	for i := range batch {
		batch[i] = message{strings.Repeat("text", 10+q.left%60), 1}
		if q.left%10 == 0 {
			batch[i].weight = 4
		}
		q.left--
	}
	return batch
}

// A model answers, counts tokens, and sees how much it has to do at a time.
type model struct {
	mu                                       sync.Mutex
	answered, tokens, working, most, largest int
}

// answer takes a while and returns how many tokens it took: somewhat more than the text has.
func (m *model) answer(msg message) (used int) {
	used = len(msg.text)/4 + len(msg.text)/16
	m.mu.Lock()
	defer m.mu.Unlock()
	m.working += msg.weight
	m.most, m.largest = max(m.most, m.working), max(m.largest, used)
	m.mu.Unlock()
	time.Sleep(5 * time.Millisecond)
	m.mu.Lock()
	m.working -= msg.weight
	m.answered++
	m.tokens += used
	return used
}

// check holds what was seen to the limits. Work in hand may cost more than estimated, and is repaid by the
// next worker.
func (m *model) check(took time.Duration) error {
	most := tokensAtOnce + int(tokensPerSecond*took.Seconds()) + workers*m.largest
	if m.answered != messages || m.tokens > most || m.most > weightInFlight {
		return fmt.Errorf("%d messages of %d, %d tokens of %d, %d units of work at a time of %d",
			m.answered, messages, m.tokens, most, m.most, weightInFlight)
	}
	return nil
}
