// Package recovery finds the transfers that need an executor, and decides which of them
// are worked on, and in which order: those that have stalled, holds that have expired,
// and transfers that were submitted for a worker.
//
// A sweep goes through all that has stalled or expired, once.
// A worker sweeps again and again, and runs what was submitted.
// Both pass over what hangs: a cluster that is away must not hold up the transfers that
// don't need it.
//
// From top to bottom:
//
//   - Sweep and Work are what the Coordinator's Recover and Run call.
//   - A sweep, or a worker, takes what a scan finds.
//     A scan is one search in the database, which begins anew without the routes that
//     have no room.
//   - Slots bound how many transfers are in progress at once.
//   - A route is a set of clusters that a transfer needs.
//     It has a share of the slots, which is smaller once its transfers hang.
package recovery
