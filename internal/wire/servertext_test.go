package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/address"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/description"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"
)

// echo is a part that a server's message may contain.
const echo = `{update: "accounts", q: {_id: "alice", balance: 4711}, lsid: 1, $db: "bank"} secret`

func requireSecret(t *testing.T, text string) {
	t.Helper()
	for _, part := range []string{"secret", "4711", "lsid", "$db", "alice"} {
		assert.NotContains(t, text, part)
	}
	assert.LessOrEqual(t, len(text), 300, text)
}

// An error of the driver's is reported by code and name, without the server's message.
// Programs can still match it.
func TestServerErrorsAreTold(t *testing.T) {
	t.Parallel()
	raw, err := bson.Marshal(bson.M{"errmsg": echo, "lsid": "secret"})
	require.NoError(t, err)
	var many description.Topology
	for i := range 50 {
		refused := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
		many.Servers = append(many.Servers, description.Server{
			Addr: address.Address(fmt.Sprintf("host%d:27017", i)), LastError: fmt.Errorf("handshake: %w", refused),
		})
	}
	barred := description.Topology{Servers: []description.Server{{Addr: "host:1", LastError: topology.ConnectionError{
		ConnectionID: "host:1[-3]", Wrapped: driver.Error{Code: 18, Name: "AuthenticationFailed", Message: echo},
	}}}}
	refused := mongo.WriteException{WriteErrors: mongo.WriteErrors{{Code: 121, Message: echo, Details: raw, Raw: raw}}}
	unsure := mongo.WriteException{WriteConcernError: &mongo.WriteConcernError{Code: 64, Name: "WriteConcernFailed", Message: echo}}
	taken := mongo.WriteError{Code: 11000, Message: echo}
	for text, err := range map[string]error{
		"server error 9 FailedToParse":      mongo.CommandError{Code: 9, Name: "FailedToParse", Message: echo, Raw: raw},
		"server error 66 ImmutableField":    mongo.CommandError{Code: 66, Name: "a secret name", Message: echo},
		"server error 4242":                 mongo.CommandError{Code: 4242, Message: echo},
		"the server refuses, and gives no":  driver.Error{Message: echo, Raw: raw},
		"server error 121 DocumentValid":    refused,
		"server error 64 WriteConcernFa":    unsure,
		"server error 11000 DuplicateKey":   mongo.BulkWriteException{WriteErrors: []mongo.BulkWriteError{{WriteError: taken}}},
		"among host0:27017, host1:27017, ":  topology.ServerSelectionError{Desc: many, Wrapped: context.DeadlineExceeded},
		"47 more: connection error: dial":   topology.ServerSelectionError{Desc: many},
		"host:1: server error 18 Authentic": topology.ServerSelectionError{Desc: barred},
		"no server is known":                topology.ServerSelectionError{},
		`no server is a member of the repl`: topology.ServerSelectionError{Desc: description.Topology{SetName: "rs1"}},
		"pool was free in time":             topology.WaitQueueTimeoutError{Wrapped: context.DeadlineExceeded},
		"connection(host:1[-3])":            mongo.CommandError{Wrapped: topology.ConnectionError{ConnectionID: "host:1[-3]"}},
		"no answer in time":                 mongo.CommandError{Message: "x", Wrapped: context.DeadlineExceeded},
		"stopped before it was answered":    fmt.Errorf("wrapped: %w", context.Canceled),
		"client is disconnected":            mongo.ErrClientDisconnected,
		"a value can't be encoded":          mongo.MarshalError{Value: echo, Err: errors.New(echo)},
		"is not known: server error 91 Shu": ConcernError{code: 91},
	} {
		told := ServerErrorOf(err, "update", "bank.accounts")
		require.ErrorContains(t, told, "update on bank.accounts: ")
		require.ErrorContains(t, told, text)
		requireSecret(t, told.Error())
		var server *ServerError
		require.ErrorAs(t, told, &server)
		assert.Equal(t, err, errors.Unwrap(told), "for programs")
		again := fmt.Errorf("more: %w", told)
		assert.Equal(t, again, toldAgain(again), "once is enough")
	}
	require.NoError(t, ServerErrorOf(nil, "update", "bank.accounts"))
	var server *ServerError
	require.ErrorAs(t, ServerErrorOf(mongo.CommandError{Code: 13, Name: "Unauthorized", Message: echo}, "find", "bank.x"), &server)
	assert.Equal(t, ServerError{Action: "find", Namespace: "bank.x", Code: 13, Name: "Unauthorized", cause: server.cause}, *server)
	require.ErrorAs(t, ServerErrorOf(StatementError{Code: 13}, "find", "bank.x"), &server)
	assert.Equal(t, 13, server.Code)
}

func toldAgain(err error) error { return ServerErrorOf(err, "find", "elsewhere") }

