package chaos

import (
	"io"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/mongotest/opmsg"
)

// message is one message of a client or a server, as it travels.
type message opmsg.Message

// readMessage reads one message.
func readMessage(from io.Reader) (message, error) {
	m, err := opmsg.Read(from)
	return message(m), err
}

func (m message) id() int      { return opmsg.Message(m).ID() }
func (m message) replyTo() int { return opmsg.Message(m).ReplyTo() }

// body returns the document of a message: the command, or the reply.
func (m message) body() (bson.Raw, error) {
	body, err := opmsg.Message(m).Body()
	if err != nil {
		return nil, err
	}
	return body, body.Validate()
}

// kind returns the kind of command that a message is, such as "update accounts".
// It returns "" if the command is not on the run's database.
func (m message) kind() string {
	body, err := m.body()
	if err != nil {
		return ""
	}
	if db, _ := body.Lookup("$db").StringValueOK(); db != database {
		return ""
	}
	name := opmsg.Command(body)
	if collection, named := body.Lookup("collection").StringValueOK(); named && !strings.Contains(name, " ") {
		return name + " " + collection
	}
	return name
}

// door returns the account that a message closes or reopens, or "".
func (m message) door() string {
	if m.kind() != "update accounts" {
		return ""
	}
	body, _ := m.body() // It has a kind, so it has a body.
	for _, change := range []string{"$set", "$unset"} {
		if _, err := body.LookupErr("updates", "0", "u", change, "closed"); err == nil {
			account, _ := body.Lookup("updates", "0", "q", "_id").StringValueOK()
			return account
		}
	}
	return ""
}

// ok reports whether a reply says that the server performed the command.
func (m message) ok() bool {
	body, err := m.body()
	if err != nil {
		return false
	}
	number, isNumber := body.Lookup("ok").AsInt64OK()
	return isNumber && number == 1
}
