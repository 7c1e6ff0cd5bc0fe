package overload

import (
	"os"
	"runtime/debug"
	"testing"

	"github.com/mongotransfer/transfer/internal/mongotest"
)

// The heap in use is bounded, so that GOGC must be the usual one.
func TestMain(m *testing.M) {
	debug.SetGCPercent(100)
	os.Exit(mongotest.Main(m))
}
