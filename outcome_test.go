package transfer

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/engine"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/transition"
	"github.com/mongotransfer/transfer/internal/wire"
)

// sentinelOutcomes are the outcomes of all errors that can be matched, by name.
func sentinelOutcomes() map[string]struct {
	err  error
	want Outcome
} {
	type row = struct {
		err  error
		want Outcome
	}
	return map[string]row{
		"ErrInvalidRequest":        {ErrInvalidRequest, NothingStored},
		"ErrUnsupportedDeployment": {ErrUnsupportedDeployment, NothingStored},
		"ErrUnauthorized":          {ErrUnauthorized, NothingStored},
		"ErrClosed":                {ErrClosed, NothingStored},
		"ErrAccountNotFound":       {ErrAccountNotFound, Unchanged},
		"ErrAccountClosed":         {ErrAccountClosed, Unchanged},
		"ErrAccountFrozen":         {ErrAccountFrozen, Unchanged},
		"ErrCurrencyMismatch":      {ErrCurrencyMismatch, Unchanged},
		"ErrAmountKind":            {ErrAmountKind, Unchanged},
		"ErrAccountBusy":           {ErrAccountBusy, Unchanged},
		"ErrInsufficientFunds":     {ErrInsufficientFunds, Unchanged},
		"ErrOverflow":              {ErrOverflow, Unchanged},
		"ErrRequirementFailed":     {ErrRequirementFailed, Unchanged},
		"ErrUnwritable":            {ErrUnwritable, Unchanged},
		"ErrCancelled":             {ErrCancelled, Failed},
		"ErrExpired":               {ErrExpired, Failed},
		"ErrInDoubt":               {ErrInDoubt, InDoubt},
		"ErrUnsettled":             {ErrUnsettled, Moved},
		"ErrIDConflict":            {ErrIDConflict, Unchanged},
		"ErrAlreadyCommitted":      {ErrAlreadyCommitted, Unchanged},
		"ErrNotHeld":               {ErrNotHeld, Unchanged},
		"ErrAlreadyReversed":       {ErrAlreadyReversed, Unchanged},
		"ErrReversalExceeds":       {ErrReversalExceeds, Unchanged},
		"ErrNotReversible":         {ErrNotReversible, Unchanged},
		"ErrTransferNotFound":      {ErrTransferNotFound, Unchanged},
		"ErrAccountExists":         {ErrAccountExists, Unchanged},
		"ErrHistoryGone":           {ErrHistoryGone, Unchanged},
		"ErrAccountNotEmpty":       {ErrAccountNotEmpty, Unchanged},
		"ErrNotRepairable":         {ErrNotRepairable, Unchanged},
		"ErrAuditTooLong":          {ErrAuditTooLong, Unchanged},
	}
}

// Every error that can be matched has an outcome.
func TestOutcomeOfSentinels(t *testing.T) {
	t.Parallel()
	for name, row := range sentinelOutcomes() {
		require.Equal(t, row.want, OutcomeOf(row.err), name)
		require.Equal(t, row.want, OutcomeOf(fmt.Errorf("transfer %q: %w", "t", row.err)), name)
		require.Equal(t, InDoubt, OutcomeOf(fmt.Errorf("%w: %w", row.err, ErrInDoubt)), "%s, and in doubt", name)
		require.Equal(t, InDoubt, OutcomeOf(inDoubt("t", row.err)), "%s, and in doubt", name)
		refused := &RefusedError{Err: row.err}
		if row.want != InDoubt && row.want != Moved {
			require.Equal(t, Failed, OutcomeOf(refused), "a transfer that was refused for %s", name)
		}
	}
	for _, name := range sentinels(t) {
		require.Contains(t, sentinelOutcomes(), name, "what is its outcome?")
	}
}

// sentinels returns the names of the exported errors that this package declares.
func sentinels(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	var names []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, declaration := range parsed.Decls {
			group, ok := declaration.(*ast.GenDecl)
			if !ok || group.Tok != token.VAR {
				continue
			}
			for _, spec := range group.Specs {
				for _, name := range spec.(*ast.ValueSpec).Names {
					if strings.HasPrefix(name.Name, "Err") {
						names = append(names, name.Name)
					}
				}
			}
		}
	}
	require.Greater(t, len(names), 25)
	return names
}

