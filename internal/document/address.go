package document

import (
	"fmt"
)

// Address names a registered ledger, or a collection of documents.
type Address struct {
	// Documents says that effects change what is there: it is no ledger.
	Documents bool
	// Name is the one under which it is registered; "" is the default ledger.
	Name string
}

// String names the address in a text.
func (a Address) String() string {
	if a.Documents {
		return fmt.Sprintf("documents %q", a.Name)
	}
	if a.Name == "" {
		return "the default ledger"
	}
	return fmt.Sprintf("ledger %q", a.Name)
}
