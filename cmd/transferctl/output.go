package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

// answer writes an answer: as one line of JSON for programs, or as a text for people.
func (p *program) answer(document any, text func(w *page)) error {
	if p.flags.json {
		return writeJSON(p.out, document)
	}
	w := &page{out: p.out}
	text(w)
	return w.err
}

// note writes something for a person, beside the answer.
func (p *program) note(format string, args ...any) {
	if !p.flags.json {
		_, _ = fmt.Fprintln(p.err, "transferctl:", printable(fmt.Sprintf(format, args...)))
	}
}

func (p *program) printError(e errorView) { _ = writeJSON(p.err, e) }

// writeJSON writes a document in one line. Characters that a terminal might obey are
// escaped, those included that JSON allows as they are.
func writeJSON(w io.Writer, document any) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(document); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, jsonText(strings.TrimSuffix(text.String(), "\n")))
	return err
}

// jsonText returns JSON in which all characters are escaped that a terminal might obey.
func jsonText(text string) string {
	var shown strings.Builder
	for _, r := range text {
		switch {
		case unicode.IsPrint(r):
			shown.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&shown, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&shown, `\u%04x`, r)
		}
	}
	return shown.String()
}

// clean returns a name as a terminal shows it and does not obey it, in the notation of
// %q: whatever is not printable is escaped, and so is each backslash, so that nothing
// looks as if it had been escaped.
func clean(name string) string {
	quoted := strconv.Quote(name)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// printable returns a text whose names are escaped already, and in which nothing is left
// that a terminal might obey.
func printable(text string) string {
	var shown strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		if unicode.IsPrint(r) && r != unicode.ReplacementChar {
			shown.WriteRune(r)
		} else {
			shown.WriteString(clean(text[:size]))
		}
		text = text[size:]
	}
	return shown.String()
}

// count returns a number with its noun.
func count[N int | int64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// page is a text for people. Names in what it gets are cleaned before, or quoted.
type page struct {
	out io.Writer
	err error
}

// line writes a line.
func (w *page) line(format string, args ...any) {
	if w.err == nil {
		_, w.err = fmt.Fprintln(w.out, printable(fmt.Sprintf(format, args...)))
	}
}

// lines writes a text of several lines.
func (w *page) lines(text string) {
	for line := range strings.SplitSeq(text, "\n") {
		w.line("%s", line)
	}
}

// table writes rows under a header, each column as wide as it has to be.
func (w *page) table(header []string, rows [][]string) {
	widths := make([]int, len(header))
	all := append([][]string{header}, rows...)
	for _, row := range all {
		for i := range row {
			row[i] = printable(row[i])
			widths[i] = max(widths[i], ansi.StringWidth(row[i]))
		}
	}
	for _, row := range all {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell)
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", widths[i]-ansi.StringWidth(cell)+2))
			}
		}
		if w.err == nil {
			_, w.err = fmt.Fprintln(w.out, strings.TrimRight(line.String(), " "))
		}
	}
}
