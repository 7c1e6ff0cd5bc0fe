package soak

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	// askLimit is how long a client waits for an answer.
	// It is shorter than the service may take, so some answers are lost.
	askLimit = 5 * time.Second
	// maxPause bounds the pause before a client repeats a request.
	maxPause = time.Second
)

// client makes one request after the other.
type client struct {
	*run
	name string
	rng  *rand.Rand
	old  []ask // requests that were answered
}

// ask is a request that a client repeats until it has an answer.
type ask struct {
	verb, id string
	body     string
	part     int64 // of a post
}

func newClient(r *run, n int) *client {
	return &client{run: r, name: fmt.Sprint("c", n), rng: rand.New(rand.NewPCG(uint64(n), 1))}
}

// work makes requests until ctx ends.
// A request that has no answer by then never gets one, as if the client died.
func (c *client) work(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		id := fmt.Sprintf("%s-%d", c.name, n)
		switch dice := c.rng.IntN(10); {
		case dice < 5:
			c.insist(ctx, c.move("transfer", id, ""))
		case dice < 6:
			c.insist(ctx, c.later(id))
		case dice < 9:
			c.hold(ctx, id)
		case len(c.old) > 0:
			c.insist(ctx, c.old[c.rng.IntN(len(c.old))])
			c.book.add(answer{word: repeated})
		}
	}
}

// move returns a transfer between two accounts, sometimes of more money than there is.
func (c *client) move(verb, id, holdFor string) ask {
	from := c.rng.IntN(c.Accounts)
	to := (from + 1 + c.rng.IntN(c.Accounts-1)) % c.Accounts
	amount := 1 + c.rng.IntN(openingBalance/4)
	if c.rng.IntN(8) == 0 {
		amount = openingBalance * c.Accounts
	}
	return ask{verb: verb, id: id, body: fmt.Sprintf(
		`{"from": %q, "to": %q, "amount": %d, "holdFor": %q}`, account(from), account(to), amount, holdFor)}
}

// later returns a transfer that a worker runs a moment later.
func (c *client) later(id string) ask {
	a := c.move("schedule", id, "")
	when := time.Now().Add(time.Second).UTC().Format(time.RFC3339Nano)
	a.body = strings.Replace(a.body, `"holdFor": ""`, fmt.Sprintf(`"notBefore": %q`, when), 1)
	return a
}

// hold holds money, and then posts a part of it, voids it, or leaves it to expire.
func (c *client) hold(ctx context.Context, id string) {
	fate := c.rng.IntN(3)
	holdFor := "1h"
	if fate == 2 {
		holdFor = "1s"
	}
	if got := c.insist(ctx, c.move("hold", id, holdFor)); got != http.StatusAccepted {
		return
	}
	switch fate {
	case 0:
		c.insist(ctx, ask{verb: "post", id: id, part: 1, body: `{"amount": 1}`})
	case 1:
		c.insist(ctx, ask{verb: "void", id: id})
	}
}

// insist sends a request to any of the processes, again and again, until it has a final
// answer.
// It returns the status.
func (c *client) insist(ctx context.Context, a ask) int {
	for wait := 10 * time.Millisecond; ctx.Err() == nil; wait = min(2*wait, maxPause) {
		got := c.once(ctx, a)
		c.book.add(got)
		if got.word == answered {
			if a.verb == "transfer" {
				c.old = append(c.old, a)
			}
			return got.status
		}
		pause(ctx, wait)
	}
	return 0
}

// once sends a request to one process.
func (c *client) once(ctx context.Context, a ask) answer {
	path := "/transfers"
	if a.verb == "post" || a.verb == "void" {
		path += "/" + a.id + "/" + a.verb
	}
	limited, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	target := "http://" + c.slots[c.rng.IntN(len(c.slots))].address + path
	request, err := http.NewRequestWithContext(limited, http.MethodPost, target, strings.NewReader(a.body))
	got := answer{ask: a, word: unanswered}
	if err != nil {
		return got
	}
	request.Header.Set("Idempotency-Key", strconv.Quote(a.id))
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		return got
	}
	defer func() { _ = reply.Body.Close() }()
	var body struct{ State, Code string }
	if json.NewDecoder(reply.Body).Decode(&body) != nil || reply.StatusCode == http.StatusServiceUnavailable {
		return got
	}
	got.word, got.status, got.state, got.code = answered, reply.StatusCode, body.State, body.Code
	return got
}
