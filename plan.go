package transfer

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/words"
)

// Limits of a request.
const (
	maxLegs = 1000
	maxYear = 9999 // of the times of requests, and of the bounds of queries
)

// The first byte of every digest says how it was computed: from legs and currency alone,
// from more, or from legs in several currencies.
// A release that knows no exchange computes another digest for one, and leaves it alone.
const (
	plainDigest    = 1
	richDigest     = 2
	exchangeDigest = 3
)

// plan checks a request and returns the transfer that it asks for, with its legs netted.
// Its error wraps ErrInvalidRequest.
func (c *Coordinator) plan(req Request) (document.Transfer, error) {
	t := document.Transfer{ID: req.ID, Currency: req.Currency}
	if err := document.CheckID(req.ID); err != nil {
		return t, invalid("transfer: %w", err)
	}
	if err := checkCurrency(req.Currency); err != nil {
		return t, err
	}
	legs, err := req.legs()
	if err != nil {
		return t, err
	}
	if len(legs) > 0 {
		mayCancelOut := len(req.Legs) > 0 && len(req.Effects) > 0
		if t.Legs, err = c.net(legs, req.Currency, mayCancelOut); err != nil {
			return t, err
		}
		t.ShareCurrency()
	}
	if req.AtMost {
		if req.From == "" {
			return t, invalid("AtMost is for From, To and Amount")
		}
		t.AtMost = &t.Legs[1].Amount
	}
	if t.Effects, err = c.planEffects(req.Effects); err != nil {
		return t, err
	}
	if t.Metadata, err = encodeMetadata(req.Metadata); err != nil {
		return t, err
	}
	t.Digest = digest(t)
	return t, nil
}

// legs returns the movements of either form of a request.
func (req Request) legs() ([]Leg, error) {
	short := req.From != "" || req.To != "" || !req.Amount.IsZero()
	switch {
	case short && len(req.Legs) > 0:
		return nil, invalid("give From, To and Amount, or Legs, not both")
	case len(req.Legs) > maxLegs:
		return nil, invalid("%d legs are more than %d", len(req.Legs), maxLegs)
	case len(req.Legs) > 0:
		return req.Legs, nil
	case !short && len(req.Effects) > 0:
		return nil, nil
	case !short:
		return nil, invalid("nothing is to be moved: give From, To and Amount, or Legs")
	case req.From == "" || req.To == "":
		return nil, invalid("From and To name accounts, and one of them is empty")
	case req.Amount.exact.Sign() <= 0:
		return nil, invalid("the amount must be positive")
	}
	return []Leg{{Account: req.From, Amount: req.Amount.Neg()}, {Account: req.To, Amount: req.Amount}}, nil
}

// net adds up the legs of each account, in the order in which the accounts are first
// named, and drops what nets to zero.
// Something must be left, unless the legs may cancel out.
// The currency is that of the legs that name none.
func (c *Coordinator) net(legs []Leg, currency string, mayCancelOut bool) ([]document.Leg, error) {
	var sums currencySums
	places := map[[2]string]int{}
	netted := make([]document.Leg, 0, len(legs))
	for _, leg := range legs {
		if err := c.checkLeg(leg); err != nil {
			return nil, err
		}
		amount := leg.Amount.exact
		leg.Currency = cmp.Or(leg.Currency, currency)
		if err := sums.add(leg.Currency, amount); err != nil {
			return nil, err
		}
		account := document.IDCodec(c.settings.ids).Canonical(leg.Account)
		place, known := places[[2]string{leg.Ledger, account}]
		if !known {
			places[[2]string{leg.Ledger, account}] = len(netted)
			netted = append(netted, document.Leg{
				Ledger: leg.Ledger, Namespace: c.catalog.Namespace(leg.Ledger), Account: account,
				Amount: amount, Currency: leg.Currency,
			})
			continue
		}
		if other := netted[place].Currency; other != leg.Currency {
			return nil, invalid("the legs of account %s are in %s and %s, and an account has one currency",
				words.Quote(account), nameCurrency(other), nameCurrency(leg.Currency))
		}
		var err error
		if netted[place].Amount, err = netted[place].Amount.Add(amount); err != nil {
			return nil, invalid("the legs of account %s: %w", words.Quote(account), err)
		}
	}
	if err := sums.check(); err != nil {
		return nil, err
	}
	netted = slices.DeleteFunc(netted, func(leg document.Leg) bool { return leg.Amount.Sign() == 0 })
	switch {
	case len(netted) > 0:
		return netted, checkNetted(netted)
	case mayCancelOut:
		return nil, nil
	}
	return nil, invalid("nothing moves: the accounts are the same, or their legs cancel out")
}

