package soak

import (
	"context"
	"fmt"
	"net/http"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer"
)

// transferDocument is what the check reads of a transfer.
type transferDocument struct {
	ID      string   `bson:"_id"`
	State   string   `bson:"state"`
	Hold    bool     `bson:"hold"`
	Held    bool     `bson:"held"`
	Posted  *int64   `bson:"posted"`
	Outbox  []bson.M `bson:"outbox"`
	Failure struct {
		Code string `bson:"code"`
	} `bson:"failure"`
	Legs []struct {
		Account string `bson:"account"`
		Amount  int64  `bson:"amount"`
	} `bson:"legs"`
}

// accountDocument is what the check reads of an account.
type accountDocument struct {
	ID      string           `bson:"_id"`
	Balance int64            `bson:"balance"`
	Pending map[string]int64 `bson:"pending"`
}

// check recovers what is left, and compares everything that is stored with what must be
// there.
func (r *run) check(ctx context.Context) (findings []string, err error) {
	if _, err := r.coord.Recover(ctx, transfer.UntilFinished()); err != nil {
		return nil, err
	}
	transfers, err := readAll[transferDocument](ctx, r.owner.Database(database).Collection("transfers"))
	if err != nil {
		return nil, err
	}
	for _, t := range transfers { // held, and no client has decided it
		if t.State == "Preparing" && t.Hold {
			if _, err := r.coord.Void(ctx, t.ID); err != nil {
				return nil, err
			}
		}
	}
	if err := r.deliverRest(ctx); err != nil {
		return nil, err
	}
	if transfers, err = readAll[transferDocument](ctx, r.owner.Database(database).Collection("transfers")); err != nil {
		return nil, err
	}
	accounts, err := readAll[accountDocument](ctx, r.owner.Database(database).Collection("accounts"))
	if err != nil {
		return nil, err
	}
	r.counts["transfers stored"] = len(transfers)
	r.counts["events delivered"], r.counts["times that events were sent"], r.counts["events delivered more than once"] = r.hook.counts()
	findings = append(r.balances(accounts, transfers), r.lies(transfers)...)
	findings = append(findings, r.hook.events(transfers)...)
	return r.audit(ctx, findings)
}

// audit adds the findings of Audit.
func (r *run) audit(ctx context.Context, findings []string) ([]string, error) {
	expected := []transfer.ExpectedTotal{{Sum: transfer.Units(0)}}
	report, err := r.coord.AuditWith(ctx, transfer.AuditOptions{Expected: expected})
	for _, f := range report.Findings {
		findings = append(findings, "audit: "+f.String())
	}
	return findings, err
}

// balances checks that no marker is left, and that each account has exactly the balance
// that the successful transfers make.
func (r *run) balances(accounts []accountDocument, transfers []transferDocument) (findings []string) {
	want := map[string]int64{}
	for _, t := range transfers {
		if t.State != "Success" && t.State != "Fail" {
			findings = append(findings, fmt.Sprintf("transfer %s is %s", t.ID, t.State))
		}
		for _, leg := range t.Legs {
			amount := leg.Amount
			if t.Posted != nil {
				amount = min(max(amount, -*t.Posted), *t.Posted)
			}
			if t.State == "Success" {
				want[leg.Account] += amount
			}
		}
	}
	var sum int64
	for _, a := range accounts {
		sum += a.Balance
		if a.Balance != want[a.ID] {
			findings = append(findings, fmt.Sprintf("account %s has %d, and the transfers make it %d", a.ID, a.Balance, want[a.ID]))
		}
		if len(a.Pending) > 0 {
			findings = append(findings, fmt.Sprintf("account %s has markers left: %v", a.ID, a.Pending))
		}
	}
	if sum != 0 || len(accounts) != r.Accounts+1 {
		findings = append(findings, fmt.Sprintf("%d accounts have %d together", len(accounts), sum))
	}
	return findings
}

// lies checks that each final answer is true.
func (r *run) lies(transfers []transferDocument) (findings []string) {
	stored := map[string]transferDocument{}
	for _, t := range transfers {
		stored[t.ID] = t
	}
	for _, a := range r.book.answers {
		t, there := stored[a.id]
		if !there || !a.trueOf(t) {
			findings = append(findings, fmt.Sprintf("%s %s was told %d %s %s, and %+v is stored", a.verb, a.id, a.status, a.state, a.code, t))
		}
	}
	return findings
}

// trueOf reports whether an answer agrees with what is stored in the end.
func (a answer) trueOf(t transferDocument) bool {
	switch {
	case a.status == http.StatusUnprocessableEntity:
		return t.State == "Fail" && t.Failure.Code == a.code
	case a.status == http.StatusAccepted && a.state == "moved":
		// It has moved for good, and was answered before it was settled.
		return t.State == "Success" && (a.verb != "post" || t.moved() == a.part)
	case a.status == http.StatusAccepted && a.state == "failed":
		// It was voided for good, and answered before the money was back.
		return a.verb == "void" && t.State == "Fail" && t.Failure.Code == "voided"
	}
	return a.succeeded(t)
}

// succeeded reports whether the answer that a verb succeeded agrees with what is stored.
func (a answer) succeeded(t transferDocument) bool {
	switch a.verb {
	case "transfer":
		return a.status == http.StatusCreated && t.State == "Success"
	case "schedule": // A worker runs it later, and it may be refused then.
		return a.status == http.StatusAccepted || a.status == http.StatusCreated && t.State == "Success"
	// A repeated request may get the later state as well.
	case "hold":
		return a.status == http.StatusAccepted && t.Hold && t.Held
	case "post":
		return a.status == http.StatusOK && t.State == "Success" && t.moved() == a.part
	case "void":
		return a.status == http.StatusOK && t.State == "Fail" && t.Failure.Code == "voided"
	}
	return false
}

// moved returns what a transfer in StateSuccess has moved.
// For a hold that was posted as a whole, no part is stored.
func (t transferDocument) moved() int64 {
	if t.Posted != nil {
		return *t.Posted
	}
	var sum int64
	for _, leg := range t.Legs {
		sum += max(leg.Amount, 0)
	}
	return sum
}

func readAll[T any](ctx context.Context, c *mongo.Collection) (documents []T, err error) {
	cursor, err := c.Find(ctx, bson.D{})
	if err != nil {
		return nil, err
	}
	return documents, cursor.All(ctx, &documents)
}