// Every combination of errors that the library builds has the true outcome.
// A transfer in doubt is in doubt whatever the error wraps.
// A committed one has moved whatever ended the wait.
// If the server was away before anything was sent, nothing is stored.
func TestOutcomeOfCombinations(t *testing.T) {
	t.Parallel()
	away := errors.New("server selection timeout")
	stuck := &Failure{Code: "accountNotFound", Account: "b", Message: `account "b" is gone`}
	known := func(state State, stuck *Failure, cause error) error {
		_, err := asKnown("t", Record{ID: "t", State: state, Stuck: stuck, Failure: &Failure{Code: "cancelled"}}, cause)
		return err
	}
	unseen := func(cause error) error { _, err := asKnown("t", Record{}, cause); return err }
	for name, row := range map[string]struct {
		err  error
		want Outcome
	}{
		"success":                               {nil, Moved},
		"the context had ended":                 {context.Canceled, NothingStored},
		"its deadline had passed":               {context.DeadlineExceeded, NothingStored},
		"away for too long, and nothing sent":   {nothingStored(fmt.Errorf("transfer: %w", away)), NothingStored},
		"the engine has sent nothing":           {nothingStored(fmt.Errorf("transfer: %w: %w", engine.ErrNothingSent, away)), NothingStored},
		"the server refuses to store it":        {nothingStored(fmt.Errorf("could not be stored: %w", away)), NothingStored},
		"closed while it waited":                {fmt.Errorf("transfer: %w", engine.ErrClosed), NothingStored},
		"a repeated write, given up":            {(&retry{sent: true, cause: away}).err(errors.New("t")), InDoubt},
		"a repeated write, never sent":          {(&retry{cause: away}).err(errors.New("t")), NothingStored},
		"a repeated write, cut short":           {(&retry{sent: true, ended: context.Canceled}).err(errors.New("t")), InDoubt},
		"no right, before anything":             {&UnauthorizedError{Action: "insert"}, NothingStored},
		"no right, and it is stored":            {inDoubt("t", &UnauthorizedError{Action: "update"}), InDoubt},
		"in doubt, and the context has ended":   {inDoubt("t", context.Canceled), InDoubt},
		"in doubt, and closed":                  {inDoubt("t", ErrClosed), InDoubt},
		"in doubt, and the engine sent nothing": {inDoubt("t", nothingStored(engine.ErrNothingSent)), InDoubt},
		"never seen":                            {unseen(context.Canceled), InDoubt},
		"initiated, and given up":               {known(StateInitiated, nil, context.Canceled), InDoubt},
		"preparing, and given up":               {known(StatePreparing, nil, context.Canceled), InDoubt},
		"preparing, and stuck":                  {known(StatePreparing, stuck, nil), InDoubt},
		"committed, and given up":               {known(StateCommitted, nil, context.Canceled), Moved},
		"committed, and closed":                 {known(StateCommitted, nil, ErrClosed), Moved},
		"committed, and the server away":        {known(StateCommitted, nil, away), Moved},
		"committed, and stuck":                  {known(StateCommitted, stuck, nil), Moved},
		"committed, stuck, and given up":        {known(StateCommitted, stuck, context.Canceled), Moved},
		"rolled back, and given up":             {known(StateRollback, nil, context.Canceled), InDoubt},
		"rolled back, and stuck":                {known(StateRollback, stuck, nil), Failed},
		"a hold that was refused is posted":     {fmt.Errorf("%w: %w", ErrNotHeld, &RefusedError{Err: ErrAccountBusy}), Failed},
		"a reversal that was too late, stored":  {fmt.Errorf("%w: %w", ErrAlreadyReversed, &RefusedError{Err: ErrRequirementFailed}), Failed},
		"a requirement":                         {&RefusedError{Err: ErrRequirementFailed, why: &RequirementError{}}, Failed},
		"a conflict":                            {&ConflictError{}, Unchanged},
		"touches what is not registered":        {invalid("%w", mongostore.ErrForeign), NothingStored},
		"a stored transfer that can't be read":  {fmt.Errorf("get transfer: %w", document.ErrUnreadable), InDoubt},
		"what nobody has heard of":              {errors.New("the server answered strangely"), InDoubt},
	} {
		require.Equal(t, row.want, OutcomeOf(row.err), "%s: %v", name, row.err)
	}
	require.NoError(t, nothingStored(nil))
	require.Equal(t, context.Canceled, nothingStored(context.Canceled), "what says so itself is left as it is")
}

