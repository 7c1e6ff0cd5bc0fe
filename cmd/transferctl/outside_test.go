package main

import (
	"encoding/json"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/outside"
)

// A server that is away is reported as such, with its own exit code, in the time that the
// URI gives.
func TestServerAway(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	d := atDesk(t, nil)
	d.env["MONGODB_URI"] = "mongodb://" + silent.Addr().String() + "/bank?serverSelectionTimeoutMS=300"
	for _, args := range [][]string{{"stats"}, {"check"}, {"setup"}, {"cancel", "x", "--yes"}} {
		require.Contains(t, d.runBare(args...).requires(exitAway).err, "can't be reached", args)
	}
	a := d.runBare("stats", "--json").requires(exitAway)
	require.Empty(t, a.out)
	var e errorView
	require.NoError(t, json.Unmarshal([]byte(a.err), &e))
	require.Equal(t, exitAway, e.ExitCode)
}

// A name server that doesn't know the servers is away, as they are.
func TestNameServerAway(t *testing.T) {
	t.Parallel()
	d := atDesk(t, nil)
	d.env["MONGODB_URI"] = "mongodb+srv://nowhere.invalid/bank"
	require.Contains(t, d.runBare("stats").requires(exitAway).err, "can't be reached")
}

// The version is what the build has recorded: that of the module, and the commit.
func TestVersion(t *testing.T) {
	said := atDesk(t, nil).runBare("--version").done().out
	require.True(t, strings.HasPrefix(said, "transferctl version "), said)
	build := &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}
	require.Equal(t, "v1.2.3", version(build, true))
	build.Settings = []debug.BuildSetting{
		{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "false"},
	}
	require.Equal(t, "v1.2.3, commit abc", version(build, true))
	build.Settings[2].Value = "true"
	require.Equal(t, "v1.2.3, commit abc, with changes", version(build, true))
	require.Equal(t, "unknown", version(nil, false))
}

// A command line that can't be meant is refused, and nothing is asked of a server.
func TestUsage(t *testing.T) {
	t.Parallel()
	d := atDesk(t, nil)
	for _, args := range [][]string{
		{}, {"nothing"}, {"list", "--nothing"}, {"show"}, {"show", "a", "b"}, {"list", "x"}, {"stats"}, {"roles", "nobody"},
		{"stats", "--database", "x", "--uri", "http://x"}, {"stats", "--database", "x", "--uri", "mongodb://"},
		{"stats", "--database", "x", "--stall-policy", "perhaps"}, {"stats", "--database", "x", "--ids", "int"},
		{"stats", "--database", "x", "--field", "balance"}, {"stats", "--database", "x", "--timeout", "-1s"}, {"repair"},
		{"reverse", "--of", "x"}, {"repair", "marker"}, {"list", "--limit", "x"},
		{"roles", "--database", "x", "--with-ledger", "eu"}, {"roles"},
	} {
		a := d.runBare(args...).requires(exitUsage)
		require.NotEmpty(t, a.err, args)
		require.Empty(t, a.out, args)
	}
	for _, what := range []string{"marker", "pending"} {
		require.Contains(t, d.runBare("repair", what, "ann").requires(exitUsage).err, `--account names the account, not "ann"`)
	}
	d.env["MONGODB_URI"] = ""
	require.Contains(t, d.runBare("stats", "--database", "x").requires(exitUsage).err, "MONGODB_URI")
	require.Contains(t, d.runBare("--help").requires(exitDone).out, "redeliver")
	require.Contains(t, d.runBare("list", "--help").requires(exitDone).out, "--metadata")
}

// The database is the one in the URI's path, unless a flag says another one.
func TestDatabaseOfURI(t *testing.T) {
	t.Parallel()
	for uri, want := range map[string]string{
		"mongodb://h/bank": "bank", "mongodb://h:1,i:2/bank?tls=true": "bank", "mongodb+srv://h/": "", "mongodb://h": "",
		"mongodb://u:p%2Fq@h/my%20bank": "my bank", "mongodb://u@h/?x=/y": "", "mongodb://u:p?@h/bank": "",
	} {
		got, err := databaseOf(uri)
		require.NoError(t, err)
		require.Equal(t, want, got, uri)
	}
}

