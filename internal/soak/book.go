package soak

import (
	"fmt"
	"maps"
	"sync"
)

// The outcomes of a request.
const (
	answered   = "answered"
	unanswered = "unanswered, or told to ask again"
	repeated   = "asked again after an answer"
)

// answer is the final answer that a client got.
type answer struct {
	ask
	word        string
	status      int
	state, code string
}

// book holds all final answers.
type book struct {
	mu      sync.Mutex
	answers []answer
	words   map[string]int
}

func newBook() *book { return &book{words: map[string]int{}} }

func (b *book) add(a answer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.words[a.word]++
	if a.word == answered {
		b.words[fmt.Sprintf("%s %d %s", a.verb, a.status, a.code)]++
		b.answers = append(b.answers, a)
	}
}

// counts returns how often each outcome occurred.
func (b *book) counts() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.words)
}
