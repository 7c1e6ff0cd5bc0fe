package main

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
)

// keyHeader is the header field of the IETF's draft "The Idempotency-Key HTTP Header
// Field", draft-ietf-httpapi-idempotency-key-header.
const keyHeader = "Idempotency-Key"

// transferID returns the ID of the transfer that a request asks for.
//
// It is the request's key, so the library does what the draft asks of a server.
// The same key with the same payload has the same outcome, a refusal included, and with
// another payload it is refused.
// Where the draft lets a server refuse a request whose first try is still under way
// (409), this one waits for the outcome and answers with it.
// A key is kept for as long as its transfer: here for good.
func (h *handler) transferID(r *http.Request) (string, error) {
	values := r.Header.Values(keyHeader)
	if len(values) == 0 {
		return "", failure(kindMissingKey, errors.New(
			"choose a key for this transfer, and repeat it whenever you ask for the same transfer again"))
	}
	if len(values) > 1 {
		return "", failure(kindMalformedKey, errors.New("the header is there more than once"))
	}
	key, err := parseString(values[0])
	if err == nil && (key == "." || key == "..") {
		err = errors.New("the key can't be a part of a path")
	}
	if err != nil {
		return "", failure(kindMalformedKey, err)
	}
	return h.idOf(r, key)
}

// pathID returns the ID of the transfer that the path of a request names.
func (h *handler) pathID(r *http.Request) (string, error) { return h.idOf(r, r.PathValue("id")) }

// idOf returns the ID of a client's transfer.
//
// Clients choose their keys by themselves, and two of them may choose the same one.
// One would then be told of the other's transfer, and its own would not happen.
// So the client's name comes before the key.
// No name has a colon when it is encoded, so the first colon ends it, and no other
// pair of a name and a key gives the same ID.
// A client sees only keys, and reaches no transfer of another client.
//
// The name must come from whoever authenticates the client, never from the client itself.
func (h *handler) idOf(r *http.Request, key string) (string, error) {
	if h.clientHeader == "" {
		return key, nil
	}
	name := r.Header.Get(h.clientHeader)
	if name == "" {
		return "", failure(kindUnknownClient, errors.New("the request does not say which client it is from"))
	}
	return url.QueryEscape(name) + ":" + key, nil
}

// keyOf returns the key of a transfer with this ID.
func (h *handler) keyOf(id string) string {
	if h.clientHeader == "" {
		return id
	}
	_, key, _ := strings.Cut(id, ":")
	return key
}

// parseString reads a header field that is a String of structured fields, as the draft
// wants it: RFC 8941, sections 3.3.3 and 4.2.5.
// It is printable ASCII in double quotes, with a backslash before each double quote and
// each backslash.
func parseString(field string) (string, error) {
	field, ok := strings.CutPrefix(strings.Trim(field, " "), `"`)
	if !ok {
		return "", errors.New(`the key is a text in double quotes, as in Idempotency-Key: "order-17"`)
	}
	var key strings.Builder
	for i := 0; i < len(field); i++ {
		char := field[i]
		switch {
		case char < ' ' || char > '~':
			return "", errors.New("the key has other characters than printable ASCII")
		case char == '"' && i < len(field)-1:
			return "", errors.New("something follows the key")
		case char == '"' && key.Len() == 0:
			return "", errors.New("the key is empty")
		case char == '"':
			return key.String(), nil
		case char == '\\':
			if i++; i == len(field) || field[i] != '"' && field[i] != '\\' {
				return "", errors.New("a backslash in the key has neither a double quote nor a backslash behind it")
			}
			char = field[i]
		}
		key.WriteByte(char)
	}
	return "", errors.New("the key has no double quote at its end")
}
