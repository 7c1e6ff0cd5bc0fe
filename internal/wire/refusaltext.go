package wire

import (
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/words"
)

const (
	// maxRules is how many rules of a validator are named, and maxRuleDepth how deep they
	// may lie.
	maxRules     = 3
	maxRuleDepth = 12
	// maxKeys is how many fields of an index are named.
	maxKeys = 4
)

// refusalText says why the server has refused one write: the code, and whose rule it was.
// It names fields, indexes and operators, and no value: the server's own text has the key
// that is taken, and its details have the document and the value that a validator
// refuses.
func refusalText(code int, report bson.Raw) string {
	text := serverText(code, codeName(code))
	if isIndexKey(code) {
		return text + ": an index of the collection can't have the document"
	}
	switch code {
	case codeConversionFailure:
		if message, _ := report.Lookup("errmsg").StringValueOK(); strings.Contains(message, NoRoom) {
			return text + ": the balance would have more digits than can be stored"
		}
	case CodeDuplicateKey, 11001, 12582:
		if rule := indexText(report); rule != "" {
			return text + ": taken already in " + rule
		}
	case codeValidationFailure:
		details := report.Lookup("errInfo", "details")
		if rules := rulesOf(details, "", maxRuleDepth); len(rules) > 0 {
			return text + ": validator: " + strings.Join(rules[:min(len(rules), maxRules)], ", ")
		}
	}
	return text
}

// indexText names the unique index in which a key is taken, by its name and its fields.
func indexText(report bson.Raw) string {
	var fields []string
	keyPattern, _ := report.Lookup("keyPattern").DocumentOK()
	for i, element := range Elements(keyPattern) {
		if i == maxKeys {
			fields = append(fields, "…")
			break
		}
		fields = append(fields, words.Clip(element.Key()))
	}
	name := indexName(report)
	switch {
	case name == "" && len(fields) == 0:
		return ""
	case name == "":
		return "the unique index on " + strings.Join(fields, ", ")
	case len(fields) == 0:
		return "the index " + words.Quote(name)
	}
	return fmt.Sprintf("the index %s on %s", words.Quote(name), strings.Join(fields, ", "))
}

// indexName returns the name of the index out of the text of a duplicate key, where it
// stands before the value that is taken.
func indexName(report bson.Raw) string {
	message, _ := report.Lookup("errmsg").StringValueOK()
	_, rest, found := strings.Cut(message, " index: ")
	name, _, bounded := strings.Cut(rest, " dup key")
	if !found || !bounded {
		return ""
	}
	name, _, _ = strings.Cut(name, " collation:")
	return name
}

// rulesOf returns the rules of a validator that a document breaks, out of the server's
// details: paths that the validator names, and operators.
func rulesOf(details bson.RawValue, path string, depth int) []string {
	rule, is := details.DocumentOK()
	if !is || depth == 0 {
		return nil
	}
	if name, named := rule.Lookup("propertyName").StringValueOK(); named {
		path = under(path, name)
	}
	operator, _ := rule.Lookup("operatorName").StringValueOK()
	var rules []string
	if operator != "patternProperties" { // the names below it are the document's
		rules = rulesBelow(rule, path, depth-1)
	}
	for _, missing := range texts(rule.Lookup("missingProperties")) {
		rules = append(rules, under(path, missing)+" is missing")
	}
	if path == "" { // deeper down they may be the user's values
		for _, more := range texts(rule.Lookup("additionalProperties")) {
			rules = append(rules, words.Clip(more)+" is not allowed")
		}
	}
	if len(rules) > 0 || operator == "" {
		return rules
	}
	at := path
	if operated := operand(operator, rule.Lookup("specifiedAs")); operated != "" {
		at = under(path, operated)
	}
	return []string{strings.TrimSpace(at + " " + words.Clip(operator))}
}

// rulesBelow returns the rules that another rule consists of.
func rulesBelow(rule bson.Raw, path string, depth int) []string {
	var rules []string
	for _, part := range []string{"schemaRulesNotSatisfied", "clausesNotSatisfied", "clausesSatisfied", "propertiesNotSatisfied", "details"} {
		value := rule.Lookup(part)
		parts := []bson.RawValue{value}
		if list, several := value.ArrayOK(); several {
			parts, _ = list.Values() // none where it is damaged
		}
		for _, one := range parts {
			if rules = append(rules, rulesOf(one, path, depth)...); len(rules) >= maxRules {
				return rules
			}
		}
	}
	return rules
}

// operand returns the path that an operator of a query is for, which is written as the
// key of its condition.
func operand(operator string, specified bson.RawValue) string {
	condition, _ := specified.DocumentOK()
	fields := Elements(condition)
	if !strings.HasPrefix(operator, "$") || len(fields) != 1 || strings.HasPrefix(fields[0].Key(), "$") {
		return ""
	}
	return fields[0].Key()
}

// under returns a path.
func under(path, name string) string {
	if path == "" {
		return words.Clip(name)
	}
	return words.Clip(path + "." + name)
}

// texts returns the texts of a list.
func texts(list bson.RawValue) []string {
	array, _ := list.ArrayOK()
	values, err := array.Values()
	if array == nil || err != nil {
		return nil
	}
	var found []string
	for _, value := range values {
		if text, is := value.StringValueOK(); is {
			found = append(found, text)
		}
	}
	return found
}
