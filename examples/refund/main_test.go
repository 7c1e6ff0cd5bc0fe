package main

// The story goes as it should, and this is what it tells.
func Example() {
	main()
	// Output:
	// Ann buys a lamp for 60, and the shop spends 50 of it on another lamp.
	// Ann brings the lamp back, and the shop tries to refund the payment.
	//   refund-1: transfer "refund-1" refused: account "shop": insufficient funds (nothing moved; another try needs a new ID)
	// Ben buys a lamp for 60, and the shop tries again. What has failed stays failed: it takes another ID.
	//   refund-1: transfer "refund-1" refused: account "shop": insufficient funds (nothing moved; another try needs a new ID)
	//   refund-2: Success, it reverses payment-1
	// A colleague, who has not heard of that, refunds the payment as well.
	//   refund-3: transfer "payment-1": already reversed, by "refund-2"
	// The balances:
	//   ann      100
	//   ben       40
	//   shop      10
	//   supplier  50
}
