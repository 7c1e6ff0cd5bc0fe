package wire

import (
	"fmt"
	"strings"
)

// codeName returns the server's name for a code, "" for one that is not known here.
// The errors of single writes come without their names.
func codeName(code int) string {
	for _, known := range []struct {
		code int
		name string
	}{
		{CodeBadValue, "BadValue"}, {6, "HostUnreachable"}, {7, "HostNotFound"}, {9, "FailedToParse"},
		{CodeUnauthorized, "Unauthorized"}, {14, "TypeMismatch"}, {CodeOverflow, "Overflow"}, {18, "AuthenticationFailed"},
		{20, "IllegalOperation"}, {codeInvalidBSON, "InvalidBSON"}, {26, "NamespaceNotFound"}, {codePathNotViable, "PathNotViable"},
		{40, "ConflictingUpdateOperators"}, {CodeNamespaceExists, "NamespaceExists"}, {CodeMaxTimeExpired, "MaxTimeMSExpired"},
		{52, "DollarPrefixedFieldName"}, {56, "EmptyFieldName"}, {57, "DottedFieldName"}, {59, "CommandNotFound"},
		{64, "WriteConcernTimeout"}, {66, "ImmutableField"}, {79, "UnknownReplWriteConcern"}, {85, "IndexOptionsConflict"},
		{86, "IndexKeySpecsConflict"}, {89, "NetworkTimeout"}, {91, "ShutdownInProgress"}, {100, "UnsatisfiableWriteConcern"},
		{112, "WriteConflict"}, {codeValidationFailure, "DocumentValidationFailure"}, {133, "FailedToSatisfyReadPreference"},
		{171, "CannotIndexParallelArrays"}, {189, "PrimarySteppedDown"}, {201, "CannotBuildIndexKeys"}, {211, "KeyNotFound"},
		{239, "SnapshotTooOld"}, {codeConversionFailure, "ConversionFailure"}, {246, "SnapshotUnavailable"},
		{262, "ExceededTimeLimit"}, {314, "ObjectIsBusy"}, {9001, "SocketException"}, {10107, "NotWritablePrimary"},
		{10334, "BSONObjectTooLarge"}, {CodeDuplicateKey, "DuplicateKey"}, {11001, "DuplicateKey"}, {12582, "DuplicateKey"},
		{11600, "InterruptedAtShutdown"}, {11601, "Interrupted"}, {11602, "InterruptedDueToReplStateChange"},
		{13388, "StaleConfig"}, {13435, "NotPrimaryNoSecondaryOk"}, {13436, "NotPrimaryOrSecondary"},
		{13026, "NoGeoPoint"}, {13027, "GeoPointOutOfBounds"}, {13068, "NoGeoPoint"}, {16746, "AmbiguousFieldName"},
		{16755, "NoGeometry"}, {16756, "NoGeometry"}, {16766, "CannotHashArray"}, {16804, "NoGeoPoint"},
		{17261, "TextLanguageNoString"}, {17262, "TextLanguageUnknown"},
		{17419, "DocumentTooLarge"}, {17420, "DocumentTooLarge"},
	} {
		if known.code == code {
			return known.name
		}
	}
	return ""
}

// nameOr returns the name that the server gave to a code. What does not look like one of
// its names is no name: it may be anything.
func nameOr(given string, code int) string {
	letters := func(r rune) bool { return r < '0' || r > 'z' || r > '9' && r < 'A' || r > 'Z' && r < 'a' }
	if given == "" || len(given) > 60 || strings.ContainsFunc(given, letters) {
		return codeName(code)
	}
	return given
}

// serverText returns the text of a code of the server.
func serverText(code int, name string) string {
	switch {
	case code == 0:
		return "the server refuses, and gives no code"
	case name == "":
		return fmt.Sprintf("server error %d", code)
	}
	return fmt.Sprintf("server error %d %s", code, name)
}
