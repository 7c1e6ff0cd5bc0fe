package wire

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// A command whose connection is refused for a wrong password was certainly not sent.
// A command that the server refuses for lack of a right is ambiguous, like each refusal
// of a whole command.
func TestRefusals(t *testing.T) {
	t.Parallel()
	db := mongotest.Database(t, options.Client().SetAuth(options.Credential{Username: "nobody", Password: "wrong"}))
	c := db.Collection("accounts")
	one, set := bson.D{{Key: "_id", Value: "a"}}, bson.D{{Key: "$set", Value: bson.D{{Key: "b", Value: 1}}}}
	result, err := UpdateOne(t.Context(), c, one, set)
	for ; Cleared(err); result, err = UpdateOne(t.Context(), c, one, set) {
		require.Equal(t, protocol.NotSent, result, "the driver's own connection was refused first")
	}
	require.Equal(t, protocol.NotSent, result)
	require.NotNil(t, Denied(err))
	require.Equal(t, CodeNoUser, Denied(err).Code)
	for _, err = FindOne(t.Context(), c, bson.D{}); Cleared(err); {
		_, err = FindOne(t.Context(), c, bson.D{})
	}
	require.NotNil(t, Denied(err))
	require.Equal(t, "the server refuses the user or the password", Denied(err).Missing())

	unauthorized := mongo.CommandError{Code: CodeUnauthorized, Message: "not authorized to execute {secret: 1}"}
	missing := ServerErrorOf(unauthorized, RightUpdate, "bank.accounts")
	require.Equal(t, "the user has no right to update on bank.accounts", Denied(missing).Missing())
	require.Nil(t, Denied(ServerErrorOf(mongo.CommandError{Code: CodeBadValue}, RightUpdate, "bank.accounts")))
	require.Nil(t, Denied(nil))
}

// A connection that was given up because another one was refused for a wrong password is
// that refusal, too. For another reason it is none.
func TestRefusedOnAnotherConnection(t *testing.T) {
	t.Parallel()
	denied := clearedPool{errors.New("the pool was cleared: auth error: (AuthenticationFailed) Authentication failed.")}
	refused := Denied(ServerErrorOf(fmt.Errorf("wrapped: %w", denied), RightFind, "bank.accounts"))
	require.NotNil(t, refused)
	require.Equal(t, CodeNoUser, refused.Code)
	require.Equal(t, "the server refuses the user or the password", refused.Missing())
	require.Nil(t, Denied(ServerErrorOf(clearedPool{errors.New("the pool was cleared: EOF")}, RightFind, "bank.accounts")))
}

// A real server's refusal is recognised on the connections that it has refused, and on
// those that the driver gives up for it, as it does where many are opened at once. The
// driver may also give one up for its own monitor's sake: another try says why.
func TestRefusedLogins(t *testing.T) {
	t.Parallel()
	const callers = 64
	for passedOn := 0; passedOn == 0; {
		db := mongotest.Database(t, options.Client().SetAuth(options.Credential{Username: "nobody", Password: "wrong"}))
		failures := make(chan error)
		for range callers {
			go func() {
				_, err := FindOne(t.Context(), db.Collection("accounts"), bson.D{})
				failures <- err
			}()
		}
		for range callers {
			err := <-failures
			var failure *ServerError
			require.ErrorAs(t, err, &failure)
			passed := Cleared(err) && strings.Contains(failure.cause.Error(), "Authentication failed")
			if passed {
				passedOn++
			}
			if passed || !Cleared(err) {
				require.NotNil(t, Denied(err), "%v", failure.cause)
				require.Equal(t, CodeNoUser, Denied(err).Code)
			}
		}
	}
}

// What nearly every command is asked, with no error at all, costs no memory.
func TestNoErrorCostsNoMemory(t *testing.T) {
	code, refused := 0, false
	require.Zero(t, testing.AllocsPerRun(100, func() {
		code, refused = CommandCode(nil), Denied(nil) != nil
	}))
	require.Zero(t, code)
	require.False(t, refused)
}