// guarded is a server that demands users, each of whom has one of the roles that the
// command prints.
type guarded struct {
	*desk
	server *mongotest.Server
	till   *mongo.Database
	names  []string
}

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	server, err := mongotest.StartWithUsers(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	client, err := mongo.Connect(options.Client().ApplyURI(server.URI()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Disconnect(t.Context()) })
	g := &guarded{desk: atDesk(t, nil), server: server, till: client.Database("till")}
	g.names = []string{"--database", "till", "--accounts", "wallets", "--transfers", "moves", "--with-ledger", "eu=eu_wallets"}
	for _, name := range roleNames() {
		role := g.runBare(append(g.names, "roles", name, "--json")...).done().document()
		require.Equal(t, "till", role["database"])
		text, err := json.Marshal(role["command"])
		require.NoError(t, err)
		var command bson.D
		require.NoError(t, bson.UnmarshalExtJSON(text, false, &command))
		require.NoError(t, g.till.RunCommand(t.Context(), command).Err(), name)
		require.NoError(t, g.till.RunCommand(t.Context(), bson.D{
			{Key: "createUser", Value: name}, {Key: "pwd", Value: "secret"}, {Key: "roles", Value: bson.A{command[0].Value}},
		}).Err())
	}
	return g
}

func mustParse(t *testing.T, uri string) *url.URL {
	t.Helper()
	u, err := url.Parse(uri)
	require.NoError(t, err)
	return u
}

// as runs a command as one of the users.
func (g *guarded) as(user, password string, args ...string) answered {
	g.t.Helper()
	u := mustParse(g.t, g.server.URI())
	q := u.Query()
	q.Set("authSource", "till")
	u.User, u.RawQuery = url.UserPassword(user, password), q.Encode()
	g.env["MONGODB_URI"] = u.String()
	return g.runBare(append(g.names, args...)...)
}

// A user with one of the printed roles and no other right can do what it is for. What is
// missing is named.
func TestRolesAndMissingRights(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	require.Contains(t, g.as("auditor", "secret", "setup").requires(exitFailed).err, "the user has no right to")
	g.as("migration", "secret", "setup").done()
	for _, command := range []string{"check", "audit", "list", "stats", "accounts"} {
		g.as("auditor", "secret", command).done()
	}
	g.as("service", "secret", "recover").done()
	g.as("worker", "secret", "recover").done()
	c, err := transfer.NewCoordinator(g.till,
		transfer.WithAccounts(g.till.Collection("wallets")), transfer.WithTransfers(g.till.Collection("moves")))
	require.NoError(t, err)
	_, err = c.Submit(t.Context(), transfer.Request{ID: "later", From: "a", To: "b", Amount: transfer.Units(1)})
	require.NoError(t, err)
	require.NoError(t, c.Close(t.Context()))
	refused := g.as("auditor", "secret", "cancel", "later", "--yes", "--json").requires(exitFailed)
	require.Contains(t, refused.err, "the user has no right to")
	require.Contains(t, g.as("service", "secret", "cancel", "later", "--yes").done().out, "later  Fail")
	converting := g.as("auditor", "secret", "convert", "--yes").requires(exitFailed)
	require.Contains(t, converting.err, "the user has no right to find on till.transactions")
	require.NotContains(t, converting.err, "lsid")
	adopting := g.as("migration", "secret", "adopt", "--yes", "--field", "floor=least").requires(exitFailed)
	require.Contains(t, adopting.err, "the user has no right to find on till.")
	require.NoError(t, g.till.RunCommand(t.Context(), bson.D{
		{Key: "createUser", Value: "adopter"}, {Key: "pwd", Value: "secret"},
		{Key: "roles", Value: bson.A{"transferMigration", "transferAuditor"}},
	}).Err())
	require.Contains(t, g.as("adopter", "secret", "adopt", "--yes", "--field", "floor=least").done().out, "replaced: ")
	require.Contains(t, g.as("auditor", "wrong", "stats").requires(exitFailed).err, "password")
}

// A user who is refused learns that from every command, and not that something does not
// exist or is in doubt.
func TestRefusedUsers(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	g.as("migration", "secret", "setup").done()
	require.NoError(t, g.till.RunCommand(t.Context(), bson.D{
		{Key: "createUser", Value: "nobody"}, {Key: "pwd", Value: "secret"}, {Key: "roles", Value: bson.A{}},
	}).Err())
	g.names = []string{"--database", "till", "--accounts", "wallets", "--transfers", "moves"}
	for _, args := range [][]string{
		{"accounts", "eve", "--ledger", "eu"}, {"accounts"}, {"list"}, {"watch", "--looks", "1"}, {"recover"}, {"recover", "--dry-run"},
		{"stats"}, {"show", "x"}, {"cancel", "x", "--yes"}, {"audit"},
	} {
		for _, who := range []struct{ user, password, want string }{
			{"nobody", "secret", "the user has no right to find on till.moves.transfer"},
			{"auditor", "wrong", "the server refuses the user or the password"},
		} {
			var e errorView
			refused := g.as(who.user, who.password, append(args, "--json")...).requires(exitFailed)
			require.NoError(t, json.Unmarshal([]byte(refused.err), &e))
			require.Contains(t, e.Error, who.want, args)
			require.Equal(t, "NothingStored", e.Outcome, args)
		}
	}
}

