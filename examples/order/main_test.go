package main

// The story goes as it should, and this is what it tells.
func Example() {
	main()
	// Output:
	// Ann has 200. She has ordered a lamp for 60 and a sofa for 900.
	// She pays for the lamp on her phone and on her laptop at once: 1 payment succeeds, 1 is refused.
	//   order-17 is Paid.
	// The next day she pays for the lamp once more.
	//   It is refused: the document is not as required: its field "status" has another value.
	//   order-17 is Paid.
	// She pays for the sofa.
	//   It is refused: insufficient funds.
	//   order-18 is UnPaid.
	// The balances:
	//   ann   140
	//   shop   60
}
