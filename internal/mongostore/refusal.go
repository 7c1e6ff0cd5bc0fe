package mongostore

import (
	"fmt"
	"strings"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/words"
)

// maxAlsoNamed is how many participants are named that are refused beside the first one.
const maxAlsoNamed = 3

// Evidence is what was seen of a participant when it refused.
// It is reported to people. No decision rests on it.
type Evidence struct {
	// Balance is the account's; nil where it was not seen, or is no amount.
	Balance *money.Amount
	// Currency is the account's, "" where it has none; nil where it was not seen.
	Currency *string
	// Unmet says how the document of an effect is not as required.
	Unmet *document.Unmet
	// Refused is the server's refusal of the latest write.
	Refused error
}

// Evidence returns what the latest look at a participant showed.
func (a *Attempt) Evidence(participant int) Evidence {
	if participant < 0 || participant >= len(a.participants) {
		return Evidence{}
	}
	p := &a.participants[participant]
	e := Evidence{Currency: p.currency, Unmet: p.unmet, Refused: p.writeRefused}
	if p.balance != nil {
		if balance, err := money.FromBSON(*p.balance); err == nil {
			e.Balance = &balance
		}
	}
	return e
}

// noteRefusal keeps what a read of the participant says against the transfer. It is
// reported with a refusal, and does not decide it.
func (p *participant) noteRefusal(facts protocol.Facts) {
	p.refusal = 0
	if facts.Trace == protocol.NoTrace {
		p.refusal = facts.Refusal()
	}
}

// failure returns a refusal as it is stored.
func (a *Attempt) failure(refusal protocol.Refusal) document.Failure {
	f := document.Failure{Code: refusal.Reason.String()}
	if refusal.Participant != protocol.NoParticipant {
		leg := a.participants[refusal.Participant].leg
		f.Ledger, f.Account = leg.Ledger, leg.Account
	}
	if a.Describe != nil {
		f.Message = a.Describe(refusal)
	}
	count, names := a.alsoRefused(refusal)
	f.Detail, f.Others = a.refusalDetail(refusal, count, names), int64(count)
	return f
}

// alsoRefused counts the participants that the latest reads refuse, beside the one that a
// refusal is about, and names the first of them.
func (a *Attempt) alsoRefused(refusal protocol.Refusal) (count int, names []string) {
	if refusal.Participant == protocol.NoParticipant {
		return 0, nil
	}
	for i := range a.participants {
		p := &a.participants[i]
		if i == refusal.Participant || p.refusal == 0 {
			continue
		}
		if count++; len(names) < maxAlsoNamed {
			names = append(names, words.Quote(p.leg.Account))
		}
	}
	return count, names
}

// refusalDetail says what the reason of a refusal leaves open; "" if that is nothing.
func (a *Attempt) refusalDetail(refusal protocol.Refusal, count int, names []string) string {
	var parts []string
	if refusal.Participant != protocol.NoParticipant && refusal.Reason == protocol.AmountKind {
		parts = append(parts, a.participants[refusal.Participant].unlike)
	}
	switch {
	case count == 1:
		parts = append(parts, names[0]+" is refused as well")
	case count > len(names):
		parts = append(parts, fmt.Sprintf("and %d more are refused, %s among them", count, strings.Join(names, ", ")))
	case count > 1:
		parts = append(parts, fmt.Sprintf("and %d more are refused: %s", count, strings.Join(names, ", ")))
	}
	return strings.Join(parts, "; ")
}
