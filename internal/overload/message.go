package overload

import (
	"io"

	"github.com/mongotransfer/transfer/internal/mongotest/opmsg"
)

// message is one message of a client, as it travels.
type message opmsg.Message

// readMessage reads one message.
func readMessage(from io.Reader) (message, error) {
	m, err := opmsg.Read(from)
	return message(m), err
}

// command returns a command and its collection, such as "update accounts".
// It returns "" if the message is not a command.
func (m message) command() string {
	body, err := opmsg.Message(m).Body()
	if err != nil {
		return ""
	}
	return opmsg.Command(body)
}
