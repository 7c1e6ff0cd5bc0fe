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

// The accounts of the story. People are who the many transfers run between.
const (
	people       = 8
	eachPersonal = 1000

	till, tillHas   = "till", 100
	buyer, buyerHas = "buyer", 200
	shop            = "shop"
)

func person(n int) string { return fmt.Sprintf("person-%d", n+1) }

// openAccounts is the first step.
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

// accountDocument is what the demo looks at in an account's document.
type accountDocument struct {
	ID      string           `bson:"_id"`
	Balance int64            `bson:"balance"`
	Pending map[string]int64 `bson:"pending"` // the markers, by transfer
}

// transferDocument is what the demo looks at in a transfer's document.
type transferDocument struct {
	ID    string         `bson:"_id"`
	State transfer.State `bson:"state"`
	Epoch int64          `bson:"epoch"`
	Owner string         `bson:"owner"`
}

// accounts reads accounts, or all of them if none is named, past the library: what counts is what is stored.
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

func sumOf(documents []accountDocument) int64 {
	var total int64
	for _, document := range documents {
		total += document.Balance
	}
	return total
}
