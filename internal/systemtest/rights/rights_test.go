package rights

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/engine"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/outside"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// promptly is how long a call may take to report a missing right, also on a machine
// that others keep busy. To try again until a call is given up would take longer.
const promptly = engine.AwayLimit * 2 / 3

// role is a createRole command as in the files of docs/roles.
type role struct {
	Name       string      `json:"createRole"`
	Privileges []privilege `json:"privileges"`
}

type privilege struct {
	Resource struct {
		DB         string `json:"db" bson:"db"`
		Collection string `json:"collection" bson:"collection"`
	} `json:"resource" bson:"resource"`
	Actions []string `json:"actions" bson:"actions"`
}

// namespace returns the privilege's namespace as errors show it.
func (p privilege) namespace() string {
	return strings.TrimSuffix(p.Resource.DB+"."+p.Resource.Collection, ".")
}

// readRole reads a role from docs/roles.
func readRole(t *testing.T, name string) role {
	t.Helper()
	root, err := outside.Root()
	require.NoError(t, err)
	content, err := os.ReadFile(filepath.Join(root, "docs", "roles", name+".json"))
	require.NoError(t, err)
	decoder := json.NewDecoder(strings.NewReader(string(content)))
	decoder.DisallowUnknownFields()
	var r struct {
		role

		Roles []string `json:"roles"`
	}
	require.NoError(t, decoder.Decode(&r))
	require.Empty(t, r.Roles)
	return r.role
}

// without returns the role without one action.
func (r role) without(dropped privilege, action string) role {
	privileges := make([]privilege, 0, len(r.Privileges))
	for _, p := range r.Privileges {
		if p.Resource == dropped.Resource {
			p.Actions = slices.DeleteFunc(slices.Clone(p.Actions), func(a string) bool { return a == action })
		}
		if len(p.Actions) > 0 {
			privileges = append(privileges, p)
		}
	}
	return role{r.Name, privileges}
}

// guarded is a deployment whose server requires users.
// The database is the one that the roles name.
type guarded struct {
	t      *testing.T
	server *mongotest.Guarded
	root   *mongo.Database
	all    *transfer.Coordinator // of the user with all rights
}

// newGuarded returns a deployment that is set up, with the accounts rich and poor, and
// one transfer.
func newGuarded(t *testing.T, server *mongotest.Guarded) *guarded {
	t.Helper()
	v := &guarded{t: t, server: server, root: server.Root(t).Database("bank")}
	v.fill()
	return v
}

// fill creates the deployment anew.
func (v *guarded) fill() {
	v.t.Helper()
	t := v.t
	require.NoError(t, v.root.Drop(t.Context()))
	v.all = v.over(v.root)
	require.NoError(t, v.all.Setup(t.Context()))
	for id, balance := range map[string]int64{"rich": 1_000_000, "poor": 0} {
		_, err := v.all.OpenAccount(t.Context(), transfer.Account{ID: id, Balance: transfer.Units(balance)})
		require.NoError(t, err)
	}
	v.toTheEnd(v.all, oneUnit("first"))
}

// over returns a coordinator that ends with the test.
func (v *guarded) over(db *mongo.Database, opts ...transfer.Option) *transfer.Coordinator {
	v.t.Helper()
	opts = append([]transfer.Option{transfer.WithRetention(2 * time.Hour)}, opts...)
	c, err := transfer.NewCoordinator(db, opts...)
	require.NoError(v.t, err)
	v.t.Cleanup(func() { bank.Kill(c) })
	return c
}

// user stores a user with exactly this role, and returns the database as that user.
func (v *guarded) user(r role, opts ...*options.ClientOptions) (name string, db *mongo.Database) {
	v.t.Helper()
	name = r.Name + "-" + rand.Text()[:8]
	v.grant(name, r)
	v.run(bson.D{
		{Key: "createUser", Value: name}, {Key: "pwd", Value: "secret"}, {Key: "roles", Value: bson.A{name}},
	})
	return name, v.server.Client(v.t, "bank", name, "secret", opts...).Database("bank")
}

// grant gives a user a new role.
func (v *guarded) grant(user string, r role) {
	v.t.Helper()
	privileges := r.Privileges
	if privileges == nil {
		privileges = []privilege{}
	}
	command := bson.D{{Key: "createRole", Value: user}, {Key: "privileges", Value: privileges}, {Key: "roles", Value: bson.A{}}}
	err := v.root.RunCommand(v.t.Context(), command).Err()
	var exists mongo.CommandError
	if errors.As(err, &exists) && exists.Code == 51002 {
		v.run(bson.D{{Key: "updateRole", Value: user}, {Key: "privileges", Value: privileges}})
		return
	}
	require.NoError(v.t, err)
}

