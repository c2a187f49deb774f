package sim

// heap is a binary heap of events by time.
type heap []event

func (h *heap) push(e event) {
	*h = append(*h, e)
	l, i := *h, len(*h)-1
	for i > 0 && l[(i-1)/2].at > e.at {
		l[i], i = l[(i-1)/2], (i-1)/2
	}
	l[i] = e
}

func (h *heap) pop() event {
	top, l := (*h)[0], (*h)[:len(*h)-1]
	e := (*h)[len(l)]
	*h = l
	for i := 0; i < len(l); {
		down := 2*i + 1
		if down+1 < len(l) && l[down+1].at < l[down].at {
			down++
		}
		if down >= len(l) || e.at <= l[down].at {
			l[i] = e
			break
		}
		l[i], i = l[down], down
	}
	return top
}
