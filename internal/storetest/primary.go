package storetest

import (
	"strings"

	"github.com/mongotransfer/transfer/internal/mongotest"
)

// PrimaryModes returns the read preferences of a command that asks the primary.
// On a direct connection, such as one to a container, the driver itself writes
// primaryPreferred for primary.
func PrimaryModes() []string {
	modes := []string{"", "primary"}
	if strings.Contains(mongotest.URI(), "directConnection=true") {
		modes = append(modes, "primaryPreferred")
	}
	return modes
}
