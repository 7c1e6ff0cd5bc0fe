package document

import (
	"fmt"
)

// Address names a registered ledger, or a collection of documents.
type Address struct {
	Documents bool
	Name      string
}

// String tells the address.
func (a Address) String() string {
	if a.Documents {
		return fmt.Sprintf("documents %q", a.Name)
	}
	if a.Name == "" {
		return "the default ledger"
	}
	return fmt.Sprintf("ledger %q", a.Name)
}
