package sim

// heap is a binary heap of events by time.
type heap []event

func (h *heap) push(e event) {
	*h = append(*h, e)
	l := *h
	i := len(l) - 1
	for i > 0 {
		up := (i - 1) / 2
		if l[up].at <= e.at {
			break
		}
		l[i] = l[up]
		i = up
	}
	l[i] = e
}

func (h *heap) pop() event {
	l := *h
	top, e := l[0], l[len(l)-1]
	l = l[:len(l)-1]
	*h = l
	if len(l) == 0 {
		return top
	}
	i := 0
	for {
		down := 2*i + 1
		if down >= len(l) {
			break
		}
		if down+1 < len(l) && l[down+1].at < l[down].at {
			down++
		}
		if e.at <= l[down].at {
			break
		}
		l[i] = l[down]
		i = down
	}
	l[i] = e
	return top
}
