package main

import (
	"fmt"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// redraw is the least time between two redraws of the bar.
const redraw = 50 * time.Millisecond

// screen prints the story.
// It uses colours and the moving bar on terminals only.
type screen struct {
	file     *os.File
	terminal bool
	colour   bool
	chapters int
}

func newScreen(file *os.File) *screen {
	terminal := term.IsTerminal(int(file.Fd()))
	return &screen{file: file, terminal: terminal, colour: terminal && os.Getenv("NO_COLOR") == ""}
}

// heading prints the heading of the next chapter.
func (s *screen) heading(format string, args ...any) {
	s.chapters++
	title := fmt.Sprintf("%d. %s", s.chapters, fmt.Sprintf(format, args...))
	_, _ = fmt.Fprintf(s.file, "\n%s\n", s.paint("1", title)) // Bold.
}

// say prints a line.
func (s *screen) say(format string, args ...any) {
	_, _ = fmt.Fprintf(s.file, "   "+format+"\n", args...)
}

// good returns a text in green.
func (s *screen) good(text string) string { return s.paint("32", text) }

// paint returns a text with an escape code for its colour, if the screen shows colours.
func (s *screen) paint(code, text string) string {
	if !s.colour {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// bar is a progress bar.
type bar struct{ shown *progressbar.ProgressBar }

// progress returns a bar for n steps.
// It is visible only if the screen is a terminal.
func (s *screen) progress(n int) bar {
	return bar{progressbar.NewOptions(n,
		progressbar.OptionSetWriter(s.file),
		progressbar.OptionSetVisibility(s.terminal),
		progressbar.OptionSetDescription("  "),
		progressbar.OptionSetWidth(40),
		progressbar.OptionShowCount(),
		progressbar.OptionSetPredictTime(false),
		progressbar.OptionThrottle(redraw),
		progressbar.OptionClearOnFinish(),
	)}
}

// advance counts one step.
// The story doesn't depend on whether the bar can be drawn.
func (b bar) advance() { _ = b.shown.Add(1) }

// end removes the bar.
func (b bar) end() { _ = b.shown.Finish() }
