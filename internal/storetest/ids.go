package storetest

import "strings"

// AwkwardIDs are IDs with everything that means something to the server, and how their
// markers are named.
func AwkwardIDs() map[string]string {
	return map[string]string{
		"order-17":                "order-17",
		"a.b.c":                   "a%2Eb%2Ec",
		".":                       "%2E",
		"..":                      "%2E%2E",
		"$":                       "%24",
		"$set":                    "%24set",
		"$[]":                     "%24[]",
		"$[x].y":                  "%24[x]%2Ey",
		"a$b":                     "a%24b",
		"%":                       "%25",
		"%2E":                     "%252E",
		"%25":                     "%2525",
		"\x00":                    "%00",
		"a\x00b":                  "a%00b",
		"0":                       "%30",
		"7":                       "%37",
		"17":                      "%317",
		"00":                      "%300",
		"1234567890":              "%31234567890",
		"-1":                      "-1",
		"1a":                      "1a",
		"a1":                      "a1",
		"١٢":                      "١٢", // digits, but not the server's
		" ":                       " ",
		"\n\t\x7f\x01":            "\n\t\x7f\x01",
		"Überweisung 💶":           "Überweisung 💶",
		"e\u0301":                 "e\u0301",
		"\u00e9":                  "\u00e9",
		"a/b":                     "a/b",
		"a+b":                     "a+b", // a space, to those who read it as a query
		"a b":                     "a b",
		"_id":                     "_id",
		"__proto__":               "__proto__",
		"\"quoted\" and 'single'": "\"quoted\" and 'single'",
		strings.Repeat("$", 255):  strings.Repeat("%24", 255),
		strings.Repeat("9", 255):  "%39" + strings.Repeat("9", 254),
		strings.Repeat("é", 127):  strings.Repeat("é", 127),
	}
}
