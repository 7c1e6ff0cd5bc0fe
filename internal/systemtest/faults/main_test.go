package faults

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/mongotransfer/transfer/internal/mongotest"
)

// sideBySide is how many tests run at once. They wait more than they compute, so there
// are more of them than cores. The flag -parallel says otherwise.
const sideBySide = 8

func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", fmt.Sprint(sideBySide)); err != nil {
		panic(err)
	}
	os.Exit(mongotest.Main(m))
}
