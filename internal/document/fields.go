package document

// Fields are the names of the fields of an account that the protocol reads and writes.
type Fields struct {
	Balance, Pending, Fence, Floor, Currency, Closed string
}
