package chaos

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// journal holds what all callers of all workers called, and how they were answered.
type journal struct {
	mu         sync.Mutex
	asked      map[string]int       // how often each transfer was asked for
	answers    []entry              // answered calls, and calls that never got an answer
	pending    map[string]entry     // calls that have no answer yet
	words      map[event]int        // number of answers, by verb and word
	recoveries map[string]int       // number of recovered transfers, by what became of them
	events     map[string]*receipts // the receipts for events, by event
	strange    []string             // lines that no worker should write
}

func newJournal() *journal {
	return &journal{
		asked: map[string]int{}, pending: map[string]entry{}, words: map[event]int{}, recoveries: map[string]int{},
		events: map[string]*receipts{},
	}
}

// read records what a worker reports, until its output ends.
// The last line of a killed worker may be cut short.
func (j *journal) read(output io.Reader) {
	lines := bufio.NewReader(output)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			j.mu.Lock()
			j.strange = append(j.strange, fmt.Sprintf("%s: %v", line, err))
			j.mu.Unlock()
			continue
		}
		j.enter(e)
	}
}

func (j *journal) enter(e entry) {
	if e.Took != nil {
		j.delivered(*e.Took)
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if e.Recovered != nil {
		j.recoveries["sweeps"]++
		j.recoveries["succeeded"] += e.Recovered.Succeeded
		j.recoveries["failed"] += e.Recovered.Failed
		j.recoveries["expired"] += e.Recovered.Expired
		j.recoveries["stuck"] += e.Recovered.Stuck
		return
	}
	if e.Word == unanswered {
		j.pending[e.Call] = e
		if e.Verb.stores() {
			j.asked[e.ID]++
		}
		return
	}
	delete(j.pending, e.Call)
	j.words[event{string(e.Verb), string(e.Word)}]++
	j.answers = append(j.answers, e)
}

// unanswered returns the transfers for which the callers of a dead worker got no answer,
// and forgets these calls.
func (j *journal) unanswered(prefix string) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var ids []string
	for call, e := range j.pending {
		if !strings.HasPrefix(call, prefix) {
			continue
		}
		delete(j.pending, call)
		e.Ended = time.Now()
		j.answers = append(j.answers, e)
		j.words[event{string(e.Verb), "never answered"}]++
		if e.Verb.stores() {
			ids = append(ids, e.ID)
		}
	}
	slices.Sort(ids)
	return ids
}
