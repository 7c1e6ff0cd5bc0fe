package chaos

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
)

const (
	database       = "chaos"
	initialBalance = 1000
	// overdraft is the debt that every fifth account may have.
	overdraft = 500
	// hotAccounts is the number of accounts that get half of all traffic.
	hotAccounts = 3
	// doors is the number of accounts that start empty and are closed and reopened all
	// the time.
	doors = 4
)

// bank knows the accounts of a run, and which transfer an ID stands for.
// So any process can ask for any ID.
type bank struct {
	seed     uint64
	accounts int
}

// accountName returns the name of the i-th account. Every fourth has dollars.
func accountName(i int) string {
	if hasDollars(i) {
		return fmt.Sprintf("%s%d", dollarPrefix, i)
	}
	return fmt.Sprintf("account-%d", i)
}

func doorName(i int) string { return fmt.Sprintf("door-%d", i) }

// dollarPrefix begins the names of the accounts in dollars.
// All others have no currency.
const dollarPrefix = "dollar-"

func hasDollars(i int) bool { return i%4 == 3 }

// currencyOf returns the currency of an account.
func currencyOf(account string) string {
	if strings.HasPrefix(account, dollarPrefix) {
		return "USD"
	}
	return ""
}

// initial returns all accounts with their opening balances.
func (b bank) initial() map[string]transfer.Account {
	accounts := map[string]transfer.Account{}
	for i := range b.accounts {
		a := transfer.Account{ID: accountName(i), Balance: transfer.Units(initialBalance), Currency: currencyOf(accountName(i))}
		if i%5 == 4 {
			a.Floor = transfer.Units(-overdraft)
		}
		accounts[a.ID] = a
	}
	for i := range doors {
		accounts[doorName(i)] = transfer.Account{ID: doorName(i)}
	}
	return accounts
}

// drainID returns the ID of the transfer that takes the given units out of a door.
func drainID(door string, n int64, unique string) string {
	return fmt.Sprintf("drain %s %d %s", door, n, unique)
}

// request returns the transfer that an ID stands for.
func (b bank) request(id string) transfer.Request {
	var (
		door string
		n    int64
	)
	if _, err := fmt.Sscanf(id, "drain %s %d ", &door, &n); err == nil {
		return transfer.Request{ID: id, From: door, To: accountName(0), Amount: transfer.Units(n)}
	}
	if order, pays := orderOf(id); pays {
		req := b.draw(id)
		if units(req.Amount)%7 == 1 {
			req = transfer.Request{ID: id} // Nothing moves, and the order is paid.
		}
		req.Effects = effect(id, order)
		return req
	}
	return b.draw(id)
}

// draw draws the transfer that an ID stands for.
func (b bank) draw(id string) transfer.Request {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(id)) // It never fails.
	rng := rand.New(rand.NewPCG(b.seed, hash.Sum64()))
	req := transfer.Request{ID: id}
	from, to := b.two(rng)
	req.Currency = currencyOf(from)
	switch dice := rng.IntN(100); {
	case dice < 60:
		req.From, req.To, req.Amount = from, to, transfer.Units(1+rng.Int64N(150))
	case dice < 70:
		req.Legs, req.Currency = b.legs(rng), ""
	case dice < 78:
		req.Legs, req.Currency = b.exchange(rng), ""
	case dice < 86: // refused, more often than not
		req.From, req.To, req.Amount = from, to, transfer.Units(500+rng.Int64N(5000))
	case dice < 92:
		req.From, req.To, req.Amount = from, doorName(rng.IntN(doors)), transfer.Units(1+rng.Int64N(20))
	case dice < 97:
		req.From, req.To, req.Amount = doorName(rng.IntN(doors)), to, transfer.Units(1+rng.Int64N(20))
		req.Currency = "" // A payee in dollars refuses it.
	default: // refused after the debit, perhaps
		req.From, req.To, req.Amount = from, "nobody", transfer.Units(1)
	}
	return req
}

// two picks two accounts in one currency, and hot ones more often than others.
func (b bank) two(rng *rand.Rand) (from, to string) {
	pick := func() int {
		if rng.IntN(2) == 0 {
			return rng.IntN(hotAccounts)
		}
		return rng.IntN(b.accounts)
	}
	first, second := pick(), pick()
	for first == second || hasDollars(first) != hasDollars(second) {
		second = pick()
	}
	return accountName(first), accountName(second)
}

// legs returns legs in one currency.
func (b bank) legs(rng *rand.Rand) []transfer.Leg {
	return among(rng, b.some(rng, false, 3+rng.IntN(4)))
}

// exchange returns legs in two currencies.
func (b bank) exchange(rng *rand.Rand) []transfer.Leg {
	return append(among(rng, b.some(rng, true, 2)), among(rng, b.some(rng, false, 2+rng.IntN(2)))...)
}

// some picks accounts with dollars, or without.
func (b bank) some(rng *rand.Rand, dollars bool, n int) []int {
	others := func(i int) bool { return hasDollars(i) != dollars }
	return slices.DeleteFunc(rng.Perm(b.accounts), others)[:n]
}

// among returns legs that take from some accounts of a currency and give to others.
// The last account gets or pays the rest.
func among(rng *rand.Rand, accounts []int) []transfer.Leg {
	last := len(accounts) - 1
	var legs []transfer.Leg
	rest := int64(0)
	for _, i := range accounts[:last] {
		amount := 1 + rng.Int64N(80)
		if rng.IntN(2) == 0 {
			amount = -amount
		}
		if rest == amount {
			amount *= 2 // The last leg must not be zero.
		}
		rest -= amount
		legs = append(legs, leg(i, amount))
	}
	return append(legs, leg(accounts[last], rest))
}

// leg returns a movement on an account, in its currency.
func leg(account int, units int64) transfer.Leg {
	name := accountName(account)
	return transfer.Leg{Account: name, Amount: transfer.Units(units), Currency: currencyOf(name)}
}

// units returns an amount of whole units as a number.
func units(a transfer.Amount) int64 {
	kind, data, err := a.MarshalBSONValue()
	if err != nil {
		return 0
	}
	n, _ := bson.RawValue{Type: bson.Type(kind), Value: data}.AsInt64OK()
	return n
}
