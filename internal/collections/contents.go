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
