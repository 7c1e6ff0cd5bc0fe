// Package browsertest has the tests of the window in a browser: a headless Chromium,
// which has to be installed.
// On Debian and Ubuntu "make browser" installs it.
package browsertest
