package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/cmd/transferctl/internal/tutorial"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/wire"
)

// conversion is one run of convert.
type conversion struct {
	p     *program
	s     *session
	books *tutorial.Books
	view  convertView
}

// convertView is what convert would do, or has done, for programs.
type convertView struct {
	DryRun            bool          `json:"dryRun,omitempty"`
	Transactions      []stepView    `json:"transactions"`
	WholeAccounts     int64         `json:"wholeAccounts"`
	WholeTransactions int64         `json:"wholeTransactions"`
	Arrays            int64         `json:"arrays"`
	Problems          []problemView `json:"problems"`
	Audit             *auditView    `json:"audit,omitempty"`
}

type stepView struct {
	ID          string          `json:"id"`
	State       string          `json:"state"`
	Source      string          `json:"source"`
	Destination string          `json:"destination"`
	Amount      transfer.Amount `json:"amount"`
	Action      tutorial.Action `json:"action"`
	Transfer    string          `json:"transfer,omitempty"`
	Outcome     string          `json:"outcome,omitempty"`
}

type problemView struct {
	About  string `json:"about"`
	Detail string `json:"detail"`
	Advice string `json:"advice"`
}

func (p *program) convertCommand() *cobra.Command {
	var dryRun, balancesOnly bool
	var transactions, accountKey, prefix, initial string
	c := p.command("convert", "take over the transactions of the tutorial's two-phase commit",
		"Convert brings the unfinished transactions of MongoDB's tutorial to their end, and asks the library for those that\n"+
			"had not begun. It lists what it would do, asks, does it, and audits. Stop every process that works on transactions\n"+
			"first, and make a backup: docs/migrating.md has the steps. Cut short, it can be called again.",
		cobra.NoArgs, p.with(needDatabase, func(ctx context.Context, s *session, _ []string) error {
			if initial != "transfer" && initial != "cancel" {
				return usage("--initial is transfer or cancel, not %q", initial)
			}
			v := conversion{p: p, s: s, books: &tutorial.Books{
				Accounts: wire.ForCommands(s.accounts), Transactions: wire.ForCommands(s.database.Collection(transactions)),
				Transfers: wire.ForCommands(s.transfers),
				Fields:    fieldNames(s.fields), BalancesOnly: balancesOnly,
				Key: accountKey, ObjectIDs: s.ids == transfer.ObjectIDs, Prefix: prefix,
			}, view: convertView{DryRun: dryRun}}
			return v.run(ctx, initial == "cancel")
		}))
	flags := c.Flags()
	flags.BoolVar(&dryRun, "dry-run", false, "only list what would be done")
	flags.BoolVar(&balancesOnly, "balances-only", false, "there are no transactions of the tutorial: only make balances whole numbers")
	flags.StringVar(&transactions, "transactions", "transactions", "the tutorial's collection of transactions")
	flags.StringVar(&accountKey, "account-key", "_id", "the field by which transactions name accounts; name in the tutorial's first edition")
	flags.StringVar(&prefix, "prefix", "old:", "what the IDs of transfers begin with that were transactions")
	flags.StringVar(&initial, "initial", "transfer", "what becomes of what had not begun: transfer or cancel")
	return c
}

// fieldNames returns the names of an account's fields.
func fieldNames(f transfer.Fields) document.Fields {
	return document.Fields{
		Balance: cmp.Or(f.Balance, "balance"), Pending: cmp.Or(f.Pending, "pending"), Fence: cmp.Or(f.Fence, "fence"),
		Floor: cmp.Or(f.Floor, "floor"), Currency: cmp.Or(f.Currency, "currency"), Closed: cmp.Or(f.Closed, "closed"),
		Frozen: cmp.Or(f.Frozen, "frozen"),
	}
}

