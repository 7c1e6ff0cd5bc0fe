package collections

// Contents says what a collection holds.
// The notes about collections store it, and messages name it.
type Contents string

// What a collection holds.
const (
	OfTransfers Contents = "transfers"
	OfAccounts  Contents = "accounts"
	OfDocuments Contents = "documents" // that effects change
)

// ContentsOf returns what a collection of the catalog holds.
func (c *Catalog) ContentsOf(collection *Collection) Contents {
	switch {
	case collection == c.Originals:
		return OfTransfers
	case collection.Documents:
		return OfDocuments
	}
	return OfAccounts
}

// NoteID is the _id of the note about a collection.
// [NoteCollection] holds it.
const NoteID = "deployment"

// IdentityID is the _id of a collection's identity, which lies beside its note. The two
// are apart because a release from before there were identities refuses a note with a
// field that it does not know.
const IdentityID = "identity"
