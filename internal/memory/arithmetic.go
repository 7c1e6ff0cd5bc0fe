package memory

import (
	"math"
	"math/big"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// sum returns the sum of two numbers, or their difference, in the type that the server
// gives it: the widest of the two, and a long where an int doesn't hold it.
func sum(a, b any, subtract bool) (any, error) {
	if rankOf(a) != rankNumber || rankOf(b) != rankNumber {
		return nil, refuse(codeTypeMismatch, "the sum of %s and %s", typeOf(a), typeOf(b))
	}
	has := func(kind string) bool { return typeOf(a) == kind || typeOf(b) == kind }
	if has("decimal") && has("double") {
		a, b = asDecimal(a), asDecimal(b)
	}
	p, pKind := exact(a)
	q, qKind := exact(b)
	if pKind != 0 || qKind != 0 {
		return nil, refuse(codeBadValue, "the server in memory adds no infinite numbers")
	}
	if subtract {
		q = new(big.Rat).Neg(q)
	}
	total := new(big.Rat).Add(p, q)
	switch {
	case has("decimal"):
		return decimalSum(a, b, total)
	case has("double"):
		rounded, _ := total.Float64()
		return rounded, nil
	}
	return wholeSum(a, b, total.Num())
}

// maxPower is up to which exponent a power is counted as a whole number: none fits in a
// long beyond it.
const maxPower = 64

// combined multiplies two numbers, or raises one to the power of the other. The result is
// a double where one of them is, or where a long doesn't hold it.
func combined(operator string, operands bson.A) (any, error) {
	if len(operands) != 2 {
		return nil, refuse(codeOperands, "%s needs two numbers here, and not %d", operator, len(operands))
	}
	a, b := operands[0], operands[1]
	switch {
	case rankOf(a) == rankNull || rankOf(b) == rankNull:
		return nil, nil
	case rankOf(a) != rankNumber || rankOf(b) != rankNumber, typeOf(a) == "decimal" || typeOf(b) == "decimal":
		return nil, refuse(codeNotSupported, "the server in memory doesn't know %s of %s and %s", operator, typeOf(a), typeOf(b))
	case operator == "$pow" && asDouble(a) < 2:
		return nil, refuse(codeNotSupported, "the server in memory doesn't know $pow of %v", a)
	case typeOf(a) != "double" && typeOf(b) != "double":
		p, _ := exact(a)
		q, _ := exact(b)
		if result := combinedWhole(operator, p.Num(), q.Num()); result != nil {
			if whole, err := wholeSum(a, b, result); err == nil {
				return whole, nil
			}
		}
	}
	if operator == "$pow" {
		return math.Pow(asDouble(a), asDouble(b)), nil
	}
	return asDouble(a) * asDouble(b), nil
}

// combinedWhole returns nil for what is no whole number, or too large for one.
func combinedWhole(operator string, a, b *big.Int) *big.Int {
	switch {
	case operator == "$multiply":
		return new(big.Int).Mul(a, b)
	case b.Sign() < 0 || b.Cmp(big.NewInt(maxPower)) > 0:
		return nil
	}
	return new(big.Int).Exp(a, b, nil)
}

func asDouble(v any) float64 {
	if double, is := v.(float64); is {
		return double
	}
	number, _ := exact(v)
	double, _ := number.Float64()
	return double
}

// asDecimal returns a double as a decimal, with the 15 digits that the server gives it.
func asDecimal(v any) any {
	double, is := v.(float64)
	if !is {
		return v
	}
	text := "0"
	if double != 0 {
		text = strconv.FormatFloat(double, 'e', 14, 64)
	}
	decimal, err := bson.ParseDecimal128(text)
	if err != nil {
		return v
	}
	return decimal
}

// wholeSum returns a sum of whole numbers.
func wholeSum(a, b any, total *big.Int) (any, error) {
	if !total.IsInt64() {
		return nil, refuse(codeBadValue, "the sum is no 64-bit integer")
	}
	_, aInt := a.(int32)
	_, bInt := b.(int32)
	n := total.Int64()
	if aInt && bInt && n >= math.MinInt32 && n <= math.MaxInt32 {
		return int32(n), nil
	}
	return n, nil
}

// decimalSum returns a sum with as many digits behind the point as the operand that has
// more of them.
func decimalSum(a, b any, total *big.Rat) (any, error) {
	exponent := min(exponentOf(a), exponentOf(b))
	scaled := new(big.Rat).Mul(total, new(big.Rat).SetInt(power(-exponent)))
	if exponent > 0 {
		scaled = new(big.Rat).Quo(total, new(big.Rat).SetInt(power(exponent)))
	}
	result, fits := bson.ParseDecimal128FromBigInt(scaled.Num(), exponent)
	if !scaled.IsInt() || !fits {
		return nil, refuse(codeBadValue, "the server in memory rounds no decimals")
	}
	return result, nil
}

func exponentOf(v any) int {
	d, is := v.(bson.Decimal128)
	if !is {
		return 0
	}
	_, exponent, _ := d.BigInt() // what has none was refused before
	return exponent
}

func power(n int) *big.Int {
	return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(n, 0))), nil)
}

// maxPlaces is how many digits behind the point the server rounds to at most.
const maxPlaces = 99

// round rounds to some digits behind the point. It does so where nothing is lost, or says
// that something is by another value: nobody asks for more.
func round(operands bson.A) (any, error) {
	if len(operands) != 2 {
		return nil, refuse(codeOperands, "$round needs a number and the digits behind the point")
	}
	places, is := exact(operands[1])
	if is != 0 || !places.IsInt() || places.Sign() < 0 || places.Cmp(big.NewRat(maxPlaces, 1)) > 0 {
		return nil, refuse(codeOperands, "$round to %v digits behind the point", operands[1])
	}
	if value, kind := exact(operands[0]); kind == 0 {
		scale := new(big.Rat).SetInt(power(int(places.Num().Int64())))
		if new(big.Rat).Mul(value, scale).IsInt() {
			return operands[0], nil
		}
		text := value.FloatString(int(places.Num().Int64()))
		return bson.ParseDecimal128(text)
	}
	return operands[0], nil
}
