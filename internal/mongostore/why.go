package mongostore

import (
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/words"
)

// maxAlso is how many of those that are refused beside the one that is told are named.
const maxAlso = 3

// note takes down what a read of the participant says against the transfer: it is told with a
// refusal, which it does not decide.
func (p *participant) note(facts protocol.Facts) {
	p.refusal = 0
	if !facts.Marker {
		p.refusal = facts.Refusal()
	}
}

// others counts the participants, beside the one that a refusal is about, that would have
// been refused as well when they were last read, and names the first of them.
func (w *Attempt) others(refusal protocol.Refusal) (count int, names []string) {
	if refusal.Participant == protocol.NoParticipant {
		return 0, nil
	}
	for i := range w.participants {
		p := &w.participants[i]
		if i == refusal.Participant || p.refusal == 0 {
			continue
		}
		if count++; len(names) < maxAlso {
			names = append(names, words.Quote(p.leg.Account))
		}
	}
	return count, names
}

// detail tells what the reason of a refusal leaves open; "" if that is nothing.
func (w *Attempt) detail(refusal protocol.Refusal) string {
	var parts []string
	if refusal.Participant != protocol.NoParticipant && refusal.Reason == protocol.AmountKind {
		parts = append(parts, w.participants[refusal.Participant].unlike)
	}
	switch count, names := w.others(refusal); {
	case count == 1:
		parts = append(parts, names[0]+" is refused as well")
	case count > len(names):
		parts = append(parts, fmt.Sprintf("and %d more are refused, %s among them", count, strings.Join(names, ", ")))
	case count > 1:
		parts = append(parts, fmt.Sprintf("and %d more are refused: %s", count, strings.Join(names, ", ")))
	}
	return strings.Join(parts, "; ")
}

// whyUnlike returns why an account's document can't take part in a transfer of a kind of
// amounts, without the figures: "" if it can.
func (p *participant) whyUnlike(view document.View) string {
	if view.Pending().Type == bson.TypeArray {
		return fmt.Sprintf("the field %q is an array, and should be a document: see RepairPending", view.Fields.Pending)
	}
	if why := view.WrongBalance(); why != "" {
		return why
	}
	balance, _ := view.Balance()
	switch {
	case balance.Kind() != p.leg.Amount.Kind():
		return "the balance is of " + document.KindOf(balance) + ", and the amount of " + document.KindOf(p.leg.Amount)
	case balance.Places() > money.MaxPlaces:
		return fmt.Sprintf("the balance has more than %d digits behind the point", money.MaxPlaces)
	case p.floor.Odd:
		return view.WrongFloor()
	case p.floor.Amount.Kind() != balance.Kind():
		return "the floor is of decimals, and the balance of whole units"
	}
	return ""
}
