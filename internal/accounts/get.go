package accounts

import (
	"context"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/wire"
)

// Get returns an account as a majority has stored it.
// It is not found if no document has the ID.
//
// The marker of a debit stays for a while after the transfer was committed, and after its
// caller was answered: nobody waits for it to go. The marker alone doesn't show whether
// the money is still the account's, so where there are debits in flight their transfers
// are read, too. A debit is in flight until its transfer is committed.
//
// Both reads show what a majority had stored at one time, if one client reaches both
// collections. So Get shows the account as it was at that time, which is not before the
// call. Two reads at two times could contradict what others read:
//
//  1. Alice has 40 and a marker of -60, for rent. Get reads that.
//  2. A salary of 50 is paid in, answered, and read: alice has 90 and 60 in flight.
//  3. The rent is committed. Get reads that, and shows 40 and nothing in flight: the rent
//     without the salary, which came first.
//
// Two clusters have no such time. There the transfers are read after the account, so that
// each commit that was answered before the call is shown. Whether a marker is cleared in
// between makes no difference: the read of the account has it, and the transfer is
// committed. In the story the salary was answered during the call, and only the order of
// the two is shown wrongly.
func (a *Accounts) Get(ctx context.Context, ledger, id string) (account document.Account, found bool, err error) {
	ctx = wire.Detached(ctx)
	from := a.catalog.Ledgers[ledger]
	err = atOneTime(ctx, from, func(ctx context.Context) error {
		stored, err := a.find(ctx, from.Majority, id)
		if err != nil || !stored.Found() {
			return err
		}
		account, err = stored.Account(a.catalog.IDs)
		if err != nil || len(account.Debits) == 0 {
			found = true
			return err
		}
		found, err = a.conclude(ctx, &account)
		return err
	})
	return account, found, err
}

// atOneTime performs reads on what a collection's cluster has stored at one time. Where
// the transfers are on another cluster, each read shows what is stored when it comes.
func atOneTime(ctx context.Context, c *collections.Collection, reads func(context.Context) error) error {
	if !c.SameClient {
		return reads(ctx)
	}
	session, err := c.Cluster().Client.StartSession(options.Session().SetSnapshot(true))
	if err != nil {
		return err
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	return reads(mongo.NewSessionContext(ctx, session))
}

// conclude counts the debits of transfers that are committed as no longer in flight.
// It reports false if the transfers can't be read.
func (a *Accounts) conclude(ctx context.Context, account *document.Account) (answered bool, err error) {
	committed, err := a.committed(ctx, transfersOf(account.Debits))
	if err != nil {
		return false, err
	}
	return true, concludeBy(committed, account)
}

// transfersOf returns the IDs of the transfers of debits.
func transfersOf(debits []document.Debit) []string {
	ids := make([]string, len(debits))
	for i, d := range debits {
		ids[i] = d.Transfer
	}
	return ids
}

// concludeBy does that by the transfers that are committed.
func concludeBy(committed map[string]bson.Raw, account *document.Account) error {
	for _, d := range account.Debits {
		raw, is := committed[d.Transfer]
		if !is {
			continue
		}
		if err := account.Conclude(d, raw.Lookup("posted")); err != nil {
			return err
		}
	}
	return nil
}

// committed returns those of the transfers that are committed.
func (a *Accounts) committed(ctx context.Context, ids []string) (map[string]bson.Raw, error) {
	keys := make(bson.A, len(ids))
	for i, id := range ids {
		keys[i] = id
	}
	fields := bson.D{{Key: "state", Value: 1}, {Key: "posted", Value: 1}}
	found, err := wire.FindByID(ctx, a.catalog.Majority, keys, options.Find().SetProjection(fields))
	committed := make(map[string]bson.Raw, len(found))
	for _, raw := range found {
		state, _ := raw.Lookup("state").StringValueOK()
		if id, ok := raw.Lookup("_id").StringValueOK(); ok && protocol.State(state).Forward() {
			committed[id] = raw
		}
	}
	return committed, err
}

// OnlyCommitted reports whether each transfer in flight that a status shows is committed,
// so that its marker goes without anybody's doing.
func (a *Accounts) OnlyCommitted(ctx context.Context, s Status) (bool, error) {
	committed, err := a.committed(wire.Detached(ctx), s.InFlight)
	return len(committed) == s.Markers, err
}
