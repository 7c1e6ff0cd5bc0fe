package main

import (
	"net/http"

	"github.com/mongotransfer/transfer"
)

// newAdmin returns what those who operate the service see.
// It has no authentication, and shows everything: let no client reach its address.
//
//   - /debug/vars counts calls, events, takeovers and what is unfinished, as JSON.
//   - /explain/{id} says where a transfer stands, and what is left to be done for it.
func newAdmin(coord *transfer.Coordinator, m *metrics) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /debug/vars", m)
	// Whatever else shows a coordinator to them is mounted here, too.
	mux.HandleFunc("GET /explain/{id}", func(w http.ResponseWriter, r *http.Request) { explain(w, r, coord) })
	return mux
}

// explain tells about one transfer, by its ID in the library: with several clients, that
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
