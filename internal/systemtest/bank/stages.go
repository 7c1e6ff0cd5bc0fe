package bank

// WithoutDoubt returns the stages of a call without looks that are not expected, and
// without what was done again after one: a busy machine answers a command too late, and
// then its effect is looked up.
func WithoutDoubt(want, got []string) (names []string) {
	looked := false
	for _, name := range got {
		n := len(names)
		expected := n < len(want) && name == want[n]
		again := looked && n > 0 && name == names[n-1]
		switch {
		case !expected && name == "look":
			looked = true
		case expected || !again:
			names, looked = append(names, name), false
		}
	}
	return names
}