func (c *Coordinator) checkLeg(leg Leg) error {
	if !c.catalog.HasLedger(leg.Ledger) {
		return invalid("the ledger %s is not registered: see WithLedger", words.Quote(leg.Ledger))
	}
	if err := c.checkAccount(leg.Account); err != nil {
		return invalid("account: %w", err)
	}
	if err := checkCurrency(leg.Currency); err != nil {
		return err
	}
	amount := leg.Amount.exact
	switch {
	case amount.Sign() == 0:
		return invalid("the amount of account %s is zero: leave that leg out", words.Quote(leg.Account))
	case amount.Places() > money.MaxPlaces:
		return invalid("the amount of account %s has more than %d digits behind the point",
			words.Quote(leg.Account), money.MaxPlaces)
	}
	return nil
}

// checkAccount refuses a text that can't be the ID of an account.
func (c *Coordinator) checkAccount(id string) error {
	if c.settings.ids == StringIDs {
		return document.CheckID(id)
	}
	_, err := document.IDCodec(c.settings.ids).Encode(id)
	return err
}

func checkNetted(legs []document.Leg) error {
	for _, leg := range legs {
		if limit := money.Max(leg.Amount.Kind()); !leg.Amount.Within(limit) {
			return invalid("the amount of account %s is beyond the limit of %s", words.Quote(leg.Account), limit)
		}
	}
	return nil
}

// fixAmount fixes what a transfer with AtMost moves, before anything is stored.
// Where there is nothing to move, or the account could not pay, the amount stays at what
// was asked for, and is refused when the transfer is prepared.
func (c *Coordinator) fixAmount(ctx context.Context, t *document.Transfer) error {
	if t.AtMost == nil {
		return nil
	}
	var (
		payer     = t.Legs[0]
		spendable money.Amount
		known     bool
	)
	leave, err := c.admitReader(ctx, c.catalog.Ledgers[payer.Ledger].Cluster())
	if err != nil {
		return err
	}
	defer leave()
	err = c.read(ctx, func(ctx context.Context) (done bool, err error) {
		spendable, known, err = c.accounts.Spendable(ctx, payer.Ledger, payer.Account)
		return err == nil, err
	})
	if err != nil {
		return err
	}
	if !known || spendable.Kind() != t.AtMost.Kind() || spendable.Sign() <= 0 || spendable.Cmp(*t.AtMost) >= 0 {
		return nil
	}
	most := *t.AtMost
	t.AtMost = &most
	t.Legs[0].Amount, t.Legs[1].Amount = spendable.Neg(), spendable
	return nil
}

// capped reports whether a stored transfer moves no more than AtMost allows, from one
// account to the other.
func capped(t document.Transfer) bool {
	if t.AtMost == nil {
		return true
	}
	if len(t.Legs) != 2 {
		return false
	}
	from, to := t.Legs[0].Amount, t.Legs[1].Amount
	return from.Kind() == to.Kind() && to.Kind() == t.AtMost.Kind() &&
		to.Sign() > 0 && to.Cmp(*t.AtMost) <= 0 && from.Neg().Cmp(to) == 0
}

