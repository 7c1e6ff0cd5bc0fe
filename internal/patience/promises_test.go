package patience

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
)

// promised is a bank account that is looked at.
type promised struct {
	promises

	t *testing.T
}

// seen returns what a look sees of an account with a balance, on which transfers are
// under way.
func (p *promised) seen(balance int64, underway ...string) sight {
	p.t.Helper()
	pending := bson.M{}
	for _, id := range underway {
		pending[document.MarkerKey(id)] = int64(-60)
	}
	raw, err := bson.Marshal(bson.M{"_id": "a", "balance": balance, "pending": pending})
	require.NoError(p.t, err)
	return sight{{"", "a"}: document.Fields{Balance: "balance", Pending: "pending"}.View(raw)}
}

// wants reports whether a look makes promises to a transfer of 60.
func (p *promised) wants(look uint64, id string, seen sight) (made []*promise) {
	p.t.Helper()
	lacking, made := p.admit(look, document.Transfer{ID: id, Legs: []document.Leg{
		{Account: "a", Amount: money.Units(-60)}, {Account: "b", Amount: money.Units(60)},
	}}, seen)
	require.Equal(p.t, len(lacking) == 0, len(made) == 1)
	return made
}

// The same money is promised once.
// It is counted until its transfer is over, for those too who may have read the account
// before, and a debit that is seen on the account is not counted twice.
func TestPromises(t *testing.T) {
	t.Parallel()
	p := &promised{t: t}
	first, second, third := p.begin(), p.begin(), p.begin()
	one := p.wants(first, "one", p.seen(100))
	require.NotNil(t, one)
	require.Nil(t, p.wants(second, "two", p.seen(100)), "60 of the 100 are promised")
	require.Nil(t, p.wants(second, "two", p.seen(40, "one")), "and then taken")
	require.Nil(t, p.wants(second, "two", p.seen(60, "another")), "not the debit of one")
	two := p.wants(second, "two", p.seen(60, "one"))
	require.NotNil(t, two, "what one takes is off the balance already")
	p.over(one)
	p.over(two)
	p.end(first)
	p.end(second)
	require.Nil(t, p.wants(third, "three", p.seen(100)), "it may have read the account before the two debits")
	fourth := p.begin()
	four := p.wants(fourth, "four", p.seen(60))
	require.NotNil(t, four, "it has read the account after them")
	p.end(third)
	require.Len(t, p.kept[place{"", "a"}], 1)
	p.end(fourth)
	p.over(four)
	require.Empty(t, p.kept, "nothing is kept for ever")
	require.Empty(t, p.ended)
	require.Empty(t, p.underway)
}

// A done mark shows a debit as well: it is off the balance, and not to be counted twice.
func TestPromiseThatIsSettled(t *testing.T) {
	t.Parallel()
	p := &promised{t: t}
	look := p.begin()
	require.NotNil(t, p.wants(look, "one", p.seen(120)))
	raw, err := bson.Marshal(bson.M{"balance": int64(60), "pending": bson.M{document.DoneKey("one"): int64(0)}})
	require.NoError(t, err)
	settled := sight{{"", "a"}: document.Fields{Balance: "balance", Pending: "pending"}.View(raw)}
	require.NotNil(t, p.wants(look, "two", settled))
	require.Nil(t, p.wants(look, "three", settled))
}

// Promises that add up to more than any amount leave nothing for others.
func TestPromisesBeyondTheLimit(t *testing.T) {
	t.Parallel()
	p := &promised{t: t}
	account := p.seen(100)[place{"", "a"}]
	largest := money.Max(money.Whole).Neg()
	require.False(t, canPay(account, largest, []money.Amount{largest, largest, largest}))
	half := money.Units(-1 << 62)
	require.False(t, canPay(account, half, []money.Amount{half, half}), "a sum that can't be stored")
	require.True(t, canPay(account, money.Units(-100), nil))
	require.False(t, canPay(account, money.Units(-100), []money.Amount{money.Units(-1)}))
}
