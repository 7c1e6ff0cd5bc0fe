package document

// Fields are the names of the fields of an account that the protocol reads and writes.
type Fields struct {
	// Balance is the field of an account's balance.
	Balance string
	// Pending is that of the map of markers, and Fence that of what a prepare has to
	// name. Participants that are not accounts have these two alone.
	Pending, Fence string
	// Floor is the field of the least balance, Currency that of the currency, Closed that
	// of the flag of a closed account, and Frozen that of a frozen one.
	Floor, Currency, Closed, Frozen string
}
