package tutorial

import (
	"context"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/audit"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/words"
)

// inspectAccounts looks for doubles, for what is no balance, for marks of nothing that is
// under way, and for what an audit would find.
func (p *planner) inspectAccounts(ctx context.Context) error {
	err := p.readAccounts(ctx, bson.D{}, func(a account, raw bson.Raw) {
		p.inspect(a)
		p.audit(a, raw)
	})
	if err != nil {
		return err
	}
	for _, s := range p.plan.Steps {
		if _, isDouble := s.stored.Value.DoubleOK(); isDouble {
			p.plan.WholeTransactions++
		}
	}
	return nil
}

// inspect looks at one account.
func (p *planner) inspect(a account) {
	id, _ := textOf(a.id)
	about := p.Accounts.Name() + " " + id
	_, isAmount := amountOf(a.balance)
	_, isDouble := a.balance.DoubleOK()
	switch {
	case !isAmount:
		p.problem(about, "See docs/migrating.md: decide for cents or for decimals, for all accounts of the currency.",
			"its balance is no whole number and no decimal: %s %s", a.balance.Type, words.Clip(a.balance.String()))
	case isDouble:
		p.plan.WholeAccounts++
	}
	if a.noArray {
		p.problem(about, "Find out what it is, and remove it.", "its %s is no array", marksField)
		return
	}
	p.plan.Arrays++
	if a.marks == nil {
		p.plan.Arrays--
	}
	for _, mark := range a.marks {
		text, _ := textOf(mark)
		i, planned := p.steps[key(mark)]
		switch {
		case !planned:
			p.problem(about, "Find out whether the amount belongs to this account, set the balance right, and $pull the mark.",
				"it has a mark of %s, which is over, unknown, or a problem itself", text)
		case p.plan.Steps[i].Action == Ask || p.plan.Steps[i].Action == Cancel:
			p.problem(about, "Find out whether it has begun, and set its state to pending or to canceling.",
				"it has a mark of %s, which is %s", text, p.plan.Steps[i].State)
		case key(a.key) != key(p.plan.Steps[i].stored.Source) && key(a.key) != key(p.plan.Steps[i].stored.Destination):
			p.problem(about, "Find out whether the amount belongs to this account, set the balance right, and $pull the mark.",
				"it has a mark of %s, which is between other accounts", text)
		}
	}
}

// audit returns what an audit will find wrong with an account once it is converted. That
// it is overdrawn is no problem of the conversion: the audit that follows it reports
// that.
func (p *planner) audit(a account, raw bson.Raw) {
	id, _ := textOf(a.id)
	ids := document.StringIDs
	if p.ObjectIDs {
		ids = document.ObjectIDs
	}
	for _, f := range audit.CheckAccount(p.Fields, ids, raw) {
		_, isAmount := amountOf(a.balance)
		judged := !isAmount || a.balance.Type == bson.TypeDouble // by inspect
		if f.Code == audit.BelowFloor || f.Code == audit.WrongBalance && judged {
			continue
		}
		detail := strings.TrimPrefix(f.Detail, "account "+strconv.Quote(f.ID)+": ")
		p.problem(p.Accounts.Name()+" "+id, p.adviceBefore(f), "%s", detail)
	}
}

// adviceBefore says what to do about a finding while the library is not in use.
func (p *planner) adviceBefore(f audit.Finding) string {
	switch f.Code {
	case audit.WrongID:
		return "Say --ids objectid if account IDs are ObjectIds. Accounts with other IDs can't take part: move it to where it belongs."
	case audit.WrongBalance:
		return f.Advice
	default:
		return "If the field is one of yours, name another one by --field. Otherwise: " + f.Advice
	}
}

// MakeWhole makes whole numbers of the doubles that are some, of all balances and of the
// values of what is unfinished.
func (b *Books) MakeWhole(ctx context.Context) error {
	if err := makeWhole(ctx, b.Accounts, b.Fields.Balance, bson.D{}); err != nil || b.BalancesOnly {
		return err
	}
	return makeWhole(ctx, b.Transactions, "value", unfinished())
}

// makeWhole is MakeWhole for a field of some documents.
func makeWhole(ctx context.Context, c *mongo.Collection, field string, among bson.D) error {
	doubles := bson.D{{Key: "$type", Value: "double"}, {Key: "$gte", Value: -maxExact}, {Key: "$lte", Value: maxExact}}
	isWhole := bson.D{{Key: "$cond", Value: bson.A{
		bson.D{{Key: "$isNumber", Value: "$" + field}},
		bson.D{{Key: "$eq", Value: bson.A{"$" + field, bson.D{{Key: "$trunc", Value: "$" + field}}}}}, false,
	}}}
	filter := bson.D{{Key: "$and", Value: bson.A{
		among, bson.D{{Key: field, Value: doubles}, {Key: "$expr", Value: isWhole}},
	}}}
	toLong := bson.D{{Key: "$set", Value: bson.D{{Key: field, Value: bson.D{{Key: "$toLong", Value: "$" + field}}}}}}
	_, err := c.UpdateMany(ctx, filter, mongo.Pipeline{toLong})
	return err
}

// Clear removes the empty arrays of marks.
func (b *Books) Clear(ctx context.Context) error {
	empty := bson.D{{Key: marksField, Value: bson.D{{Key: "$size", Value: 0}}}}
	_, err := b.Accounts.UpdateMany(ctx, empty, bson.D{{Key: "$unset", Value: bson.D{{Key: marksField, Value: ""}}}})
	return err
}
