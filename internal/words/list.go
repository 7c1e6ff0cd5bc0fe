package words

import (
	"slices"
	"strings"
)

// QuoteAll lists names in the order of their quotes, separated by commas.
func QuoteAll(names []string) string {
	list := make([]string, len(names))
	for i, name := range names {
		list[i] = Quote(name)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}