// Every stored reason has an outcome when it is read back.
func TestOutcomeOfStoredFailures(t *testing.T) {
	t.Parallel()
	for reason := protocol.NotFound; reason <= protocol.Expired; reason++ {
		rec := Record{ID: "t", State: StateFail, Failure: &Failure{Code: reason.String(), Message: "why"}}
		require.Equal(t, Failed, OutcomeOf(failureError(rec)), reason.String())
	}
	require.Equal(t, Failed, OutcomeOf(failureError(Record{ID: "t", State: StateFail})), "one that does not say why")
}

// An outcome is written by its name.
func TestOutcomeString(t *testing.T) {
	t.Parallel()
	for outcome, name := range map[Outcome]string{
		Moved: "Moved", NothingStored: "NothingStored", Failed: "Failed", InDoubt: "InDoubt", Unchanged: "Unchanged", 0: "unknown",
	} {
		require.Equal(t, name, outcome.String())
	}
}

// Every error has its place in docs/errors.md, and so has every code of a failure.
func TestErrorsAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("docs/errors.md")
	require.NoError(t, err)
	for _, name := range sentinels(t) {
		require.Contains(t, string(page), "`"+name+"`", "what does a caller do about it?")
	}
	codes := []string{document.RepairedCode}
	for reason := protocol.NotFound; reason <= protocol.Expired; reason++ {
		codes = append(codes, reason.String())
	}
	for _, code := range codes {
		rec := Record{State: StateFail, Failure: &Failure{Code: code}}
		found := false
		for line := range strings.Lines(string(page)) {
			cells := strings.Split(line, "|")
			if len(cells) == 5 && strings.Contains(cells[2], "`"+code+"`") {
				found = true
				require.ErrorIs(t, failureError(rec), sentinelOutcomes()[strings.Trim(cells[1], " `")].err, line)
			}
		}
		require.True(t, found, "when does a new ID help after %s?", code)
	}
}

// Every code of a reason for which a transfer is stuck is listed where callers look for
// it.
func TestStuckCodesAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("docs/errors.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(page), "## Rolled back, and stuck")
	section, _, _ = strings.Cut(section, "\n## ")
	source, err := os.ReadFile("state.go")
	require.NoError(t, err)
	_, comment, _ := strings.Cut(string(source), "// A stuck transfer has")
	comment, _, _ = strings.Cut(comment, "Code string")
	noRight := wire.ServerErrorOf(mongo.CommandError{Code: wire.CodeUnauthorized}, wire.RightUpdate, "bank.accounts")
	for _, stuck := range []transition.Stuck{
		{State: protocol.Committed, Gone: protocol.NotFound}, {State: protocol.Committed, Gone: protocol.RequirementFailed},
		{State: protocol.Rollback}, {State: protocol.Committed, Cause: noRight}, {State: protocol.Committed, Cause: errors.New("refused")},
	} {
		code := stuck.Failure().Code
		require.Contains(t, section, "| `"+code+"` |")
		require.Contains(t, comment, code)
	}
}

// Every verb lists what it returns, or names the verb that does.
// All errors that are named exist.
func TestVerbsListWhatTheyReturn(t *testing.T) {
	t.Parallel()
	list := regexp.MustCompile(`(?m)^ +- (nil|an? |the |The |Err[A-Z])`)
	reference := regexp.MustCompile(`see\s+\[Coordinator\.\w+\]`)
	named := regexp.MustCompile(`\b(?:mongo\.)?Err[A-Z]\w+`)
	known := append(sentinels(t), "mongo.ErrClientDisconnected")
	verbs := 0
	for name, doc := range verbDocs(t) {
		verbs++
		require.True(t, list.MatchString(doc) || strings.HasPrefix(name, "Ledger.") && reference.MatchString(doc),
			"%s: what does it return, and what does the caller do then?\n%s", name, doc)
		for _, word := range named.FindAllString(doc, -1) {
			require.Contains(t, known, word, name)
		}
	}
	require.Greater(t, verbs, 30)
}

