package mongostore

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// readTransfers reads the calls' transfers with the given collection's read concern.
func (s *Store) readTransfers(ctx context.Context, calls []*Call, from *mongo.Collection) {
	documents, err := findTransfers(ctx, calls, from)
	for _, call := range calls {
		if doc, answered := documents[call.Attempt.Transfer.ID]; answered {
			call.show(doc)
		} else {
			call.answer(protocol.Unknown, err)
		}
	}
}

// findTransfers reads the calls' transfers, by ID.
// A transfer that does not exist is nil. Where the read fails, the transfers that it has
// not reached are missing from the result.
func findTransfers(ctx context.Context, calls []*Call, from *mongo.Collection) (map[string]bson.Raw, error) {
	attempts := make([]*Attempt, 0, len(calls))
	asked := make(map[string]bool, len(calls))
	for _, call := range calls {
		if id := call.Attempt.Transfer.ID; !asked[id] {
			asked[id] = true
			attempts = append(attempts, call.Attempt)
		}
	}
	documents := make(map[string]bson.Raw, len(attempts))
	size := func(a *Attempt) int { return a.Transfer.Size() }
	for some := range wire.Portions(attempts, wire.MaxAnswerBytes, size) {
		ids := make(bson.A, len(some))
		for i, a := range some {
			ids[i] = a.Transfer.ID
		}
		found, err := wire.FindByID(ctx, from, ids, options.Find())
		if err != nil {
			return documents, err
		}
		for _, a := range some {
			documents[a.Transfer.ID] = nil
		}
		for _, doc := range found {
			id, _ := doc.Lookup("_id").StringValueOK()
			documents[id] = doc
		}
	}
	return documents, nil
}

// show answers a call with the document of its transfer, nil if it does not exist.
func (c *Call) show(doc bson.Raw) {
	c.answer(protocol.Applied, nil)
	if doc == nil {
		return
	}
	t, err := document.DecodeTransfer(doc)
	if err != nil {
		c.Cause, c.Answer.Transfer.Found = err, true
		return
	}
	if t.Owner == c.Attempt.Owner {
		c.Attempt.learn(t)
	}
	c.Answer.Transfer = c.Attempt.image(t)
}

// learn makes the attempt's transfer the stored one, which is its execution's. What a
// claim changes is learned from the claim, beside which there is no other operation.
func (a *Attempt) learn(stored document.Transfer) {
	if a.Transfer.Epoch != stored.Epoch || a.Transfer.Owner != stored.Owner {
		a.Transfer = stored
		return
	}
	a.Transfer.Advance(stored)
}

// image returns what a stored transfer shows the protocol.
func (a *Attempt) image(t document.Transfer) protocol.Image {
	return protocol.Image{
		Found: true, State: t.State, Epoch: t.Epoch, Mine: t.Owner == a.Owner,
		Held: t.Held, Clean: t.Clean,
	}
}
