package main

import (
	"encoding/json"
	"expvar"
	"net/http"
	"runtime"
	runtimemetrics "runtime/metrics"
	"sync/atomic"

	"github.com/mongotransfer/transfer"
)

// liveHeap names how many bytes the latest garbage collection has found in use.
const liveHeap = "/gc/heap/live:bytes"

// metrics counts what the library does for the service.
// The package transferotel does that for OpenTelemetry, and has spans as well.
type metrics struct {
	calls      expvar.Map // by verb and outcome
	events     expvar.Map // attempts to deliver them, by kind and what became of them
	takeovers  expvar.Int
	unfinished atomic.Pointer[transfer.Stats]
}

// observer returns what counts.
func (m *metrics) observer() transfer.Observer {
	return transfer.Observer{
		TransferDone: func(t transfer.TransferInfo) { m.calls.Add(t.Verb+" "+t.Outcome.String(), 1) },
		TakenOver:    func(transfer.TakeoverInfo) { m.takeovers.Add(1) },
		Counted:      func(s transfer.Stats) { m.unfinished.Store(&s) },
		EventDone: func(e transfer.EventInfo) {
			outcome := "delivered"
			switch {
			case e.GivenUp:
				outcome = "given up"
			case e.Err != nil:
				outcome = "failed"
			}
			m.events.Add(e.Kind+" "+outcome, 1)
		},
	}
}

// ServeHTTP answers with all counts.
func (m *metrics) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	sample := []runtimemetrics.Sample{{Name: liveHeap}}
	runtimemetrics.Read(sample)
	w.Header().Set("Content-Type", "application/json")
	// If it fails, the client is gone.
	_ = json.NewEncoder(w).Encode(map[string]any{
		"calls": json.RawMessage(m.calls.String()), "events": json.RawMessage(m.events.String()),
		"takeovers": m.takeovers.Value(), "unfinished": m.unfinished.Load(),
		"goroutines": runtime.NumGoroutine(), "liveHeapBytes": sample[0].Value.Uint64(),
	})
}
