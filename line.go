package transfer

import "sync"

// lines are the callers in this process of each transfer, by its ID. The zero value is
// none.
type lines struct {
	mu  sync.Mutex
	all map[string]*line
}

// line are the callers of one transfer.
type line struct {
	callers int           // guarded by the lock of the lines
	turn    chan struct{} // of who may run the transfer; the others wait in the order in which they came
}

// join adds a caller, who is to leave again.
func (ls *lines) join(id string) *line {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.all == nil {
		ls.all = map[string]*line{}
	}
	l := ls.all[id]
	if l == nil {
		l = &line{turn: make(chan struct{}, 1)}
		ls.all[id] = l
	}
	l.callers++
	return l
}

func (ls *lines) leave(id string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.all[id]
	if l.callers--; l.callers == 0 {
		delete(ls.all, id)
	}
}
