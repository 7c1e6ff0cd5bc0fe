package memory

import "go.mongodb.org/mongo-driver/v2/bson"

// group makes one document of all: {$group: {_id: null, n: {$sum: <expression>}}}. Groups
// by a field are not known here.
func (c command) group(documents []bson.D, stage bson.D) ([]bson.D, error) {
	by := field(stage, "_id")
	if place := rankOf(by); place != rankNumber && place != rankNull || by == any(missing{}) {
		return nil, refuse(codeNotSupported, "the server in memory has a $group of all documents, and no other")
	}
	if len(documents) == 0 {
		return nil, nil
	}
	group := bson.D{{Key: "_id", Value: by}}
	for _, f := range stage {
		if f.Key == "_id" {
			continue
		}
		operators, are := operatorsOf(f.Value)
		if !are || len(operators) != 1 {
			return nil, refuse(codeNotSupported, "the field '%s' of a $group must be an accumulator", f.Key)
		}
		value, err := c.accumulate(documents, operators[0])
		if err != nil {
			return nil, err
		}
		group = append(group, bson.E{Key: f.Key, Value: value})
	}
	return []bson.D{group}, nil
}

// accumulate returns the sum, or the least, of what an expression is for each document.
// What is no number counts for nothing in a sum, nor what is null as the least.
func (c command) accumulate(documents []bson.D, accumulator bson.E) (any, error) {
	var total, least any = int32(0), nil
	for _, document := range documents {
		value, err := evaluate(accumulator.Value, c.scope.with("ROOT", document))
		if err != nil {
			return nil, err
		}
		if rankOf(value) == rankNumber && accumulator.Key == "$sum" {
			if total, err = sum(total, value, false); err != nil {
				return nil, err
			}
		}
		if rankOf(value) != rankNull && (least == nil || compare(value, least) < 0) {
			least = value
		}
	}
	switch accumulator.Key {
	case "$sum":
		return total, nil
	case "$min":
		return least, nil
	}
	return nil, refuse(codeNotSupported, "the server in memory doesn't know the accumulator %s", accumulator.Key)
}
