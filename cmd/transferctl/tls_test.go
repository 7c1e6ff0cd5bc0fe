package main

import (
	"crypto/tls"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/mongotest"
)

// TLS, its authority and the user are taken from the URI; a server that nobody vouches
// for is not talked to.
func TestTLSAndUsersByTheURI(t *testing.T) {
	t.Parallel()
	g := mongotest.StartGuarded(t)
	admin := g.Root(t).Database("admin")
	require.NoError(t, admin.RunCommand(t.Context(), bson.D{
		{Key: "createUser", Value: "oncall"}, {Key: "pwd", Value: "p@ss/word"}, {Key: "roles", Value: bson.A{"readWriteAnyDatabase"}},
	}).Err())
	var hello struct{ Me string }
	require.NoError(t, admin.RunCommand(t.Context(), bson.D{{Key: "hello", Value: 1}}).Decode(&hello))

	line, err := tls.Dial("tcp", hello.Me, &tls.Config{InsecureSkipVerify: true})
	require.NoError(t, err)
	var shown []byte
	for _, certificate := range line.ConnectionState().PeerCertificates {
		shown = append(shown, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw})...)
	}
	require.NoError(t, line.Close())
	authority := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(authority, shown, 0o600))

	d := atDesk(t, nil)
	with := func(user, options string) *desk {
		d.env["MONGODB_URI"] = "mongodb://" + user + hello.Me + "/bank?directConnection=true" + options
		return d
	}
	const patient, short = "&serverSelectionTimeoutMS=300000", "&serverSelectionTimeoutMS=2000"
	trusting := "&authSource=admin&tls=true&tlsCAFile=" + authority + patient
	with("oncall:p%40ss%2Fword@", trusting).runBare("setup").done()
	d.runBare("check").done()
	require.Contains(t, with("oncall:wrong@", trusting).runBare("check").requires(exitFailed).err, "password")
	with("", trusting).runBare("check").requires(exitFailed)
	with("oncall:p%40ss%2Fword@", "&authSource=admin&tls=true"+short).runBare("check").requires(exitAway)
	with("oncall:p%40ss%2Fword@", "&authSource=admin"+short).runBare("check").requires(exitAway)
	with("oncall:p%40ss%2Fword@", trusting)
	uri := d.env["MONGODB_URI"]
	d.env["MONGODB_URI"] = ""
	d.runBare("check", "--uri", uri).done()
}
