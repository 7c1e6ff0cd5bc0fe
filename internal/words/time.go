package words

import "time"

// Time writes a time for people, as precisely as it is stored.
func Time(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000 UTC") }
