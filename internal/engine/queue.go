package engine

// chain is a list of tasks, linked through themselves.
// The zero value is empty.
type chain struct {
	first, last *task
	length      int
}

func (c *chain) push(t *task) {
	t.next = nil
	c.length++
	if c.first == nil {
		c.first = t
	} else {
		c.last.next = t
	}
	c.last = t
}

// pop removes the first task and returns it.
// It returns nil if the chain is empty.
func (c *chain) pop() *task {
	t := c.first
	if t == nil {
		return nil
	}
	c.first, t.next = t.next, nil
	c.length--
	if c.first == nil {
		c.last = nil
	}
	return t
}

// join moves all tasks of another chain to the end of this one.
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
	c.length += other.length
	*other = chain{}
}

// queue is a first-in-first-out queue of heads.
// Each head is the first task of one job's round in a lane and links to the others.
// The zero value is empty.
type queue struct {
	heads []*task
	start int // index of the first head that is still queued
}

func (q *queue) empty() bool { return q.length() == 0 }

func (q *queue) length() int { return len(q.heads) - q.start }

func (q *queue) push(head *task) {
	if q.start > len(q.heads)/2 { // each head is moved once on average
		n := copy(q.heads, q.heads[q.start:])
		clear(q.heads[n:])
		q.heads, q.start = q.heads[:n], 0
	}
	q.heads = append(q.heads, head)
}

// pop removes the first head and returns it.
// The queue must not be empty.
func (q *queue) pop() *task {
	head := q.heads[q.start]
	q.heads[q.start] = nil
	q.start++
	return head
}

// pushFront puts the rest of the chain that was popped last back to the front.
func (q *queue) pushFront(head *task) {
	q.start--
	q.heads[q.start] = head
}
