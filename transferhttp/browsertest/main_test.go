package browsertest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/mongotransfer/transfer/internal/mongotest"
)

// advice is what to do where there is no browser: tests that silently don't run are worse
// than tests that fail.
const advice = `browsertest: there is no Chromium on the PATH.
On Debian and Ubuntu, as root: make browser
Elsewhere: install Chromium or Chrome, under one of the names chromium-headless-shell, chromium, chromium-browser, google-chrome, chrome`

// browser is the context of the one browser of all tests, each of which has a tab of its
// own.
var browser context.Context //nolint:gochecknoglobals // TestMain makes it, and has no other way to hand it to tests

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	path := browserPath()
	if path == "" {
		fmt.Fprintln(os.Stderr, advice)
		return 1
	}
	options := []chromedp.ExecAllocatorOption{chromedp.ExecPath(path), chromedp.Headless, chromedp.DisableGPU}
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // which Chromium refuses to start with as root
	}
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	defer end()
	ctx, cancel := chromedp.NewContext(allocator)
	defer cancel()
	if err := chromedp.Do(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "browsertest:", path, "doesn't start:", err)
		return 1
	}
	browser = ctx
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil { // they wait for the clock more than for a processor
		fmt.Fprintln(os.Stderr, "browsertest:", err)
		return 1
	}
	return mongotest.Main(m)
}

// browserPath returns where the browser is, or "".
func browserPath() string {
	for _, name := range []string{
		"chromium-headless-shell", "headless_shell", // show no window, and take less time
		"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome",
	} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}
