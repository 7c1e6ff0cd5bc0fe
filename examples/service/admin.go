package main

import (
	"fmt"
	"net/http"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/transferhttp"
)

// newAdmin returns what those who operate the service see.
// It has no authentication, and shows everything: let no client reach its address.
//
//   - /transfers/ is the window: pages on what is stuck, done and stored.
//   - /debug/vars counts calls, events, takeovers and what is unfinished, as JSON.
//   - /explain/{id} says where a transfer stands, and what is left to be done for it.
//   - POST /audit checks everything that is stored, and writes nothing.
func newAdmin(coord *transfer.Coordinator, m *metrics, r *transferhttp.Recorder) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", http.RedirectHandler("/transfers/", http.StatusSeeOther))
	mux.Handle("/transfers/", http.StripPrefix("/transfers", transferhttp.Handler(coord, transferhttp.WithRecorder(r))))
	mux.Handle("GET /debug/vars", m)
	mux.HandleFunc("GET /explain/{id}", func(w http.ResponseWriter, r *http.Request) { explain(w, r, coord) })
	mux.HandleFunc("POST /audit", func(w http.ResponseWriter, request *http.Request) { runAudit(w, request, coord, r) })
	// No page of another site makes a browser start an audit.
	return http.NewCrossOriginProtection().Handler(mux)
}

// explain explains one transfer, by its ID in the library: with several clients, that
// is the client's name, a colon, and the key.
func explain(w http.ResponseWriter, r *http.Request, coord *transfer.Coordinator) {
	explanation, err := coord.Explain(r.Context(), r.PathValue("id"))
	if err != nil {
		http.Error(w, err.Error(), kindOf(err).status)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(explanation.String())) // If it fails, the client is gone.
}

// runAudit reads everything, which takes as long as there is much, and lets the window
// show what it has found.
// An audit with findings answers 500: it is for whoever is to be called.
func runAudit(w http.ResponseWriter, r *http.Request, coord *transfer.Coordinator, recorder *transferhttp.Recorder) {
	report, err := coord.Audit(r.Context())
	recorder.Audited(report, err)
	switch {
	case err != nil:
		http.Error(w, err.Error(), kindOf(err).status)
		return
	case len(report.Findings) > 0:
		w.WriteHeader(http.StatusInternalServerError)
	}
	_, _ = fmt.Fprintf(w, "%d accounts, %d transfers, %d findings.\n",
		report.Accounts, report.Transfers, len(report.Findings)+report.Omitted)
	for _, name := range report.LeftOut {
		_, _ = fmt.Fprintln(w, "left out:", name)
	}
	for _, f := range report.Findings {
		_, _ = fmt.Fprintln(w, f)
	}
}
