package main

// The story goes as it should, and this is what it tells.
func Example() {
	main()
	// Output:
	// Buyer ann has 10000 cents. She buys a book of dora for 2999 and a chair of emil for 4995.
	//    -7994  ann
	//     2700  dora
	//      798  fees
	//     4496  emil
	// Seller felix leaves the market. A basket with something of his is refused as a whole:
	//   felix: account is closed
	// The balances:
	//     2006  ann
	//     2700  dora
	//     4496  emil
	//        0  felix
	//      798  fees
}