// A refused write is reported by the names of the rule that it broke, without any written
// value.
func TestRefusedWritesAreTold(t *testing.T) {
	t.Parallel()
	property := func(name string, rule bson.M) bson.M { return bson.M{"propertyName": name, "details": bson.A{rule}} }
	rule := func(operator string, more bson.M) bson.M {
		d := bson.M{"operatorName": operator, "specifiedAs": bson.M{operator: 1}, "consideredValue": "secret", "reason": "4711"}
		for key, value := range more {
			d[key] = value
		}
		return d
	}
	schema := func(rules ...any) bson.M {
		return bson.M{"operatorName": "$jsonSchema", "schemaRulesNotSatisfied": bson.A(rules)}
	}
	properties := func(list ...any) bson.M { return rule("properties", bson.M{"propertiesNotSatisfied": bson.A(list)}) }
	condition := func(operator, path string) bson.M {
		return bson.M{"operatorName": operator, "specifiedAs": bson.M{path: bson.M{operator: "secret"}}, "consideredValue": 4711}
	}
	for want, details := range map[string]bson.M{
		": validator: balance minimum":            schema(properties(property("balance", rule("minimum", nil)))),
		": validator: a.b bsonType":               schema(properties(property("a", properties(property("b", rule("bsonType", nil)))))),
		": validator: x is missing, y is missing": schema(rule("required", bson.M{"missingProperties": bson.A{"x", "y"}})),
		": validator: pending is not allowed":     schema(rule("additionalProperties", bson.M{"additionalProperties": bson.A{"pending"}})),
		": validator: metadata additionalProperties": schema(properties(
			property("metadata", rule("additionalProperties", bson.M{"additionalProperties": bson.A{"secret"}})))),
		": validator: patternProperties": schema(rule("patternProperties", bson.M{"details": bson.A{property("secret", rule("minimum", nil))}})),
		": validator: balance $gte":      condition("$gte", "balance"),
		": validator: $expr":             condition("$expr", "$expr"),
		": validator: balance $gte, kind $in": {"operatorName": "$and", "clausesNotSatisfied": bson.A{
			bson.M{"index": 0, "details": condition("$gte", "balance")}, bson.M{"index": 1, "details": condition("$in", "kind")}}},
		"": {"what": "another version may say", "secret": "4711"},
	} {
		reply, err := bson.Marshal(bson.M{"writeErrors": bson.A{bson.M{
			"index": 0, "code": 121, "errmsg": "Document failed validation " + echo,
			"errInfo": bson.M{"failingDocumentId": "alice", "details": details},
		}}})
		require.NoError(t, err)
		got := StatementErrors(reply)
		require.Len(t, got, 1)
		assert.Equal(t, "server error 121 DocumentValidationFailure"+want, got[0].Error())
		requireSecret(t, got[0].Error())
	}
	for want, refusal := range map[string]bson.M{
		`: taken already in the index "by_mail" on mail, kind`: {"keyPattern": bson.D{{Key: "mail", Value: 1}, {Key: "kind", Value: 1}},
			"errmsg": `E11000 duplicate key error collection: bank.accounts index: by_mail dup key: { mail: "alice index: secret", kind: 4711 }`},
		`: taken already in the index "by_mail"`: {
			"errmsg": `E11000 duplicate key error collection: bank.accounts index: by_mail collation: { locale: "en" } dup key: { mail: "secret" }`},
		": taken already in the unique index on mail": {"keyPattern": bson.M{"mail": 1}, "errmsg": echo},
		"": {"errmsg": "E11000 index: secret"},
	} {
		refusal["code"], refusal["index"] = 11000, 0
		reply, err := bson.Marshal(bson.M{"writeErrors": bson.A{refusal}})
		require.NoError(t, err)
		got := StatementErrors(reply)[0]
		assert.Equal(t, "server error 11000 DuplicateKey"+want, got.Error())
		requireSecret(t, got.Error())
	}
}

// Every code that the store decides by has a name.
func TestCodesHaveNames(t *testing.T) {
	t.Parallel()
	for code := range 20_000 {
		if IsRefusal(code) {
			assert.NotEmpty(t, codeName(code), code)
		}
	}
}

// What ends before it is answered says whether it was sent at all.
func TestSilenced(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"no answer in time": context.DeadlineExceeded,
		"no connection of the client's pool was free in time": fmt.Errorf("wrapped: %w",
			topology.WaitQueueTimeoutError{Wrapped: context.DeadlineExceeded}),
	} {
		told := silenced(context.DeadlineExceeded, err)
		require.EqualError(t, told, want)
		require.ErrorIs(t, told, context.DeadlineExceeded)
	}
	require.EqualError(t, silenced(context.Canceled, topology.WaitQueueTimeoutError{}), "stopped before it was answered")
}