func (v *guarded) run(command bson.D) {
	v.t.Helper()
	require.NoError(v.t, v.root.RunCommand(v.t.Context(), command).Err())
}

// finish requires that recovery finishes everything, and that the books balance.
func (v *guarded) finish() {
	v.t.Helper()
	c := v.over(v.root, transfer.WithStallThreshold(0))
	_, err := c.Recover(v.t.Context())
	require.NoError(v.t, err)
	v.finishBy(c)
}

// finishBy requires that everything is finished, except what recovery leaves alone, and
// that the books balance.
func (v *guarded) finishBy(c *transfer.Coordinator) {
	v.t.Helper()
	for rec, err := range c.List(v.t.Context(), transfer.Query{}) {
		require.NoError(v.t, err)
		switch {
		case rec.State.Final():
		case rec.State == transfer.StateInitiated || rec.Hold: // recovery leaves these alone
			rec, err = c.Cancel(v.t.Context(), rec.ID, "the test is over")
			require.NoError(v.t, err)
		}
		require.True(v.t, rec.State.Final(), "%s is %s", rec.ID, rec.State)
		require.Nil(v.t, rec.Stuck, "%s", rec.ID)
	}
	v.auditBy(c)
}

// audit requires that nothing is wrong and nothing is lost.
func (v *guarded) audit() { v.auditBy(v.all) }

func (v *guarded) auditBy(c *transfer.Coordinator) {
	v.t.Helper()
	report, err := c.AuditWith(v.t.Context(), transfer.AuditOptions{
		Expected: []transfer.ExpectedTotal{{Sum: transfer.Units(1_000_000)}},
	})
	require.NoError(v.t, err)
	require.Empty(v.t, report.Findings)
}

// verb is an operation of a user with a role. Its ID is fresh.
type verb struct {
	name string
	do   func(ctx context.Context, c *transfer.Coordinator, id string) error
}

func oneUnit(id string) transfer.Request { return bank.Move(id, "rich", "poor", 1) }

// serviceVerbs are all operations of a service.
func serviceVerbs() []verb {
	return slices.Concat(movingVerbs(), holdVerbs(), readingVerbs())
}

func movingVerbs() []verb {
	return []verb{
		{"setup", func(ctx context.Context, c *transfer.Coordinator, _ string) error { return c.Setup(ctx) }},
		{"open", func(ctx context.Context, c *transfer.Coordinator, id string) error {
			_, err := c.OpenAccount(ctx, transfer.Account{ID: id})
			if err != nil {
				return err
			}
			_, err = c.UpdateAccount(ctx, id, transfer.AccountChange{NoFloor: new(bool)})
			return errors.Join(err, c.CloseAccount(ctx, id), c.ReopenAccount(ctx, id))
		}},
		{"transfer", func(ctx context.Context, c *transfer.Coordinator, id string) error {
			_, err := c.Transfer(ctx, oneUnit(id))
			return err
		}},
		{"refused", func(ctx context.Context, c *transfer.Coordinator, id string) error {
			_, err := c.Transfer(ctx, bank.Move(id, "rich", "poor", 10_000_000))
			if errors.Is(err, transfer.ErrInsufficientFunds) {
				return nil
			}
			return err
		}},
		{"many", func(ctx context.Context, c *transfer.Coordinator, id string) error {
			_, errs := c.TransferMany(ctx, []transfer.Request{oneUnit(id + "1"), oneUnit(id + "2")})
			return errors.Join(errs...)
		}},
		{"at most", func(ctx context.Context, c *transfer.Coordinator, id string) error {
			r := oneUnit(id)
			r.AtMost = true
			_, err := c.Transfer(ctx, r)
			return err
		}},
		{"submit, cancel", func(ctx context.Context, c *transfer.Coordinator, id string) error {
			if _, err := c.Submit(ctx, oneUnit(id)); err != nil {
				return err
			}
			_, err := c.Cancel(ctx, id, "by the test")
			return err
		}},
		{"reverse", func(ctx context.Context, c *transfer.Coordinator, id string) error {
			if _, err := c.Transfer(ctx, oneUnit(id)); err != nil {
				return err
			}
			_, err := c.Reverse(ctx, transfer.Reversal{ID: id + "-back", Of: id, All: true})
			return err
		}},
		{"recover", func(ctx context.Context, c *transfer.Coordinator, _ string) error {
			_, err := c.Recover(ctx)
			return err
		}},
	}
}

