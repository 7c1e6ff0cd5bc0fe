package main

// The story goes as it should, and this is what it tells.
func Example() {
	main()
	// Output:
	// A guest has 500, and books three rooms.
	// For the first, 300 is held. The guest can't spend it elsewhere, and the hotel hasn't got it yet.
	//   the guest has 500 and can spend 200; the hotel has 0 and expects 300
	// The hotel asks for 340: invalid request: the amount to post must be positive, and no more than is held
	// The hotel asks for 240, which the stay came to. The other 60 go back.
	//   the guest has 260 and can spend 260; the hotel has 240 and expects 0
	// For the second, 100 is held. The booking is cancelled, which voids the hold.
	// The hotel asks for the 100 all the same: transfer "booking-2": cancelled: voided
	//   the guest has 260 and can spend 260; the hotel has 240 and expects 0
	// For the third, 150 is held, and everybody forgets about it.
	// In the end: transfer "booking-3": hold has expired
	//   the guest has 260 and can spend 260; the hotel has 240 and expects 0
}
