package transferhttp_test

import (
	"os"
	"testing"

	"github.com/mongotransfer/transfer/internal/mongotest"
)

func TestMain(m *testing.M) { os.Exit(mongotest.Main(m)) }
