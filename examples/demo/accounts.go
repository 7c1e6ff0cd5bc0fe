package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
)

// The accounts of the story.
// The many transfers run between the people.
const (
	people       = 8
	eachPersonal = 1000

	till, tillHas   = "till", 100
	buyer, buyerHas = "buyer", 200
	shop            = "shop"
)

// person returns the name of a person's account.
func person(n int) string { return fmt.Sprintf("person-%d", n+1) }

// openAccounts is the first chapter.
// It opens all accounts and prints the sum of their balances.
func (s *story) openAccounts(ctx context.Context) error {
	s.out.heading("Accounts")
	opening := map[string]int64{till: tillHas, buyer: buyerHas, shop: 0}
	for n := range people {
		opening[person(n)] = eachPersonal
	}
	for _, id := range slices.Sorted(maps.Keys(opening)) {
		account := transfer.Account{ID: id, Balance: transfer.Units(opening[id])}
		if _, err := s.coord.OpenAccount(ctx, account); err != nil {
			return err
		}
		s.book.opened(id, opening[id])
	}
	s.out.say("%d people have %d each, the %s has %d, the %s has %d, the %s has nothing.",
		people, eachPersonal, till, tillHas, buyer, buyerHas, shop)
	documents, err := s.accounts(ctx)
	if err != nil {
		return err
	}
	s.out.say("The sum before: %d.", sumOf(documents))
	return nil
}

// accountDocument holds the fields of an account's document that the demo reads.
type accountDocument struct {
	ID      string           `bson:"_id"`
	Balance int64            `bson:"balance"`
	Pending map[string]int64 `bson:"pending"` // the markers, by transfer ID
}

// transferDocument holds the fields of a transfer's document that the demo reads.
type transferDocument struct {
	ID    string         `bson:"_id"`
	State transfer.State `bson:"state"`
	Epoch int64          `bson:"epoch"`
	Owner string         `bson:"owner"`
}

// accounts reads the given accounts, or all of them if none is given.
// It reads them without the library, because what is stored is what counts.
func (s *story) accounts(ctx context.Context, ids ...string) ([]accountDocument, error) {
	filter := bson.D{}
	if len(ids) > 0 {
		filter = bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}}
	}
	var documents []accountDocument
	cursor, err := s.db.Collection("accounts").Find(ctx, filter, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		return nil, err
	}
	return documents, cursor.All(ctx, &documents)
}

// sumOf returns the sum of the balances.
func sumOf(documents []accountDocument) int64 {
	var total int64
	for _, document := range documents {
		total += document.Balance
	}
	return total
}
