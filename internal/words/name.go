// Package words defines how names and times appear in texts: IDs in error messages, and
// the keys of log records.
package words

import (
	"strconv"
	"unicode/utf8"
)

const (
	// maxNameBytes is the largest length of a name in a text.
	// IDs have up to 255 bytes of any character; a caller who needs all of one finds it
	// in a field.
	maxNameBytes = 64
	// tailBytes is how much of the end of a longer name is kept, since similar IDs often
	// differ there.
	tailBytes = 20
	ellipsis  = "…"
)

// Quote returns a name in quotes for a text: in valid UTF-8, with unprintable characters
// escaped, and in at most 64 bytes.
// The middle of a longer name is left out.
func Quote(name string) string {
	quoted := quote(name)
	if len(quoted) <= maxNameBytes {
		return quoted
	}
	tail := quotedTail(name, tailBytes)
	return quotedHead(name, maxNameBytes-len(tail)-len(ellipsis)-1) + ellipsis + tail
}

// Whole returns all of a name in quotes, with unprintable characters escaped.
// It is for texts out of which somebody copies it.
func Whole(name string) string { return quote(name) }

// quotedHead returns as many characters of the beginning as fit, with an opening quote.
func quotedHead(name string, most int) string {
	end := 0
	for end < len(name) {
		_, size := utf8.DecodeRuneInString(name[end:])
		if len(quote(name[:end+size]))-1 > most {
			break
		}
		end += size
	}
	quoted := quote(name[:end])
	return quoted[:len(quoted)-1]
}

// quotedTail returns as many characters of the end as fit, with a closing quote.
func quotedTail(name string, most int) string {
	begin := len(name)
	for begin > 0 {
		_, size := utf8.DecodeLastRuneInString(name[:begin])
		if len(quote(name[begin-size:]))-1 > most {
			break
		}
		begin -= size
	}
	return quote(name[begin:])[1:]
}

func quote(name string) string { return strconv.Quote(name) }

// Clip shortens a name or a text as [Quote] does, without quotes.
// It is for logs, whose handlers quote, and for texts that come from elsewhere.
func Clip(name string) string { return Short(name, maxNameBytes) }

// Short is Clip for another number of bytes, at least 30.
func Short(text string, most int) string {
	if len(text) <= most && utf8.ValidString(text) {
		return text
	}
	head, tail := text, ""
	if len(text) > most {
		begin := len(text) - tailBytes
		for begin < len(text) && !utf8.RuneStart(text[begin]) {
			begin++
		}
		end := most - len(ellipsis) - (len(text) - begin)
		for end > 0 && !utf8.RuneStart(text[end]) {
			end--
		}
		head, tail = text[:end]+ellipsis, text[begin:]
	}
	return valid(head + tail)
}

// valid replaces each byte that is not UTF-8 by a question mark, so that the text gets no
// longer.
func valid(text string) string {
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		if r == utf8.RuneError && size == 1 {
			out = append(out, '?')
		} else {
			out = append(out, text[:size]...)
		}
		text = text[size:]
	}
	return string(out)
}
