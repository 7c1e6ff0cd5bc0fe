package mongostore

import (
	"bytes"
	"context"
	"errors"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// performOnParticipants performs the operations of a round: all writes of one ledger in one command, all reads of one
// ledger in another, the ledgers beside each other.
func (s *Store) performOnParticipants(ctx context.Context, w *Work, operations []protocol.Operation) []protocol.Answer {
	answers := make([]protocol.Answer, len(operations))
	var (
		lock   sync.Mutex // of w.Cause
		groups sync.WaitGroup
	)
	report := func(err error) {
		lock.Lock()
		defer lock.Unlock()
		w.answer(0, err)
	}
	for group, members := range s.group(w, operations) {
		groups.Add(1)
		go func() {
			defer groups.Done()
			switch group.kind {
			case protocol.ReadFence:
				report(s.readFences(ctx, w, operations, members, answers))
			case protocol.Look:
				report(s.look(ctx, w, operations, members, answers))
			default:
				report(s.write(ctx, w, operations, members, answers))
			}
		}()
	}
	groups.Wait()
	return answers
}

// commandGroup is what one command can carry.
type commandGroup struct {
	ledger *ledger
	kind   protocol.Kind // ReadFence, Look, or 0 for the writes
}

// group returns the indexes of the operations that go into one command each.
func (s *Store) group(w *Work, operations []protocol.Operation) map[commandGroup][]int {
	groups := map[commandGroup][]int{}
	for i, op := range operations {
		group := commandGroup{ledger: w.parties[op.Participant].ledger}
		if op.Kind == protocol.ReadFence || op.Kind == protocol.Look {
			group.kind = op.Kind
		}
		groups[group] = append(groups[group], i)
	}
	return groups
}

// readFences answers from what is known, and reads the rest.
func (s *Store) readFences(
	ctx context.Context, w *Work, operations []protocol.Operation, members []int, answers []protocol.Answer,
) error {
	var unknown []int
	for _, i := range members {
		p := &w.parties[operations[i].Participant]
		known, ok := s.fences.get(p.key(), s.markerLimit)
		if !ok {
			unknown = append(unknown, i)
			continue
		}
		p.floor = known.floor
		answers[i] = protocol.Answer{Result: protocol.Applied, Facts: protocol.Facts{
			Found: true, Fence: known.fence, Open: true, Currency: true, Kind: true, Free: true, Funds: true, Room: true,
		}}
	}
	if len(unknown) == 0 {
		return nil
	}
	return s.read(ctx, w, operations, unknown, answers, w.parties[operations[unknown[0]].Participant].ledger.majority)
}

// read finds participants of one ledger and answers with the facts.
func (s *Store) read(
	ctx context.Context, w *Work, operations []protocol.Operation, members []int, answers []protocol.Answer,
	from *mongo.Collection,
) error {
	ids := make(bson.A, len(members))
	for i, member := range members {
		ids[i] = w.parties[operations[member].Participant].id
	}
	filter := bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}}
	var documents []bson.Raw
	cursor, err := from.Find(ctx, filter, options.Find().SetProjection(s.fields.projection()))
	if err == nil {
		err = cursor.All(ctx, &documents)
	}
	for _, member := range members {
		p := &w.parties[operations[member].Participant]
		if err != nil {
			answers[member].Result = protocol.Unknown
			continue
		}
		document := withID(documents, p.id)
		facts := s.facts(w, p, document)
		answers[member] = protocol.Answer{Result: protocol.Applied, Facts: facts}
		if facts.Found && facts.Kind {
			markers, _ := s.fields.markers(document, w.Transfer.ID)
			s.fences.learn(p.key(), facts.Fence, p.floor, markers)
		} else {
			s.fences.forget(p.key())
		}
	}
	return err
}

func withID(documents []bson.Raw, id bson.RawValue) bson.Raw {
	for _, document := range documents {
		if found := document.Lookup("_id"); found.Type == id.Type && bytes.Equal(found.Value, id.Value) {
			return document
		}
	}
	return nil
}

// look is a deciding read. On the transfers' own replica set it is a majority read in the causally consistent session of a
// majority write that matched: a primary that was replaced can't answer it. Elsewhere, or where the write did not match, it is
// linearizable, which takes up to 100 ms on an idle server.
func (s *Store) look(
	ctx context.Context, w *Work, operations []protocol.Operation, members []int, answers []protocol.Answer,
) error {
	l := w.parties[operations[members[0]].Participant].ledger
	if l.sameClient && !s.routed.Load() {
		session, err := s.transfers.Database().Client().StartSession(options.Session().SetCausalConsistency(true))
		if err == nil {
			defer session.EndSession(context.WithoutCancel(ctx))
			inSession := mongo.NewSessionContext(ctx, session)
			result, _ := s.touch(inSession, w, w.Transfer.Epoch)
			if result == protocol.Applied {
				return s.read(inSession, w, operations, members, answers, l.majority)
			}
		}
	}
	return s.read(ctx, w, operations, members, answers, l.linearizable)
}