// verbDocs returns what is written above each exported method of Coordinator and Ledger
// that takes a context, by its name.
func verbDocs(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	docs := map[string]string{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, declaration := range parsed.Decls {
			verb, ok := declaration.(*ast.FuncDecl)
			if !ok || verb.Recv == nil || !verb.Name.IsExported() || len(verb.Type.Params.List) == 0 {
				continue
			}
			pointer, ok := verb.Recv.List[0].Type.(*ast.StarExpr)
			if !ok || verb.Type.Params.List[0].Names[0].Name != "ctx" {
				continue
			}
			if of := pointer.X.(*ast.Ident).Name; of == "Coordinator" || of == "Ledger" {
				docs[of+"."+verb.Name.Name] = verb.Doc.Text()
			}
		}
	}
	return docs
}

// A call that has only found that others were first has stored nothing, and says so.
func TestOthersWereFirst(t *testing.T) {
	t.Parallel()
	var tries retry
	tries.record(try{result: protocol.NotMatched})
	require.Equal(t, NothingStored, OutcomeOf(tries.err(nil)))
	require.ErrorContains(t, tries.err(nil), "others were first")
	tries.record(try{result: protocol.Unknown})
	require.ErrorIs(t, tries.err(nil), ErrInDoubt)
}

// A missing right to create what Setup creates is a matter of Setup, and any other of the
// roles: also on a collection that is itself named transfer.
func TestUnauthorizedErrorAdvises(t *testing.T) {
	t.Parallel()
	for right, advice := range map[UnauthorizedError]string{
		{Action: "insert", Namespace: "bank.accounts.transfer"}:           "Setup creates",
		{Action: "find, insert", Namespace: "bank.a.b.transfer"}:          "Setup creates",
		{Action: "createIndex", Namespace: "bank.transfers"}:              "Setup creates",
		{Action: "insert", Namespace: "bank.transfers.retention"}:         "Setup creates",
		{Action: "insert", Namespace: "bank.transfer"}:                    "grant it",
		{Action: "find", Namespace: "bank.transfers.transfer"}:            "grant it",
		{Action: "insert, update", Namespace: "bank.transfers.processes"}: "grant it",
	} {
		require.ErrorContains(t, &right, "no right to "+right.Action+" on "+right.Namespace+": ")
		require.ErrorContains(t, &right, advice, right)
	}
}

// Where too many others are before a call, it has stored nothing, and says so before its
// context ends. A few are let in all the same, as probes: here they hang.
func TestTooManyAreBefore(t *testing.T) {
	t.Parallel()
	var network pausable
	db := mongotest.Client(t, options.Client().SetDialer(&network)).Database(mongotest.Database(t).Name())
	c, err := NewCoordinator(db)
	require.NoError(t, err)
	prepareHold(t, c)
	for _, callers := range []*engine.Callers{&c.submitters, &c.deciders, c.readers[c.catalog.Clusters[0]]} {
		fill(t, c, callers)
	}
	verbs := map[string]func(ctx context.Context) error{
		"Submit": func(ctx context.Context) error {
			_, err := c.Submit(ctx, Request{ID: "s", From: "a", To: "b", Amount: Units(1)})
			return err
		},
		"Post":       func(ctx context.Context) error { _, err := c.Post(ctx, "h"); return err },
		"Void":       func(ctx context.Context) error { _, err := c.Void(ctx, "h"); return err },
		"Cancel":     func(ctx context.Context) error { _, err := c.Cancel(ctx, "h", ""); return err },
		"Extend":     func(ctx context.Context) error { _, err := c.Extend(ctx, "h", 2*time.Hour); return err },
		"Get":        func(ctx context.Context) error { _, err := c.Get(ctx, "h"); return err },
		"GetAccount": func(ctx context.Context) error { _, err := c.GetAccount(ctx, "a"); return err },
		"AtMost": func(ctx context.Context) error {
			_, err := c.Transfer(ctx, Request{ID: "m", From: "a", To: "b", Amount: Units(1), AtMost: true})
			return err
		},
	}
	network.Lock()
	defer network.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 16*time.Second)
	defer cancel()
	type refusal struct {
		verb string
		err  error
	}
	const callers = 100
	refusals := make(chan refusal, callers*len(verbs))
	for name, call := range verbs {
		for range callers {
			go func() { refusals <- refusal{name, call(ctx)} }()
		}
	}
	for refused := map[string]int{}; len(refused) < len(verbs); {
		r := <-refusals
		require.NoError(t, ctx.Err(), "%s: %v", r.verb, r.err)
		require.ErrorIs(t, r.err, context.DeadlineExceeded, r.verb)
		require.ErrorContains(t, r.err, "too much is under way", r.verb)
		require.Equal(t, NothingStored, OutcomeOf(r.err), r.verb)
		refused[r.verb]++
	}
}

