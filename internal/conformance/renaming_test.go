package conformance

import (
	"hash/fnv"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// renaming maps the model's fences to the server's: each side draws its own tokens.
type renaming struct {
	forth, back map[protocol.Fence]protocol.Fence
}

func newRenaming() renaming {
	r := renaming{forth: map[protocol.Fence]protocol.Fence{}, back: map[protocol.Fence]protocol.Fence{}}
	r.learn("", "")
	return r
}

func (r renaming) learn(model, server protocol.Fence) {
	r.forth[model], r.back[server] = server, model
}

// meet treats two fences as the same that appear in the same place, both for the first
// time.
func (r renaming) meet(model, server protocol.Fence) {
	_, known := r.forth[model]
	_, used := r.back[server]
	if !known && !used {
		r.learn(model, server)
	}
}

// toStore returns a fence for the server.
// For one that was never set there it is an unused one, another one for each name.
// Updates that name the same fence are merged.
func (r renaming) toStore(model protocol.Fence) protocol.Fence {
	if server, ok := r.forth[model]; ok {
		return server
	}
	hash := fnv.New128a()
	_, _ = hash.Write([]byte(model)) // it never fails
	return fenceOf(raw(bson.ObjectID(hash.Sum(nil)[:12])))
}

// toModel returns the model's name of a fence, or a text saying that it has none.
func (r renaming) toModel(server protocol.Fence) protocol.Fence {
	if model, ok := r.back[server]; ok {
		return model
	}
	return "unheard of: " + server
}

// fenceOf returns a stored fence as mongostore returns it.
// Null counts as missing.
func fenceOf(stored bson.RawValue) protocol.Fence {
	if stored.Type == 0 || stored.Type == bson.TypeNull {
		return ""
	}
	return protocol.Fence(append([]byte{byte(stored.Type)}, stored.Value...))
}