// digest returns what distinguishes two payloads: the netted legs in an order of their
// own, amounts by value, and the currency of each: one that all have is the same payload,
// wherever it is named.
// Where there are any, it includes the effects in an order of their own, what the
// transfer reverses, what it moves at most, and that it is a hold.
func digest(t document.Transfer) document.Digest {
	asked := counted(t)
	if _, one := asked.OneCurrency(); !one {
		return digestOf(exchangeDigest, richPayload(t))
	}
	if len(t.Effects) > 0 || t.Reverses != "" || t.AtMost != nil || t.Hold {
		return digestOf(richDigest, richPayload(t))
	}
	return digestOf(plainDigest, plainPayload(t, make([]byte, 0, 256)))
}

func plainPayload(t document.Transfer, payload []byte) []byte {
	legs := append(make([]document.Leg, 0, 4), t.Legs...) // most transfers have no more
	slices.SortFunc(legs, func(a, b document.Leg) int {
		return cmp.Or(cmp.Compare(a.Ledger, b.Ledger), cmp.Compare(a.Account, b.Account))
	})
	currency, one := t.OneCurrency()
	payload = appendField(payload, currency) // "" where they have several
	for _, leg := range legs {
		payload = appendField(payload, leg.Ledger)
		payload = appendField(payload, leg.Account)
		payload = appendAmount(payload, leg.Amount)
		if !one {
			payload = appendField(payload, t.CurrencyOf(leg))
		}
	}
	return payload
}

func digestOf(version byte, payload []byte) document.Digest {
	sum := sha256.Sum256(payload)
	all := append(append(make([]byte, 0, 1+len(sum)), version), sum[:]...)
	return document.Digest{Format: document.Format, Sum: all}
}

// richPayload includes how often each part is there, so that no two lists of parts look
// alike.
func richPayload(t document.Transfer) []byte {
	most := ""
	if t.AtMost != nil {
		most = t.AtMost.Canonical()
	}
	t = counted(t)
	payload := appendField(nil, strconv.FormatBool(t.Hold))
	payload = appendField(payload, t.Reverses)
	payload = appendField(payload, most)
	payload = plainPayload(t, effectsPayload(payload, t.Effects))
	if t.Part {
		payload = appendField(payload, "part")
	}
	return payload
}

// counted returns a transfer with its legs as the digest counts them.
// For a transfer with AtMost they say who gives and who gets, and not how much.
// For a reversal of all that is left they are the whole, whatever was left.
func counted(t document.Transfer) document.Transfer {
	t.Legs = t.Asked()
	if t.AtMost == nil {
		return t
	}
	t.Legs = slices.Clone(t.Legs)
	for i := range t.Legs {
		t.Legs[i].Amount = money.Units(int64(t.Legs[i].Amount.Sign()))
	}
	return t
}

func effectsPayload(payload []byte, effects []document.Effect) []byte {
	payload = appendField(payload, strconv.Itoa(len(effects)))
	for _, e := range sortedEffects(effects) {
		payload = appendField(payload, e.Documents)
		payload = appendField(payload, string(append([]byte{byte(e.ID.Type)}, e.ID.Value...)))
		payload = appendField(payload, string(sortedFields(e.Require)))
		payload = appendField(payload, string(sortedFields(e.Set)))
	}
	return payload
}

// appendAmount appends an amount's canonical text as [appendField] does.
func appendAmount(payload []byte, amount money.Amount) []byte {
	start := len(payload)
	payload = amount.AppendCanonical(append(payload, 0, 0, 0, 0))
	binary.BigEndian.PutUint32(payload[start:], uint32(len(payload)-start-4))
	return payload
}

// appendField appends a text with its length, so that no two lists of fields look alike.
func appendField(payload []byte, text string) []byte {
	return append(binary.BigEndian.AppendUint32(payload, uint32(len(text))), text...)
}

