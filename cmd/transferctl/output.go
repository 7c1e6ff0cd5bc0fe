package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
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

// note tells a person something beside the answer.
func (p *program) note(format string, args ...any) {
	if !p.flags.json {
		_, _ = fmt.Fprintln(p.err, "transferctl:", clean(fmt.Sprintf(format, args...)))
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
	var line strings.Builder
	for _, r := range strings.TrimSuffix(text.String(), "\n") {
		switch {
		case unicode.IsPrint(r):
			line.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&line, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&line, `\u%04x`, r)
		}
	}
	_, err := fmt.Fprintln(w, line.String())
	return err
}

// clean returns a text that a terminal shows and does not obey: whatever is not
// printable, and whatever turns the direction of writing, is escaped. So is a backslash
// before it, so that nothing looks as if it had been escaped.
func clean(text string) string {
	if !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) {
		return text
	}
	var shown strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case size == 1 && r == unicode.ReplacementChar:
			fmt.Fprintf(&shown, `\x%02x`, text[0])
		case r == '\\':
			shown.WriteString(`\\`)
		case unicode.IsPrint(r):
			shown.WriteRune(r)
		case r > 0xffff:
			fmt.Fprintf(&shown, `\U%08x`, r)
		default:
			fmt.Fprintf(&shown, `\u%04x`, r)
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

// page is a text for people. What it gets is cleaned.
type page struct {
	out io.Writer
	err error
}

// line writes a line.
func (w *page) line(format string, args ...any) {
	if w.err == nil {
		_, w.err = fmt.Fprintln(w.out, clean(fmt.Sprintf(format, args...)))
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
			row[i] = clean(row[i])
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
