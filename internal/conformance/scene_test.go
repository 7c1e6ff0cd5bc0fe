package conformance

import (
	"cmp"
	"math"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/simulate"
)

// given is an account at the start of a check.
type given struct {
	simulate.Account
	dress    dress
	eu       bool          // it is in the other ledger
	floor    any           // as it is stored; nil: missing
	fence    bson.RawValue // as it is stored; the zero value: missing
	currency any           // as it is stored; nil: missing
	names    string        // the currency that legs on it name; "": that of their transfer

	paper   *paper // not nil: it is a document that effects are about
	fields  bson.D // of the document
	pending any    // as it is stored; nil: missing
}

// scene is the start of a check.
type scene struct {
	coin        coin
	currency    string // of the transfers
	accounts    []given
	plans       [][]simulate.Leg
	initiated   []bool
	holds       []bool
	paper       *paper // that some transfers are about; it comes after two accounts
	markerLimit int
	owners      int // of each transfer
	shared      int // the least number of accounts that share a statement
}

// fault is a defect of an account.
// Most accounts have none, and few have more than one.
// Otherwise no condition of a prepare would ever be the only unmet one.
type fault uint8

const (
	healthy fault = iota
	missing
	closed
	frozen
	foreign
	odd
	poor
	full
)

func oneOf[T any](t *rapid.T, label string, values ...T) T {
	return rapid.SampledFrom(values).Draw(t, label)
}

func drawScene(t *rapid.T) scene {
	s := scene{
		coin:     rapid.SampledFrom(coins()).Draw(t, "coin"),
		currency: oneOf(t, "currency", "", "EUR"),
	}
	accounts := rapid.IntRange(2, simulate.MaxAccounts).Draw(t, "accounts")
	withPaper := rapid.IntRange(0, 4).Draw(t, "with a document") < 2
	if withPaper {
		accounts = paperAt
	}
	for range rapid.IntRange(1, simulate.MaxTransfers).Draw(t, "transfers") {
		s.plans = append(s.plans, drawPlan(t, accounts))
		hold := rapid.Bool().Draw(t, "hold")
		s.holds = append(s.holds, hold)
		s.initiated = append(s.initiated, !hold && rapid.Bool().Draw(t, "initiated"))
	}
	twoLedgers := rapid.Bool().Draw(t, "two ledgers")
	for i := range accounts {
		a := s.drawAccount(t)
		a.eu = twoLedgers && i > 0
		s.accounts = append(s.accounts, a)
	}
	if withPaper {
		s.accounts = append(s.accounts, s.drawPaper(t))
		s.drawEffects(t)
	}
	s.markerLimit = oneOf(t, "marker limit", simulate.MaxTransfers+1, 2, 1)
	s.owners = rapid.IntRange(1, 3).Draw(t, "owners of each transfer")
	s.shared = oneOf(t, "least shared", 1, simulate.MaxAccounts+1)
	return s
}

// drawPlan draws two or three legs that sum to zero.
func drawPlan(t *rapid.T, accounts int) []simulate.Leg {
	who := rapid.Permutation([]int{0, 1, 2}[:accounts]).Draw(t, "who")
	amount := oneOf[int64](t, "amount", 60, 1, 100)
	if accounts == 2 || rapid.Bool().Draw(t, "two legs") {
		return []simulate.Leg{{Account: who[0], Amount: -amount}, {Account: who[1], Amount: amount}}
	}
	share := oneOf[int64](t, "share", 30, -7) // of the second leg: it gives or takes
	return []simulate.Leg{
		{Account: who[0], Amount: -amount}, {Account: who[1], Amount: share}, {Account: who[2], Amount: amount - share},
	}
}

func (s scene) drawAccount(t *rapid.T) given {
	what := oneOf(t, "fault", healthy, healthy, healthy, healthy, healthy, healthy, healthy,
		missing, closed, frozen, foreign, odd, poor, poor, full, full)
	a := given{dress: oneOf(t, "stored as", plain, small)}
	if what != missing {
		s.drawFloor(t, &a) // an owner that has not read it assumes no floor
	}
	s.drawFence(t, &a)
	a.Balance = 1000
	a.Missing, a.Closed, a.Frozen = what == missing, what == closed, what == frozen
	a.Foreign, a.Odd = what == foreign, what == odd
	switch what {
	case poor:
		enough := max(a.Floor, -s.coin.most) + s.drawNeed(t)
		a.Balance = oneOf(t, "little money", enough, enough-1, enough-1, enough+1, -5, -s.coin.most, -s.coin.most-1)
	case full:
		if s.coin.most != 0 {
			enough := s.coin.most - s.drawNeed(t)
			a.Balance = oneOf(t, "little room", enough, enough+1, enough+1, enough-1, s.coin.most, s.coin.most+1)
		}
	case odd:
		kinds := []dress{asDouble, asText, otherKind, inList, markerList}
		if s.coin.kind == money.Decimal {
			kinds = append(kinds, tooFine)
		}
		a.dress = rapid.SampledFrom(kinds).Draw(t, "odd kind")
	case healthy, missing, closed, frozen, foreign:
	}
	s.drawCurrency(t, &a)
	return a
}

// drawNeed draws what one or two transfers take or give somewhere.
func (s scene) drawNeed(t *rapid.T) int64 {
	need := s.drawAmount(t)
	if rapid.Bool().Draw(t, "for two") {
		need += s.drawAmount(t)
	}
	return need
}

// drawAmount draws what one transfer takes or gives somewhere.
func (s scene) drawAmount(t *rapid.T) int64 {
	var amounts []int64
	for _, legs := range s.plans {
		for _, leg := range legs {
			amounts = append(amounts, max(leg.Amount, -leg.Amount))
		}
	}
	return rapid.SampledFrom(amounts).Draw(t, "what is needed")
}

func (s scene) drawFloor(t *rapid.T, a *given) {
	a.Floor = oneOf[int64](t, "floor", 0, 0, -100, 50, math.MinInt64)
	switch {
	case a.Floor == math.MinInt64:
		a.floor = bson.MinKey{}
	case a.Floor != 0 || rapid.Bool().Draw(t, "floor of zero stored"):
		a.floor = s.coin.amount(a.Floor).Value()
	}
}

// drawFence draws what is stored in place of a fence before anybody sets one.
// That may be null, or a list with a null in it, which must not be mistaken for each
// other.
func (s scene) drawFence(t *rapid.T, a *given) {
	switch oneOf(t, "fence", "token", "none", "null", "a list") {
	case "token":
		a.fence, a.Fence = raw(bson.ObjectID{1}), "the first token"
	case "null":
		a.fence = raw(nil)
	case "a list":
		a.fence, a.Fence = raw(bson.A{nil}), "a list"
	}
}

// drawCurrency draws which currency the legs on an account name, and which one it has.
// That of the transfers is a foreign one where the legs name another.
func (s scene) drawCurrency(t *rapid.T, a *given) {
	a.names = oneOf(t, "currency of the legs", "", "", "GBP")
	switch asked := cmp.Or(a.names, s.currency); {
	case a.Foreign && asked == "":
		a.currency = oneOf[any](t, "foreign currency", "EUR", bson.A{nil})
	case a.Foreign && a.names != "" && s.currency != "":
		a.currency = oneOf[any](t, "foreign currency", s.currency, "USD", nil, bson.A{asked})
	case a.Foreign:
		a.currency = oneOf[any](t, "foreign currency", "USD", nil, bson.A{asked})
	case asked == "":
		a.currency = oneOf[any](t, "no currency", nil, "")
	default:
		a.currency = asked
	}
}
