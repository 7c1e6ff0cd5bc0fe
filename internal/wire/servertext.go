package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/description"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/mongotransfer/transfer/internal/words"
)

const (
	// noneFree says that a command was not sent.
	noneFree = "no connection of the client's pool was free in time"
	// maxForeignBytes bounds what is quoted of the driver and of the network.
	maxForeignBytes = 120
	// maxServersTold is how many addresses are named of a deployment that is away.
	maxServersTold = 3
)

// ServerTextOf returns an error of the server or the driver in words that can be passed
// on: the server's code and its name in place of its message, which echoes commands, keys
// and documents.
// What comes from the network keeps its addresses.
func ServerTextOf(err error) string {
	var (
		already   *ServerError
		statement StatementError
		concern   ConcernError
		silent    silence
	)
	switch {
	case err == nil:
		return "no cause is known"
	case errors.As(err, &already):
		return already.Error()
	case errors.As(err, &statement):
		return statement.Error()
	case errors.As(err, &concern):
		return concern.Error()
	case errors.As(err, &silent):
		return silent.Error()
	}
	if text, answered := answerText(err); answered {
		return text
	}
	return driverText(err)
}

// answerText returns what the server has answered, and false where it has not.
func answerText(err error) (string, bool) {
	var (
		write mongo.WriteException
		inner driver.Error
	)
	switch code, name := codeOf(err); {
	case errors.As(err, &write) && len(write.WriteErrors) > 0:
		first := write.WriteErrors[0]
		return refusalText(first.Code, first.Raw), true
	case code != 0:
		return serverText(code, name), true
	case errors.As(err, &inner) && inner.Code != 0: // of the handshake
		return serverText(int(inner.Code), nameOr(inner.Name, int(inner.Code))), true
	case errors.As(err, &inner) && len(inner.Raw) > 0:
		return serverText(0, ""), true
	}
	return "", false
}

// driverText says what kept the driver from getting an answer.
func driverText(err error) string {
	var (
		notSelected  topology.ServerSelectionError
		noConnection topology.WaitQueueTimeoutError
		network      *net.OpError
		connection   topology.ConnectionError
		undecoded    *bson.DecodeError
		unencoded    mongo.MarshalError
	)
	switch {
	case errors.As(err, &notSelected):
		return "server selection error: " + awayText(notSelected.Desc)
	case errors.As(err, &noConnection):
		return noneFree
	case errors.As(err, &network):
		return words.Short("connection error: "+network.Error(), maxForeignBytes)
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	case errors.Is(err, context.Canceled):
		return "stopped before it was answered"
	case errors.As(err, &connection):
		return words.Short(connection.Error(), maxForeignBytes)
	case errors.As(err, &undecoded):
		return "the answer has an unexpected value at " + words.Quote(strings.Join(undecoded.Keys(), "."))
	case errors.As(err, &unencoded):
		return "a value can't be encoded"
	}
	return words.Short(err.Error(), maxForeignBytes)
}

// awayText says which servers are away, and why one of them is.
func awayText(seen description.Topology) string {
	var names []string
	why := ""
	for i, server := range seen.Servers {
		if i < maxServersTold {
			names = append(names, words.Clip(string(server.Addr)))
		}
		if server.LastError != nil && why == "" {
			why = ": " + lastText(server.LastError)
		}
	}
	if len(seen.Servers) > maxServersTold {
		names = append(names, fmt.Sprintf("%d more", len(seen.Servers)-maxServersTold))
	}
	switch {
	case len(names) == 0 && seen.SetName != "": // the driver forgets servers of another set, or of none
		return "no server is a member of the replica set " + words.Quote(seen.SetName) + ": check replicaSet in the connection string"
	case len(names) == 0:
		return "no server is known"
	}
	return "no fit server among " + strings.Join(names, ", ") + why
}

// lastText returns the latest error of one server.
func lastText(err error) string {
	text, answered := answerText(err)
	if !answered {
		text = driverText(err)
	}
	return words.Short(text, maxForeignBytes)
}
