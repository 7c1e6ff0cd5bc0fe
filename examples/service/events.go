package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/mongotransfer/transfer"
)

const (
	// answerLimit is how many bytes of the webhook's answer are read, so that its
	// connection can be used again.
	answerLimit = 16 << 10
	// idleConns is how many connections to the webhook are kept, and idleTime how long.
	idleConns = 64
	idleTime  = time.Minute
)

// webhook is the address of a system that is told what becomes of transfers.
type webhook struct {
	address string
	client  *http.Client
}

// newWebhook returns the webhook with an address, nil if there is none.
func newWebhook(address string) (*webhook, error) {
	if address == "" {
		return nil, nil
	}
	parsed, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("WEBHOOK_URL: %w", err)
	}
	if parsed.Host == "" || parsed.Scheme != "http" && parsed.Scheme != "https" {
		return nil, errors.New("WEBHOOK_URL is no address like https://shop.example.org/events")
	}
	// Events are delivered many at once, each by a request of its own.
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: idleConns, IdleConnTimeout: idleTime}
	return &webhook{address, &http.Client{Transport: transport}}, nil
}

// eventJSON is what the webhook gets: a transfer has moved, has failed, or is held.
//
// It comes at least once, and in no order.
// The receiver remembers the IDs that it has seen, and answers 2xx for those as well.
type eventJSON struct {
	ID   string             `json:"id"`
	Kind transfer.EventKind `json:"kind"`
	// At is when the transfer came to be what the kind says.
	At      time.Time `json:"at"`
	Attempt int       `json:"attempt"`
	// Client is whose transfer it is, where there are several clients.
	Client string `json:"client,omitempty"`
	// Transfer is the transfer as it is now: a hold may have been posted by now.
	Transfer transferJSON `json:"transfer"`
}

// deliver delivers an event to the webhook, or to the log where there is none.
// An error has it delivered again, by any process of the service, after a pause that
// grows.
func (h *handler) deliver(ctx context.Context, e transfer.Event) error {
	if h.webhook == nil {
		h.log.InfoContext(ctx, "event", "event", e.ID, "at", e.At, "state", e.Record.State)
		return nil
	}
	body, err := json.Marshal(eventJSON{
		ID: e.ID, Kind: e.Kind, At: e.At, Attempt: e.Attempt,
		Client: h.clientOf(e.Record.ID), Transfer: h.transferNow(e.Record),
	})
	if err != nil {
		return err
	}
	// The context of a handler ends before another process may deliver the event.
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, h.webhook.address, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	// The receiver may have idempotent requests, as this service has.
	request.Header.Set(keyHeader, fmt.Sprintf("%q", url.QueryEscape(e.ID)))
	answer, err := h.webhook.client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	_, _ = io.CopyN(io.Discard, answer.Body, answerLimit) // It matters only to the connection.
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("the webhook has answered %s", answer.Status)
	}
	return nil
}

// clientOf returns the client whose transfer this is, "" if there is one client.
func (h *handler) clientOf(id string) string {
	if h.clientHeader == "" {
		return ""
	}
	encoded, _, _ := strings.Cut(id, ":")
	name, err := url.QueryUnescape(encoded)
	if err != nil {
		return encoded // It is none of ours.
	}
	return name
}
