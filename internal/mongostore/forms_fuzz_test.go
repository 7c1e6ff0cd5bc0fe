package mongostore_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/wire"
)

// Whatever bytes are stored as an account, and whatever is drawn, the two forms of a
// statement agree on it.
func FuzzForms(f *testing.F) {
	s := newOffline(f)
	db := mongotest.Database(f)
	quick := options.Collection().SetWriteConcern(&writeconcern.WriteConcern{W: 1})
	single, shared := db.Collection("single", quick), db.Collection("shared", quick)
	for seed := range byte(32) {
		draws := []byte{seed * 8, seed * 11, seed * 13, seed * 17, seed * 19, seed * 23}
		f.Add(draws, []byte(lotteryOf(draws).drawForm(s, "0").before), seed%2 == 0)
	}
	f.Fuzz(func(t *testing.T, draws, doc []byte, drawn bool) {
		l := lotteryOf(draws)
		var cases []*formCase
		for i := range 4 {
			cases = append(cases, l.drawForm(s, fmt.Sprint(i)))
		}
		if !drawn && !cases[0].replace(doc) {
			return
		}
		for _, collection := range []*mongo.Collection{single, shared} {
			_, err := collection.DeleteMany(t.Context(), bson.D{})
			require.NoError(t, err)
		}
		alone, together := forms{t, s.Store, single, shared}.perform(cases)
		for _, c := range cases {
			c.judge(t, alone[c.id], together[c.id])
		}
	})
}

// replace replaces the account by a document that may be damaged. It reports whether it
// is one.
func (c *formCase) replace(doc bson.Raw) bool {
	m := wire.NewMessage(len(doc))
	m.Text("_id", c.id)
	fields := wire.Elements(doc)
	for _, field := range fields {
		if field.Key() != "_id" {
			m.Value(field.Key(), field.Value())
		}
	}
	m.End()
	c.before, c.plain = m.Data, false
	return len(fields) > 0 && document.CheckForm(m.Data, len(wire.Elements(m.Data))) == nil
}
