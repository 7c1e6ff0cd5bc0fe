package main

import (
	"html"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/mongotest"
)

// The window shows what the process has done, what is stored, and the latest audit. One
// with findings is no success.
func TestWindow(t *testing.T) {
	db := mongotest.Database(t)
	r := newRunning(t, process{db: db, stall: defaultStall, clientHeader: "X-Client", log: slog.New(slog.DiscardHandler)})
	for _, request := range [][3]string{
		{"/accounts", "", `{"id": "world", "noFloor": true}`},
		{"/accounts", "", `{"id": "alice"}`},
		{"/transfers", "<pay>", `{"from": "world", "to": "alice", "amount": 60}`},
	} {
		got := r.ask(http.MethodPost, r.public+request[0], request[1], request[2])
		require.Equal(t, http.StatusCreated, got.status, got.body)
	}
	r.shows("", `<h2 id="audit">`, "None is known here")
	r.shows("/transfers/transfers", "acme+%26+sons:<pay>")
	r.shows("/transfers/transfer?id=acme%2B%2526%2Bsons:%3Cpay%3E", "stored", "Calls of this process")
	r.shows("/transfers/account?id=alice", "60")

	audit := r.ask(http.MethodPost, r.admin+"/audit", "", "")
	assert.Equal(t, http.StatusOK, audit.status)
	assert.Equal(t, "2 accounts, 1 transfers, 0 findings.\n", audit.body)
	r.shows("/", "Nothing was found.")
	overdrawn := bson.D{{Key: "$set", Value: bson.D{{Key: "balance", Value: int64(-1)}}}}
	_, err := db.Collection("accounts").UpdateByID(t.Context(), "alice", overdrawn)
	require.NoError(t, err)
	audit = r.ask(http.MethodPost, r.admin+"/audit", "", "")
	assert.Equal(t, http.StatusInternalServerError, audit.status)
	assert.Contains(t, audit.body, "belowFloor: ")
	r.shows("/", "belowFloor")
	assert.Equal(t, http.StatusNotFound, r.ask(http.MethodGet, r.public+"/transfers/", "", "").status, "clients don't see it")
	assert.Equal(t, http.StatusMethodNotAllowed, r.ask(http.MethodGet, r.admin+"/audit", "", "").status)
}

// shows gets a page of the window, which must have some texts.
func (r *running) shows(path string, texts ...string) {
	r.t.Helper()
	page := r.ask(http.MethodGet, r.admin+path, "", "")
	assert.Equal(r.t, http.StatusOK, page.status, path)
	for _, text := range texts {
		assert.Contains(r.t, html.UnescapeString(page.body), text, path)
	}
}

// A page of another site starts no audit in the browser of someone who may.
func TestOtherSites(t *testing.T) {
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/audit", nil)
	request.Header.Set("Sec-Fetch-Site", "cross-site")
	answer := httptest.NewRecorder()
	newAdmin(coordinator(t, mongotest.Database(t)), new(metrics), nil).ServeHTTP(answer, request)
	assert.Equal(t, http.StatusForbidden, answer.Code)
}
