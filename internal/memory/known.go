package memory

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// everywhere are the fields that any command may have. None changes what is answered: one
// statement happens at a time, and a majority has stored it by then. A read concern is
// heeded by the reads.
func everywhere() []string {
	return []string{
		"$db", "lsid", "txnNumber", "$clusterTime", "$readPreference", "readConcern", "writeConcern", "maxTimeMS", "comment",
	}
}

// with performs a command that has the named fields and no others: what is not known
// would change what it means.
func (c command) with(perform func() (bson.D, error), names ...string) (bson.D, error) {
	if err := onlyKnown(c.body[0].Key, c.body[1:], append(names, everywhere()...)...); err != nil {
		return nil, err
	}
	return perform()
}

// onlyKnown refuses what has a field that is none of the named ones.
func onlyKnown(what string, given bson.D, names ...string) error {
	for _, e := range given {
		if !slices.Contains(names, e.Key) {
			return refuse(codeNotSupported, "the server in memory doesn't know '%s' of %s", e.Key, what)
		}
	}
	return nil
}

// operandsOf returns the operands of an operator that has them by name, all of these and
// no others.
func operandsOf(operator string, operand any, names ...string) (bson.D, error) {
	given, is := operand.(bson.D)
	if !is {
		return nil, refuse(codeOperands, "%s needs a document", operator)
	}
	for _, name := range names {
		if field(given, name) == any(missing{}) {
			return nil, refuse(codeOperands, "%s needs its '%s' here", operator, name)
		}
	}
	return given, onlyKnown(operator, given, names...)
}