// run plans, asks, converts and audits.
func (v *conversion) run(ctx context.Context, cancel bool) error {
	plan, err := v.books.Plan(ctx, cancel)
	if err != nil {
		return contacted(err)
	}
	v.show(plan)
	if v.view.DryRun || len(plan.Problems) > 0 {
		if err := v.p.answer(v.view, v.tellPlan); err != nil || len(plan.Problems) == 0 {
			return err
		}
		return ErrFindings
	}
	if !v.p.flags.json {
		w := &page{out: v.p.out}
		if v.tellPlan(w); w.err != nil {
			return w.err
		}
	}
	what, of := count(len(plan.Steps), "transaction"), v.books.Transactions
	if v.books.BalancesOnly {
		what, of = "the balances of "+count(plan.WholeAccounts, "account"), v.books.Accounts
	}
	if err := v.p.confirm(ctx, "convert %s of %s, on which nobody else may work any more", what, wire.NamespaceOf(of)); err != nil {
		return err
	}
	if err := v.convert(ctx, plan); err != nil {
		return contacted(err)
	}
	left, err := v.books.Plan(ctx, cancel)
	if err != nil {
		return contacted(err)
	}
	v.showLeft(left)
	if err := v.p.answer(v.view, v.tellDone); err != nil || len(v.view.Audit.Findings)+len(v.view.Problems) == 0 {
		return err
	}
	return ErrFindings
}

// convert does what is planned. Each of its steps can be repeated.
func (v *conversion) convert(ctx context.Context, plan tutorial.Plan) error {
	if err := v.s.Setup(ctx); err != nil {
		return err
	}
	if err := v.books.MakeWhole(ctx); err != nil {
		return fmt.Errorf("make amounts whole numbers: %w", err)
	}
	before, err := v.s.Audit(ctx)
	if err != nil {
		return err
	}
	expected, err := expectedAfter(before, plan)
	if err != nil {
		return err
	}
	for _, step := range plan.Steps {
		if err := v.books.End(ctx, step); err != nil {
			return err
		}
	}
	if err := v.ask(ctx, plan); err != nil {
		return err
	}
	if err := v.books.Clear(ctx); err != nil {
		return fmt.Errorf("remove the empty arrays: %w", err)
	}
	report, err := v.s.AuditWith(ctx, transfer.AuditOptions{Expected: expected})
	if err != nil {
		return err
	}
	audited := viewOfAudit(report, v.s.left)
	v.view.Audit = &audited
	return nil
}

// ask asks the library for what had not begun. What it can't take, it never will, and
// keeps nothing else from being asked for.
func (v *conversion) ask(ctx context.Context, plan tutorial.Plan) error {
	var impossible []error
	for i, step := range plan.Steps {
		if step.Action != tutorial.Ask {
			continue
		}
		rec, err := v.books.Ask(ctx, v.s.Coordinator, step)
		switch {
		case errors.Is(err, transfer.ErrInvalidRequest), errors.Is(err, transfer.ErrIDConflict):
			impossible = append(impossible, err)
		case err != nil:
			return errors.Join(append(impossible, err)...)
		default:
			v.view.Transactions[i].Outcome = outcomeText(rec)
		}
	}
	return errors.Join(impossible...)
}

