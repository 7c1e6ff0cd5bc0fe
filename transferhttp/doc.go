// Package transferhttp is a window on a [transfer.Coordinator]: pages for the person on
// call, to be mounted in the part of a service that only its operators reach.
//
//   - The overview has what is stuck or late first, then what is unfinished, rates and
//     latencies as charts, events that were not delivered, and the last audit.
//   - The list of transfers, and that of accounts, page by page.
//   - One transfer: where it stands and what to do ([transfer.Coordinator.Explain]), its
//     timeline, and its record.
//   - One account: its balance, the transfers in flight on it, and its statement.
//
// The pages are made on the server, and work without JavaScript.
// The overview, and a transfer that is not final, refresh themselves.
//
// # Who may see it
//
// The window changes no transfer and no account, and shows all of them, with amounts and
// metadata.
// It has no users and no passwords: put the handler behind those of your service, and
// never on an address that the world reaches.
// Give it a Coordinator of a user with the auditor's role (docs/roles) where nothing at
// all may be written: with other rights a statement makes a small write to a transfer
// that is under way, as [transfer.Coordinator.Statement] says.
//
// # For your own clients
//
// [StatusOf] has the HTTP status for each error of the library: it is the one thing here
// that is for the services themselves.
//
// See docs/window.md for what each page costs the server.
package transferhttp