// A user whom the server refuses is told so by its clock as well: a password may be
// changed while watch goes on.
func TestServerTimeOfARefusedUser(t *testing.T) {
	t.Parallel()
	server, err := mongotest.StartWithUsers(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	u := mustParse(t, server.URI())
	u.User = url.UserPassword(u.User.Username(), "wrong")
	var s session
	client, err := s.connect(u.String())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.connections.close(t.Context())) })
	s.transfers = client.Database("till").Collection("moves")
	_, err = s.serverTime(t.Context())
	require.ErrorIs(t, err, transfer.ErrUnauthorized)
	require.EqualError(t, err, "the server refuses the user or the password")
}

// What this module embeds is what docs/roles has.
func TestRolesAreThoseOfTheDocs(t *testing.T) {
	t.Parallel()
	root, err := outside.Root()
	require.NoError(t, err)
	for _, name := range roleNames() {
		documented, err := os.ReadFile(filepath.Join(root, "docs", "roles", name+".json"))
		require.NoError(t, err)
		embedded, err := roleFiles.ReadFile("roles/" + name + ".json")
		require.NoError(t, err)
		require.Equal(t, string(documented), string(embedded), name)
		var want roleCommand
		require.NoError(t, json.Unmarshal(documented, &want))
		role := atDesk(t, nil).runBare("roles", name, "--json", "--database", "bank").done()
		var got roleView
		require.NoError(t, json.Unmarshal([]byte(role.out), &got))
		require.Equal(t, roleView{Database: "bank", Command: want}, got)
	}
	files, err := filepath.Glob(filepath.Join(root, "docs", "roles", "*.json"))
	require.NoError(t, err)
	require.Len(t, files, len(roleNames()))
}

// Collections elsewhere get a role where they are: on the admin database if it reaches
// over several, or on another server. Documents that effects change can't be inserted.
func TestRolesOfOtherPlaces(t *testing.T) {
	t.Parallel()
	d := atDesk(t, nil)
	d.env["US"] = "mongodb://us-1/states"
	a := d.runBare("roles", "service", "--database", "bank", "--json", "--with-ledger", "us=env:US#wallets",
		"--with-documents", "orders=shop/orders").done()
	var found []roleView
	for line := range strings.Lines(a.out) {
		var role roleView
		require.NoError(t, json.Unmarshal([]byte(line), &role))
		found = append(found, role)
	}
	require.Len(t, found, 2)
	require.Equal(t, "admin", found[0].Database)
	require.Contains(t, found[0].Command.Privileges,
		privilege{resource{"shop", "orders"}, []string{"find", "update", "listIndexes"}})
	require.Contains(t, found[0].Command.Privileges, privilege{resource{"shop", "orders.transfer"}, []string{"find"}})
	require.Equal(t, roleView{"us", "states", roleCommand{"transferService", []privilege{
		{resource{"states", ""}, []string{"listCollections"}},
		{resource{"states", "wallets"}, []string{"find", "insert", "update", "listIndexes"}},
		{resource{"states", "wallets.transfer"}, []string{"find"}},
	}, []string{}}}, found[1])
	for _, flags := range [][]string{
		{}, {"--accounts", "wallets"}, {"--with-ledger", "eu=eu"}, {"--accounts", "wallets", "--with-documents", "orders=orders"},
	} {
		a := d.runBare(append(flags, "roles", "worker", "--database", "bank")...).requires(exitDone)
		require.Contains(t, a.out, `runCommand({`)
		require.Equal(t, len(flags) < 4, strings.Contains(a.err, "roles asks no server"), "%q", flags)
	}
}

// A command ends with its time, and says that it has.
func TestTimeout(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	d := atDesk(t, nil)
	d.env["MONGODB_URI"] = "mongodb://" + silent.Addr().String() + "/bank?serverSelectionTimeoutMS=3600000"
	begun := time.Now()
	a := d.runBare("stats", "--timeout", "300ms").requires(exitAway)
	require.Equal(t, "transferctl: the time of --timeout, 300ms, is over\n", a.err)
	require.Less(t, time.Since(begun), 5*time.Minute) // the desk's patience is longer
}