const maxCurrencyBytes = 64

func checkCurrency(currency string) error {
	if len(currency) > maxCurrencyBytes || !utf8.ValidString(currency) || strings.Contains(currency, "\x00") {
		return invalid("a currency has at most %d bytes of UTF-8 without NUL, not %s",
			maxCurrencyBytes, words.Quote(currency))
	}
	return nil
}

// currencySum is the sum of a request's legs in one currency.
type currencySum struct {
	currency string
	total    money.Amount
}

// currencySums are the sums of a request's legs. Most requests have one currency, whose
// sum needs no memory of its own.
type currencySums struct {
	begun  bool
	first  currencySum
	others []currencySum
}

// add adds the amount of a leg.
func (s *currencySums) add(currency string, amount money.Amount) error {
	if !s.begun {
		s.begun, s.first = true, currencySum{currency, amount}
		return nil
	}
	sum := &s.first
	if currency != s.first.currency {
		place := slices.IndexFunc(s.others, func(other currencySum) bool { return other.currency == currency })
		if place < 0 {
			s.others = append(s.others, currencySum{currency, amount})
			return nil
		}
		sum = &s.others[place]
	}
	if sum.total.Kind() != amount.Kind() {
		return invalid("a transfer moves whole units or decimals of a currency, not both")
	}
	var err error
	if sum.total, err = sum.total.Add(amount); err != nil {
		return invalid("the sum of the legs: %w", err)
	}
	return nil
}

// check refuses legs that don't sum to zero.
// Money of one currency is never made up for by that of another one.
func (s *currencySums) check() error {
	if len(s.others) == 0 {
		if s.first.total.Sign() != 0 {
			return invalid("the legs must sum to zero")
		}
		return nil
	}
	for _, sum := range append([]currencySum{s.first}, s.others...) {
		if sum.total.Sign() != 0 {
			return invalid("the legs must sum to zero in each currency, and those in %s don't", nameCurrency(sum.currency))
		}
	}
	return nil
}

// inCurrency returns a transfer with all legs in one currency.
func inCurrency(t document.Transfer, currency string) document.Transfer {
	t.Currency, t.Legs = currency, slices.Clone(t.Legs)
	for i := range t.Legs {
		t.Legs[i].Currency = ""
	}
	return t
}

// otherCurrencies reports whether two transfers name different currencies: all in all, or
// for an account that both move money on.
func otherCurrencies(a, b document.Transfer) bool {
	a, b = counted(a), counted(b)
	if !maps.Equal(currenciesOf(a), currenciesOf(b)) {
		return true
	}
	type place struct{ ledger, account string }
	of := map[place]string{}
	for _, leg := range a.Legs {
		of[place{leg.Ledger, leg.Account}] = a.CurrencyOf(leg)
	}
	return slices.ContainsFunc(b.Legs, func(leg document.Leg) bool {
		currency, both := of[place{leg.Ledger, leg.Account}]
		return both && currency != b.CurrencyOf(leg)
	})
}

// currenciesOf returns the currencies that a transfer names.
func currenciesOf(t document.Transfer) map[string]bool {
	if currency, one := t.OneCurrency(); one {
		return map[string]bool{currency: true}
	}
	all := map[string]bool{}
	for _, leg := range t.Legs {
		all[t.CurrencyOf(leg)] = true
	}
	return all
}

// currencyAt returns the currency that a transfer names for a participant.
func currencyAt(t document.Transfer, participant int) string {
	if participant < 0 || participant >= len(t.Legs) {
		return t.Currency
	}
	return t.CurrencyOf(t.Legs[participant])
}

// currencyAt returns the currency that the transfer names for the account that has
// refused it.
func (r Record) currencyAt(f *Failure) string {
	for _, leg := range r.Legs {
		if leg.Ledger == f.Ledger && leg.Account == f.Account {
			return leg.Currency
		}
	}
	return r.Currency
}