// Those whose transfers wait for a cluster that is busy don't keep others from theirs.
// Nor do those who read from one cluster keep others from another.
func TestCallersOfSeveralClusters(t *testing.T) {
	t.Parallel()
	db := mongotest.Database(t)
	c, err := NewCoordinator(db, WithLedger("elsewhere", mongotest.Client(t).Database(db.Name()).Collection("elsewhere")))
	require.NoError(t, err)
	prepareHold(t, c)
	_, err = c.Transfer(t.Context(), Request{ID: "t", From: "a", To: "b", Amount: Units(1)})
	require.NoError(t, err)
	fill(t, c, &c.deciders)
	fill(t, c, c.readers[c.catalog.Ledgers["elsewhere"].Cluster()])
	for name, call := range map[string]func(ctx context.Context) error{
		"Cancel":     func(ctx context.Context) error { _, err := c.Cancel(ctx, "t", ""); return err },
		"Get":        func(ctx context.Context) error { _, err := c.Get(ctx, "h"); return err },
		"GetAccount": func(ctx context.Context) error { _, err := c.GetAccount(ctx, "a"); return err },
	} {
		for range 20 { // more than there are probes
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			err := call(ctx)
			cancel()
			require.NotContains(t, fmt.Sprint(err), "too much is under way", name)
		}
	}
}

// pausable is a network that sends nothing while it is locked.
type pausable struct {
	sync.RWMutex
	dialer net.Dialer
}

func (p *pausable) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := p.dialer.DialContext(ctx, network, address)
	return pausableConn{conn, p}, err
}

type pausableConn struct {
	net.Conn
	network *pausable
}

func (c pausableConn) Write(b []byte) (int, error) {
	c.network.RLock()
	defer c.network.RUnlock()
	return c.Conn.Write(b)
}

// prepareHold opens accounts a and b, and holds something.
func prepareHold(t *testing.T, c *Coordinator) {
	t.Helper()
	for id, balance := range map[string]int64{"a": 10, "b": 0} {
		_, err := c.OpenAccount(t.Context(), Account{ID: id, Balance: Units(balance)})
		require.NoError(t, err)
	}
	_, err := c.Hold(t.Context(), Request{ID: "h", From: "a", To: "b", Amount: Units(1)}, time.Hour)
	require.NoError(t, err)
}

// fill makes a call take some milliseconds more among a hundred than alone, and puts very
// many before the next one.
func fill(t *testing.T, c *Coordinator, callers *engine.Callers) {
	t.Helper()
	admit := func() (leave func(done bool)) {
		leave, err := c.engine.Admit(t.Context(), callers)
		require.NoError(t, err)
		return leave
	}
	admit()(true)
	for range 100 {
		admit()
	}
	leave := admit()
	require.True(t, pausePoll(t.Context(), slowestPoll))
	leave(true)
	for range 200_000 {
		admit()
	}
}
