package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	transfer "github.com/mongotransfer/transfer"
)

const (
	firstBalance = int64(1e12)

	// The values in the documents that serve as patterns.
	// Each text is as long as the text that replaces it.
	patternID     = "patterntransf"
	patternFrom   = "patternfrom"
	patternTo     = "patternto__"
	patternAmount = int64(0x5c3b1d0f77)
)

// accountName returns the name of an account.
// All names are as long as patternFrom.
func accountName(i int) string { return fmt.Sprintf("acct%07d", i) }

// pattern is a document as the library has stored it.
// The floor writes copies of it, and collections are grown with copies.
// So they are the same documents, whatever the library stores.
type pattern struct {
	document bson.Raw
	// at holds the places of each kind of value.
	at map[string][]int
}

// patterns are the patterns of an account at rest and of a finished transfer.
type patterns struct{ account, transfer pattern }

// learnPatterns makes a transfer with the library in a database of its own, and keeps
// what was stored.
func learnPatterns(ctx context.Context, db *mongo.Database) (patterns, error) {
	if err := db.Drop(ctx); err != nil {
		return patterns{}, err
	}
	account, finished, err := storePatterns(ctx, db)
	if err != nil {
		return patterns{}, fmt.Errorf("learn what the library stores: %w", err)
	}
	p := patterns{account: newPattern(account), transfer: newPattern(finished)}
	if len(p.account.at[patternFrom]) != 1 || len(p.transfer.at[patternID]) != 1 {
		return patterns{}, errors.New("an account or a transfer has another _id than it was given")
	}
	return p, db.Drop(ctx)
}

func storePatterns(ctx context.Context, db *mongo.Database) (account, finished bson.Raw, err error) {
	coord, err := transfer.NewCoordinator(db, atSuccess()) // the patterns are of what is at rest
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, coord.Close(ctx)) }()
	if err := coord.Setup(ctx); err != nil {
		return nil, nil, err
	}
	for _, id := range []string{patternFrom, patternTo} {
		if _, err := coord.OpenAccount(ctx, transfer.Account{ID: id, Balance: transfer.Units(firstBalance)}); err != nil {
			return nil, nil, err
		}
	}
	if account, err = db.Collection("accounts").FindOne(ctx, bson.D{{Key: "_id", Value: patternFrom}}).Raw(); err != nil {
		return nil, nil, err
	}
	_, err = coord.Transfer(ctx, transfer.Request{
		ID: patternID, From: patternFrom, To: patternTo, Amount: transfer.Units(patternAmount),
	})
	if err != nil {
		return nil, nil, err
	}
	finished, err = db.Collection("transfers").FindOne(ctx, bson.D{{Key: "_id", Value: patternID}}).Raw()
	return account, finished, err
}

// The kinds of values that are found by their type.
const (
	atDates  = "dates"
	atTokens = "tokens"
)

func newPattern(document bson.Raw) pattern {
	p := pattern{document: document, at: map[string][]int{}}
	for _, text := range []string{patternID, patternFrom, patternTo} {
		p.at[text] = positions(document, []byte(text))
	}
	for _, sign := range []int64{1, -1} {
		p.at[signed(sign)] = positions(document, encoded(sign*patternAmount))
	}
	elements, err := document.Elements()
	if err != nil {
		return p
	}
	at := 4 // after the document's length
	for _, element := range elements {
		value := at + len(element.Key()) + 2 // its type, its key and the end of the key
		switch element.Value().Type {
		case bson.TypeDateTime:
			p.at[atDates] = append(p.at[atDates], value)
		case bson.TypeObjectID:
			p.at[atTokens] = append(p.at[atTokens], value)
		default:
		}
		at += len(element)
	}
	return p
}

// signed returns the kind of the amount that is taken or given.
func signed(sign int64) string {
	if sign < 0 {
		return "taken"
	}
	return "given"
}

func encoded(n int64) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(n)) }

func positions(document, value []byte) []int {
	var found []int
	for at := 0; ; at++ {
		next := bytes.Index(document[at:], value)
		if next < 0 {
			return found
		}
		at += next
		found = append(found, at)
	}
}

// put returns a copy of a document with a value in all its places.
func (p pattern) put(document bson.Raw, what string, value []byte) {
	for _, at := range p.at[what] {
		copy(document[at:], value)
	}
}

// accountOf returns the document of an account at rest.
func (p patterns) accountOf(name string) bson.Raw {
	document := bytes.Clone(p.account.document)
	p.account.put(document, patternFrom, []byte(name))
	if len(p.account.at[atTokens]) > 0 {
		token := bson.NewObjectID()
		p.account.put(document, atTokens, token[:])
	}
	return document
}

// transferOf returns the document of a finished transfer.
func (p patterns) transferOf(o order, names []string, at time.Time) bson.Raw {
	document := bytes.Clone(p.transfer.document)
	p.transfer.put(document, patternID, []byte(o.id))
	p.transfer.put(document, patternFrom, []byte(names[o.from]))
	p.transfer.put(document, patternTo, []byte(names[o.to]))
	var number [8]byte
	binary.LittleEndian.PutUint64(number[:], uint64(o.amount))
	p.transfer.put(document, signed(1), number[:])
	binary.LittleEndian.PutUint64(number[:], uint64(-o.amount))
	p.transfer.put(document, signed(-1), number[:])
	binary.LittleEndian.PutUint64(number[:], uint64(at.UnixMilli()))
	p.transfer.put(document, atDates, number[:])
	return document
}