// expectedAfter returns the sums that there have to be after a conversion: those from
// before, and what was in flight.
func expectedAfter(before transfer.AuditReport, plan tutorial.Plan) ([]transfer.ExpectedTotal, error) {
	var all []transfer.ExpectedTotal
	for _, total := range before.Ledgers {
		sum, err := total.Total.Add(total.InTransit)
		if err != nil {
			return nil, err
		}
		same := func(e transfer.ExpectedTotal) bool {
			return e.Currency == total.Currency && kindOf(e.Sum) == kindOf(sum)
		}
		i := slices.IndexFunc(all, same)
		if i < 0 {
			all = append(all, transfer.ExpectedTotal{Currency: total.Currency, Sum: sum})
			continue
		}
		if all[i].Sum, err = all[i].Sum.Add(sum); err != nil {
			return nil, err
		}
	}
	for i := range all {
		added, inFlight := plan.InFlight[all[i].Currency]
		if !inFlight || added.IsZero() || kindOf(added) != kindOf(all[i].Sum) {
			continue
		}
		var err error
		if all[i].Sum, err = all[i].Sum.Add(added); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// kindOf returns how an amount is stored.
func kindOf(a transfer.Amount) bson.Type {
	kind, _, err := a.MarshalBSONValue()
	if err != nil {
		return 0
	}
	return bson.Type(kind)
}

// show fills the view with a plan.
func (v *conversion) show(plan tutorial.Plan) {
	v.view.Transactions, v.view.Problems = []stepView{}, []problemView{}
	for _, s := range plan.Steps {
		v.view.Transactions = append(v.view.Transactions, stepView{
			ID: s.ID, State: s.State, Source: s.Source, Destination: s.Destination, Amount: s.Amount, Action: s.Action, Transfer: s.As,
		})
	}
	for _, problem := range plan.Problems {
		v.view.Problems = append(v.view.Problems, viewOfProblem(problem))
	}
	v.view.WholeAccounts, v.view.WholeTransactions, v.view.Arrays = plan.WholeAccounts, plan.WholeTransactions, plan.Arrays
}

// showLeft adds what there is to do after a conversion. Somebody else has left it: a
// process of the old way that was not stopped, or another conversion.
func (v *conversion) showLeft(left tutorial.Plan) {
	for _, s := range left.Steps {
		v.view.Problems = append(v.view.Problems, problemView{
			About: v.books.Transactions.Name() + " " + s.ID, Detail: "somebody else works on the transactions: it is " + s.State,
			Advice: "Stop every process that works on transactions, and convert again.",
		})
	}
	for _, problem := range left.Problems {
		v.view.Problems = append(v.view.Problems, viewOfProblem(problem))
	}
}

func viewOfProblem(p tutorial.Problem) problemView {
	return problemView{About: p.About, Detail: p.Detail, Advice: asCommands(p.Advice)}
}

func (v *conversion) tellPlan(w *page) {
	if v.books.BalancesOnly {
		w.line("to convert: doubles of %s, which become whole numbers", count(v.view.WholeAccounts, "account"))
	} else {
		w.line("to convert: %s; doubles of %s and %s, which become whole numbers; the arrays of %s",
			count(len(v.view.Transactions), "transaction"), count(v.view.WholeAccounts, "account"),
			count(v.view.WholeTransactions, "transaction"), count(v.view.Arrays, "account"))
	}
	var rows [][]string
	for _, s := range v.view.Transactions {
		action := string(s.Action)
		if s.Transfer != "" {
			action += " as " + clean(s.Transfer)
		}
		rows = append(rows, []string{
			clean(s.ID), clean(s.State), clean(s.Source), clean(s.Destination), s.Amount.String(), action,
		})
	}
	if len(rows) > 0 {
		w.table([]string{"ID", "STATE", "SOURCE", "DESTINATION", "VALUE", "ACTION"}, rows)
	}
	v.tellProblems(w)
	if len(v.view.Problems) > 0 {
		w.line("%s: nothing is converted before that is solved", count(len(v.view.Problems), "problem"))
	}
}

func (v *conversion) tellProblems(w *page) {
	for _, problem := range v.view.Problems {
		w.line("problem: %s: %s", clean(problem.About), problem.Detail)
		w.line("  %s", problem.Advice)
	}
}

func (v *conversion) tellDone(w *page) {
	for _, s := range v.view.Transactions {
		if s.Outcome != "" {
			w.line("%s: %s", clean(s.Transfer), clean(s.Outcome))
		}
	}
	if v.books.BalancesOnly {
		w.line("converted: %s", count(v.view.WholeAccounts, "account"))
	} else {
		w.line("converted: %s", count(len(v.view.Transactions), "transaction"))
	}
	v.view.Audit.write(w)
	v.tellProblems(w)
	if n := len(v.view.Problems); n > 0 {
		w.line("%s meanwhile: somebody else works on the transactions", count(n, "problem"))
	}
}

// outcomeText says what became of a transfer.
func outcomeText(rec transfer.Record) string {
	if rec.Failure != nil {
		return string(rec.State) + ": " + rec.Failure.Code
	}
	return string(rec.State)
}

// contacted names an error of the driver's.
func contacted(err error) error {
	var command mongo.CommandError
	switch {
	case wire.Denied(err) != nil:
		return contactError(err)
	case errors.As(err, &command) && command.Code == wire.CodeUnauthorized: // whose text has the whole command
		return fmt.Errorf("%w: convert needs more rights: see docs/transferctl.md", transfer.ErrUnauthorized)
	case mongo.IsNetworkError(err) || mongo.IsTimeout(err) && !errors.As(err, &command):
		return &awayError{err}
	}
	return err
}