func holdVerbs() []verb {
	return []verb{
		{"hold, post", func(ctx context.Context, c *transfer.Coordinator, id string) error {
			if _, err := c.Hold(ctx, oneUnit(id), time.Minute); err != nil {
				return err
			}
			_, err := c.Post(ctx, id)
			return err
		}},
		{"hold, extend, post", func(ctx context.Context, c *transfer.Coordinator, id string) error {
			if _, err := c.Hold(ctx, oneUnit(id), time.Minute); err != nil {
				return err
			}
			if _, err := c.Extend(ctx, id, time.Hour); err != nil {
				return err
			}
			_, err := c.Post(ctx, id)
			return err
		}},
		{"hold, void", func(ctx context.Context, c *transfer.Coordinator, id string) error {
			if _, err := c.Hold(ctx, oneUnit(id), time.Minute); err != nil {
				return err
			}
			_, err := c.Void(ctx, id)
			return err
		}},
	}
}

// readingVerbs are the operations that change nothing.
func readingVerbs() []verb {
	return []verb{
		{"account", func(ctx context.Context, c *transfer.Coordinator, _ string) error {
			_, err := c.GetAccount(ctx, "rich")
			return err
		}},
		{"accounts", func(ctx context.Context, c *transfer.Coordinator, _ string) error {
			return bank.LastError(c.Accounts(ctx, transfer.AccountQuery{}))
		}},
		{"get", func(ctx context.Context, c *transfer.Coordinator, _ string) error {
			_, err := c.Get(ctx, "first")
			return err
		}},
		{"wait", func(ctx context.Context, c *transfer.Coordinator, _ string) error {
			_, err := c.Wait(ctx, "first")
			return err
		}},
		{"list", func(ctx context.Context, c *transfer.Coordinator, _ string) error {
			for _, err := range c.List(ctx, transfer.Query{}) {
				if err != nil {
					return err
				}
			}
			return nil
		}},
		{"explain", func(ctx context.Context, c *transfer.Coordinator, _ string) error {
			_, err := c.Explain(ctx, "first")
			return err
		}},
		{"stats", func(ctx context.Context, c *transfer.Coordinator, _ string) error {
			_, err := c.Stats(ctx)
			return err
		}},
		{"count", func(ctx context.Context, c *transfer.Coordinator, _ string) error {
			_, err := c.Count(ctx, transfer.Query{})
			return err
		}},
		{"page", func(ctx context.Context, c *transfer.Coordinator, _ string) error {
			for _, err := range c.List(ctx, transfer.Query{Beyond: "first", Limit: 1}) {
				if err != nil {
					return err
				}
			}
			return nil
		}},
		{"statement", func(ctx context.Context, c *transfer.Coordinator, _ string) error {
			for _, err := range c.Statement(ctx, "rich", transfer.StatementQuery{}) {
				if err != nil {
					return err
				}
			}
			return nil
		}},
		{"balance", func(ctx context.Context, c *transfer.Coordinator, _ string) error {
			_, err := c.BalanceAt(ctx, "rich", time.Now())
			return err
		}},
	}
}

func auditorVerbs() []verb {
	return append(readingVerbs(),
		verb{"audit", func(ctx context.Context, c *transfer.Coordinator, _ string) error {
			_, err := c.Audit(ctx)
			return err
		}},
		verb{"check", func(ctx context.Context, c *transfer.Coordinator, _ string) error { return c.Check(ctx) }})
}

// timed runs a verb and requires that it returns at once.
func (v *guarded) timed(what verb, c *transfer.Coordinator, id string) error {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(v.t.Context(), 2*engine.AwayLimit)
	defer cancel()
	begun := time.Now()
	err := what.do(ctx, c, id)
	if errors.Is(err, transfer.ErrUnauthorized) {
		require.Less(v.t, time.Since(begun), promptly, "%s: %v", what.name, err)
	}
	return err
}

// roles are the files in docs/roles, with the operations of their users.
func (v *guarded) roles() map[string][]verb {
	return map[string][]verb{
		"service": serviceVerbs(), "worker": v.workerVerbs(), "migration": v.migrationVerbs(), "auditor": auditorVerbs(),
	}
}

