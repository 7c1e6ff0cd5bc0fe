package transfer_test

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/mongotest"
)

// An account was restored from a backup made while a transfer was in progress, and the
// document of that transfer is gone.
// The audit reports the account's marker, and that 60 are missing.
// The operator decides that the transfer has not happened.
func ExampleCoordinator_Audit() {
	if err := auditAndRepair(context.Background(), mongotest.URI()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// orphanMarker: account "alice": a marker of -60 for transfer "order-17", which does not exist; the balance is 40
	// wrongTotal: all ledgers, currency "": the balances sum to 40, and 0 are in transit: that is -60 off what was expected, 100
	// after the repair: 0 findings, the balances sum to 100
}

func auditAndRepair(ctx context.Context, uri string) error {
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return err
	}
	defer func() { _ = client.Disconnect(ctx) }()
	db := client.Database("example_" + bson.NewObjectID().Hex())
	defer func() { _ = db.Drop(ctx) }()
	restored := bson.M{"_id": "alice", "balance": int64(40), "pending": bson.M{"order-17": int64(-60)}}
	if _, err := db.Collection("accounts").InsertOne(ctx, restored); err != nil {
		return err
	}

	coord, err := transfer.NewCoordinator(db)
	if err != nil {
		return err
	}
	defer func() { _ = coord.Close(ctx) }()
	if err := coord.Setup(ctx); err != nil {
		return err
	}
	expected := transfer.AuditOptions{Expected: []transfer.ExpectedTotal{{Sum: transfer.Units(100)}}}
	report, err := coord.AuditWith(ctx, expected)
	if err != nil {
		return err
	}
	for _, f := range report.Findings {
		fmt.Printf("%s: %s\n", f.Code, f.Detail)
	}
	f := report.Findings[0]
	if err := coord.RepairMarker(ctx, transfer.MarkerRepair{
		Ledger: f.Ledger, Account: f.Account, TransferID: f.TransferID, Amount: f.Amount,
		Decision: transfer.PayIn, // the money has arrived nowhere: give it back
		Reason:   "order 17 was never shipped",
	}); err != nil {
		return err
	}
	if report, err = coord.AuditWith(ctx, expected); err != nil {
		return err
	}
	fmt.Printf("after the repair: %d findings, the balances sum to %s\n", len(report.Findings), report.Ledgers[0].Total)
	return nil
}
