package engine

// chain is a list of tasks, linked through themselves. The zero value is empty.
type chain struct{ first, last *task }

func (c *chain) push(t *task) {
	t.next = nil
	if c.first == nil {
		c.first = t
	} else {
		c.last.next = t
	}
	c.last = t
}

// pop takes the first task off, nil if there is none.
func (c *chain) pop() *task {
	t := c.first
	if t == nil {
		return nil
	}
	c.first, t.next = t.next, nil
	if c.first == nil {
		c.last = nil
	}
	return t
}

// join moves all tasks of another chain behind these.
func (c *chain) join(other *chain) {
	switch {
	case other.first == nil:
		return
	case c.first == nil:
		c.first = other.first
	default:
		c.last.next = other.first
	}
	c.last = other.last
	*other = chain{}
}

// queue is a line of tasks, each with the others behind it that its run has in the same
// lane. The zero value is empty.
type queue struct {
	heads []*task
	begin int // of those that are still in it
}

func (q *queue) empty() bool { return q.length() == 0 }

func (q *queue) length() int { return len(q.heads) - q.begin }

func (q *queue) push(head *task) {
	if q.begin > len(q.heads)/2 { // each is moved once, on average
		n := copy(q.heads, q.heads[q.begin:])
		clear(q.heads[n:])
		q.heads, q.begin = q.heads[:n], 0
	}
	q.heads = append(q.heads, head)
}

// pop takes the first one off. There must be one.
func (q *queue) pop() *task {
	head := q.heads[q.begin]
	q.heads[q.begin] = nil
	q.begin++
	return head
}

// unpop puts back in front what is left of the one that was popped last.
func (q *queue) unpop(head *task) {
	q.begin--
	q.heads[q.begin] = head
}
