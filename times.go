package transfer

import "time"

// checkTime refuses a time that the server can't store, or that another program couldn't
// read: it would be taken for another one. The zero time is none.
func checkTime(what string, t time.Time) error {
	if year := t.UTC().Year(); year < 0 || year > maxYear {
		return invalid("%s lies beyond the years 0 to %d", what, maxYear)
	}
	return nil
}

// checkTimes refuses bounds that checkTime refuses. Bounds that nothing lies between are
// answered with nothing.
func checkTimes(after, before time.Time) error {
	if err := checkTime("After", after); err != nil {
		return err
	}
	return checkTime("Before", before)
}