// write sends the prepares, settles, undos and fence-onlys of one ledger as one command.
func (s *Store) write(
	ctx context.Context, w *Work, operations []protocol.Operation, members []int, answers []protocol.Answer,
) error {
	statements := make([]statement, len(members))
	fences := make([]protocol.Fence, len(members))
	for i, member := range members {
		op := operations[member]
		p := &w.parties[op.Participant]
		switch op.Kind {
		case protocol.Prepare:
			statements[i] = s.prepare(w, p, op.Fence)
		case protocol.FenceOnly:
			statements[i], fences[i] = s.fenceOnly(w, p)
		default:
			statements[i], fences[i] = s.clear(w, p, op)
		}
	}
	l := w.parties[operations[members[0]].Participant].ledger
	results, err := updateAll(ctx, l.commands, statements)
	for i, member := range members {
		op := operations[member]
		answers[member].Result = results[i]
		s.remember(w.parties[op.Participant].key(), op.Kind, results[i], fences[i])
	}
	return err
}

// remember keeps the known fences true to the answers.
func (s *Store) remember(key participantKey, kind protocol.Kind, result protocol.Result, fence protocol.Fence) {
	switch {
	case result != protocol.Applied:
		s.fences.forget(key)
	case kind == protocol.Prepare:
		s.fences.applied(key, "", 1)
	case kind == protocol.FenceOnly:
		s.fences.applied(key, fence, 0)
	default:
		s.fences.applied(key, fence, -1)
	}
}

// marker returns the path of the transfer's marker.
func (s *Store) marker(w *Work) string { return s.fields.Pending + "." + markerKey(w.Transfer.ID) }

func exists(path string, there bool) bson.E {
	return bson.E{Key: path, Value: bson.D{{Key: "$exists", Value: there}}}
}

// noArray keeps a condition from looking into an array for an element that fulfils it.
func noArray() bson.E {
	return bson.E{Key: "$not", Value: bson.D{{Key: "$type", Value: "array"}}}
}

// exactBalance keeps out a decimal balance with so many digits behind the point that a sum might be rounded.
func (s *Store) exactBalance() bson.E {
	balance := "$" + s.fields.Balance
	rounded := bson.D{{Key: "$round", Value: bson.A{balance, money.MaxPlaces}}}
	equal := bson.D{{Key: "$eq", Value: bson.A{balance, rounded}}}
	number := bson.D{{Key: "$isNumber", Value: balance}} // $round fails on anything else
	return bson.E{Key: "$expr", Value: bson.D{{Key: "$cond", Value: bson.A{number, equal, false}}}}
}

// prepare sets the marker and takes a debit off the balance. A credit only leaves its marker.
func (s *Store) prepare(w *Work, p *party, fence protocol.Fence) statement {
	amount := p.leg.Amount
	low, high, _ := p.bounds()
	currencies := bson.A{w.Transfer.Currency}
	if w.Transfer.Currency == "" {
		currencies = bson.A{nil, ""}
	}
	types := bson.A{"int", "long"}
	if amount.Kind() == money.Exact {
		types = bson.A{"decimal"}
	}
	balance := bson.D{{Key: "$type", Value: types}, {Key: "$gte", Value: low}, {Key: "$lte", Value: high}, noArray()}
	filter := bson.D{
		{Key: "_id", Value: p.id},
		{Key: s.fields.Fence, Value: fenceFilter(fence)},
		exists(s.marker(w), false),
		{Key: s.fields.Pending, Value: bson.D{noArray()}},
		{Key: s.fields.Closed, Value: bson.D{{Key: "$ne", Value: true}}},
		{Key: s.fields.Currency, Value: bson.D{{Key: "$in", Value: currencies}, noArray()}},
		{Key: s.fields.Balance, Value: balance},
	}
	if amount.Kind() == money.Exact {
		filter = append(filter, s.exactBalance())
	}
	update := bson.D{{Key: "$set", Value: bson.D{{Key: s.marker(w), Value: amount}}}}
	if amount.Sign() < 0 {
		filter = append(filter, bson.E{Key: s.fields.Floor, Value: p.floor.filter()})
		update = append(update, bson.E{Key: "$inc", Value: bson.D{{Key: s.fields.Balance, Value: amount}}})
	}
	return statement{filter, update}
}

// clear removes the marker; a settled credit is paid in, and an undone debit is given back. Whether the account is still open is
// not asked: the money is due.
func (s *Store) clear(w *Work, p *party, op protocol.Operation) (statement, protocol.Fence) {
	amount := p.leg.Amount
	update := bson.D{{Key: "$unset", Value: bson.D{{Key: s.marker(w), Value: ""}}}}
	switch {
	case op.Kind == protocol.Settle && amount.Sign() > 0:
		update = append(update, bson.E{Key: "$inc", Value: bson.D{{Key: s.fields.Balance, Value: amount}}})
	case op.Kind == protocol.Undo && amount.Sign() < 0:
		update = append(update, bson.E{Key: "$inc", Value: bson.D{{Key: s.fields.Balance, Value: amount.Neg()}}})
	}
	var fence protocol.Fence
	if op.ReplaceFence {
		var token bson.ObjectID
		token, fence = newFence()
		update = append(update, bson.E{Key: "$set", Value: bson.D{{Key: s.fields.Fence, Value: token}}})
	}
	return statement{bson.D{{Key: "_id", Value: p.id}, exists(s.marker(w), true)}, update}, fence
}

// fenceOnly replaces the fence where the marker is absent.
func (s *Store) fenceOnly(w *Work, p *party) (statement, protocol.Fence) {
	token, fence := newFence()
	return statement{
		bson.D{{Key: "_id", Value: p.id}, exists(s.marker(w), false)},
		bson.D{{Key: "$set", Value: bson.D{{Key: s.fields.Fence, Value: token}}}},
	}, fence
}

func missing(err error) bool { return errors.Is(err, mongo.ErrNoDocuments) }
