package storetest

import "go.mongodb.org/mongo-driver/v2/bson"

// Garbled returns what another program may have made of a map of markers with the given
// one, by a description.
func Garbled(key string, marker any) map[string]any {
	markers := bson.M{key: marker}
	return map[string]any{
		"the map in a list":          bson.A{markers},
		"the map in a list of lists": bson.A{bson.A{markers}},
		"the map among others":       bson.A{bson.M{}, markers, "x"},
		"a list":                     bson.A{},
		"a list of an empty map":     bson.A{bson.M{}},
		"a list of null":             bson.A{nil},
		"text":                       "{}",
		"a number":                   int64(0),
		"true":                       true,
	}
}
