package transfer

import "go.mongodb.org/mongo-driver/v2/bson"

// Effect is a change of a document in step with the money: see Request.Effects.
type Effect struct {
	// Documents is the name of a collection that was registered by [WithDocuments].
	Documents string
	// ID is the document's _id.
	ID any
	// Require are top-level fields and the values that they must have when the transfer is prepared. From then on the document is
	// reserved for this transfer.
	Require bson.D
	// Set are top-level fields and the values that they get when the transfer is committed.
	Set bson.D
}