// A call without its right is refused, and what it leaves behind can be found, on a
// server that requires users and TLS.
func TestRights(t *testing.T) {
	t.Parallel()
	server := mongotest.StartGuarded(t)
	for _, promise := range []struct {
		name string
		keep func(*guarded)
	}{
		{"each role does what it is for, and has no right too many", (*guarded).rolesFit},
		{"a wrong password", (*guarded).wrongPassword},
		{"a right that is revoked in the middle", (*guarded).revokedAnywhere},
		{"asked again", (*guarded).askedAgain},
		{"asked again where the reason can't be stored", (*guarded).askedAgainWithoutRecord},
		{"a worker goes on once a right is back", (*guarded).workerGoesOn},
		{"a worker warns", (*guarded).workerWarns},
		{"an auditor writes nothing", (*guarded).auditorOnlyReads},
		{"an auditor reads what was just answered", (*guarded).auditorReadsAtOnce},
		{"what is not recorded yet", (*guarded).recordedByTheMigration},
		{"a service before Setup", (*guarded).servedBeforeSetup},
		{"a copy of a deployment that others have", (*guarded).besideAnOriginal},
		{"an auditor who may not read the records any more", (*guarded).auditWithoutRecords},
		{"notes that a process lives", (*guarded).notesAreOptional},
	} {
		t.Run(promise.name, func(t *testing.T) { promise.keep(newGuarded(t, server)) })
	}
}

// A user with a role of docs/roles can do everything that the role is for, over TLS.
// Every right in it is needed: without it an operation is refused, at once and with the
// name of the right, and each transfer that it leaves behind is listed.
// Once the right is granted, recovery finishes what has begun.
func (v *guarded) rolesFit() {
	for name, verbs := range v.roles() {
		r := readRole(v.t, name)
		v.sub(name, func(v *guarded) {
			_, db := v.user(r)
			for i, what := range verbs {
				require.NoError(v.t, v.timed(what, v.over(db), fmt.Sprintf("%s-%d", name, i)), what.name)
			}
			if name == "migration" {
				v.fill()
			}
			v.finish()
		})
		for _, p := range r.Privileges {
			if p.Resource.Collection == processNotes {
				continue // see notesAreOptional
			}
			for _, action := range p.Actions {
				v.sub(name+" without "+action+" on "+p.namespace(), func(v *guarded) {
					v.lacking(name, r, p, action, verbs)
				})
			}
		}
		if name == "migration" {
			v.fill() // its tests have made the database anew
		}
	}
}

// sub runs a part of a test.
func (v *guarded) sub(name string, part func(*guarded)) {
	v.t.Run(name, func(t *testing.T) {
		of := *v
		of.t = t
		part(&of)
	})
}

// lacking tries the verbs of a role that lacks one action, and then grants it.
func (v *guarded) lacking(name string, r role, p privilege, action string, verbs []verb) {
	t := v.t
	user, db := v.user(r.without(p, action))
	var refused []string
	for i, what := range verbs {
		id := fmt.Sprintf("%s-%s-%s-%d", name, p.Resource.Collection, action, i)
		err := v.timed(what, v.over(db), id)
		if err == nil {
			continue
		}
		var missing *transfer.UnauthorizedError
		require.ErrorAs(t, err, &missing, what.name)
		require.ErrorIs(t, err, transfer.ErrUnauthorized)
		require.Contains(t, missing.Action, action, "%s: %v", what.name, err)
		if missing.Namespace != "bank.transfers" || p.Resource.Collection != "transfers.transfer" { // an update of either collection is enough
			require.Equal(t, p.namespace(), missing.Namespace, "%s: %v", what.name, err)
		}
		if what.name == "open" || name == "migration" {
			require.NotErrorIs(t, err, transfer.ErrInDoubt, "it is certain that nothing was changed")
			require.NotErrorIs(t, err, transfer.ErrUnwritable, "it can be, once the right is granted")
		}
		refused = append(refused, what.name)
		v.shown(id, err)
	}
	require.NotEmpty(t, refused, "the right is not needed")
	if name == "migration" {
		v.fill()
	}
	v.audit() // each marker belongs to a stored transfer
	v.grant(user, r)
	if name == "service" || name == "worker" {
		_, err := v.over(db, transfer.WithStallThreshold(0)).Recover(t.Context())
		require.NoError(t, err)
	}
	v.finish()
}
