package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
)

// A key is a String as RFC 8941 has it, and nothing else is a key.
func TestParseString(t *testing.T) {
	t.Parallel()
	for field, want := range map[string]string{
		`"order-17"`:      "order-17",
		`  "order-17"  `:  "order-17",
		`"a b;c=1, d"`:    "a b;c=1, d",
		`"say \"so\" \\"`: `say "so" \`,
		`" "`:             " ",
	} {
		key, err := parseString(field)
		require.NoError(t, err, field)
		assert.Equal(t, want, key)
	}
	for field, why := range map[string]string{
		``:                     "double quotes",
		`order-17`:             "double quotes",
		`:b3JkZXI=:`:           "double quotes",
		`"`:                    "at its end",
		`""`:                   "empty",
		`"order-17`:            "at its end",
		`"order-17\"`:          "at its end",
		`"order-17\`:           "backslash",
		`"order\-17"`:          "backslash",
		`"order-17";a=1`:       "follows",
		`"order-17", "order"`:  "follows",
		`"order"17"`:           "follows",
		"\"order\t17\"":        "ASCII",
		`"café"`:               "ASCII",
		"\"order\x7f\"":        "ASCII",
		"\t" + `"order-17"`:    "double quotes",
		`'order-17'`:           "double quotes",
		`"order-17" "order-1"`: "follows",
	} {
		_, err := parseString(field)
		assert.ErrorContains(t, err, why, field)
	}
}

// What is no key is refused (400) before anything is stored, and so are two keys.
func TestMalformedKeys(t *testing.T) {
	t.Parallel()
	s := newService(t)
	for _, values := range [][]string{{"order-17"}, {`"order-17`}, {""}, {`".."`}, {`"a"`, `"a"`}} {
		r := post(t.Context(), "/transfers", "", pay60)
		r.Header[keyHeader] = values
		assert.Equal(t, "malformedKey", s.send(r).is(http.StatusBadRequest).errorCode(), values)
	}
	assert.Equal(t, "missingKey", s.post("/transfers", "", pay60).is(http.StatusBadRequest).errorCode())
	for _, path := range []string{"order-17", "a"} {
		s.get("/transfers/" + path).is(http.StatusNotFound)
	}
	s.balances(100, 0)
}

// A key with any character of a String names its transfer in each path.
func TestOddKeys(t *testing.T) {
	t.Parallel()
	s := newService(t)
	for _, key := range []string{"a/b", "a%2Fb", "?x=1#y", "a:b", ` say "so" \ `, "a.b$"} {
		r := post(t.Context(), "/transfers", "", `{"from": "alice", "to": "bob", "amount": 1, "holdFor": "1h"}`)
		r.Header.Set(keyHeader, `"`+strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key)+`"`)
		path := s.send(r).is(http.StatusAccepted).Header().Get("Location")
		assert.Equal(t, key, decoded[transferJSON](s.get(path).is(http.StatusOK)).ID)
		s.post(path+"/void", "", "").is(http.StatusOK)
	}
	s.balances(100, 0)
}

// Two clients may choose the same key: each has its own transfer, sees its own, and
// reaches no other.
// No name of a client makes its keys those of another.
func TestClientsDontShareKeys(t *testing.T) {
	t.Parallel()
	s := newService(t)
	h, ok := s.handler.(*handler)
	require.True(t, ok)
	h.clientHeader = "X-Client"
	ask := func(method, client, path, key, body string) reply {
		r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
		if key != "" {
			r.Header.Set(keyHeader, `"`+key+`"`)
		}
		if client != "" {
			r.Header.Set("X-Client", client)
		}
		return s.send(r)
	}
	pay := func(client, key, amount string) reply {
		return ask(http.MethodPost, client, "/transfers", key, `{"from": "alice", "to": "bob", "amount": `+amount+`}`)
	}
	first := pay("shop", "order:1", "10").is(http.StatusCreated)
	assert.Equal(t, "order:1", decoded[transferJSON](first).ID)
	assert.Equal(t, "/transfers/order:1", first.Header().Get("Location"))
	pay("café", "order:1", "20").is(http.StatusCreated)
	pay("shop:order", "1", "30").is(http.StatusCreated)
	pay("shop%3Aorder", "1", "5").is(http.StatusCreated)
	s.balances(35, 65)
	assert.Equal(t, first.Body.String(), pay("shop", "order:1", "10").is(http.StatusCreated).Body.String())

	ask(http.MethodPost, "café", "/transfers/1/refunds", "back", `{"all": true}`).is(http.StatusNotFound)
	ask(http.MethodGet, "café", "/transfers/shop:order:1", "", "").is(http.StatusNotFound)
	ask(http.MethodGet, "café", first.Header().Get("Location"), "", "").is(http.StatusOK)
	refund := ask(http.MethodPost, "shop", "/transfers/order:1/refunds", "back", `{"amount": 4}`).is(http.StatusCreated)
	assert.Equal(t, "order:1", decoded[transferJSON](refund).Refunds)
	s.balances(39, 61)

	assert.Equal(t, "unknownClient", pay("", "order:1", "10").is(http.StatusForbidden).errorCode())
	assert.Equal(t, "unknownClient", ask(http.MethodGet, "", "/transfers/order:1", "", "").is(http.StatusForbidden).errorCode())
	s.balances(39, 61)
}

// A transfer is refunded in parts, each once, and together never more than it has moved.
func TestRefunds(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.post("/transfers", "order-17", pay60).is(http.StatusCreated)
	const path = "/transfers/order-17/refunds"
	first := s.post(path, "back-1", `{"amount": 20}`).is(http.StatusCreated)
	assert.Equal(t, "order-17", decoded[transferJSON](first).Refunds)
	s.balances(60, 40)

	exceeds := s.post(path, "back-2", `{"amount": 50}`).is(http.StatusConflict)
	assert.Equal(t, "reversalExceeds", exceeds.errorCode())
	assert.Equal(t, transfer.Units(20), *exceeds.problem().Transfer.Refunded)
	assert.Equal(t, "invalidRequest", s.post(path, "back-2", `{"amount": 0}`).is(http.StatusBadRequest).errorCode())
	assert.Equal(t, "invalidRequest", s.post(path, "back-2", `{}`).is(http.StatusBadRequest).errorCode())
	s.get("/transfers/back-2").is(http.StatusNotFound)

	s.post(path, "back-2", `{"all": true}`).is(http.StatusCreated)
	assert.Equal(t, first.Body.String(), s.post(path, "back-1", `{"amount": 20}`).is(http.StatusCreated).Body.String())
	s.balances(100, 0)
	gone := s.post(path, "back-3", `{"all": true}`).is(http.StatusConflict)
	assert.Equal(t, "alreadyReversed", gone.errorCode())
	assert.Equal(t, path, gone.problem().Instance)
	assert.Equal(t, "transferNotFound", s.post("/transfers/none/refunds", "back-4", `{"all": true}`).is(http.StatusNotFound).errorCode())

	s.post("/transfers", "order-18", `{"from": "alice", "to": "bob", "amount": 5}`).is(http.StatusCreated)
	s.post("/transfers", "spent", `{"from": "bob", "to": "world", "amount": 5}`).is(http.StatusCreated)
	for range 2 { // the money is spent
		assert.Equal(t, "insufficientFunds",
			s.post("/transfers/order-18/refunds", "back-5", `{"all": true}`).is(http.StatusUnprocessableEntity).errorCode())
	}
	s.balances(95, 0)
}
