package linearizable

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
)

// checkLimit is how long the check of a history may take. It is much longer than needed,
// even on a slow machine.
// A history that takes longer is neither accepted nor rejected.
const checkLimit = 2 * time.Minute

// only returns the history with those of its reads that are wanted.
func (l line) only(wanted func(entry) bool) line {
	return slices.DeleteFunc(slices.Clone(l), func(op porcupine.Operation) bool {
		e := op.Input.(entry)
		return e.isRead() && !wanted(e)
	})
}

func isLinear(e entry) bool { return e.linear }

// isRead reports whether an entry changes nothing, so that it can be left out.
// An outcome of Transfer can't be left out.
func (e entry) isRead() bool { return e.deed == reads || e.deed == shows && !e.told }

// sift removes the reads that keep a history from being linearizable.
func (l line) sift(t *testing.T, m porcupine.Model) (kept, stale line) {
	t.Helper()
	if accepts(t, m, l) {
		return l, nil
	}
	kept = l.only(isLinear)
	for _, op := range l {
		if e := op.Input.(entry); !e.isRead() || e.linear {
			continue
		}
		if with := append(slices.Clone(kept), op); accepts(t, m, with) {
			kept = with
		} else {
			stale = append(stale, op)
		}
	}
	return kept, stale
}

// without returns the history without its n-th movement.
func (l line) without(n int) line {
	for i, op := range l {
		if op.Input.(entry).deed != moves {
			continue
		}
		if n--; n < 0 {
			return slices.Delete(slices.Clone(l), i, i+1)
		}
	}
	return l
}

// stale returns the history with the n-th read of an account made stale, where that is
// possible.
// The read then shows what an earlier one had read, although a movement lies between
// them.
// It reports false if there are not that many.
func (l line) stale(n int) (line, bool) {
	for i, op := range l {
		e := op.Input.(entry)
		if e.deed != reads {
			continue
		}
		old, found := l.before(op)
		if !found || old == e.units {
			continue
		}
		if n--; n < 0 {
			forged := slices.Clone(l)
			e.units = old
			forged[i].Input = e
			return forged, true
		}
	}
	return nil, false
}

// before returns what was read of the same account before a movement that had ended when
// the given read began.
func (l line) before(read porcupine.Operation) (int64, bool) {
	of := read.Input.(entry).of
	moved := int64(-1) // when the latest such movement began
	for _, op := range l {
		if e := op.Input.(entry); e.of == of && e.deed == moves && op.Return < read.Call {
			moved = max(moved, op.Call)
		}
	}
	for _, op := range slices.Backward(l) {
		if e := op.Input.(entry); e.of == of && e.deed == reads && op.Return < moved {
			return e.units, true
		}
	}
	return 0, false
}

// accepts reports whether a history is linearizable.
// It fails the test if the check takes too long.
func accepts(t *testing.T, m porcupine.Model, l line) bool {
	t.Helper()
	result := porcupine.CheckOperationsTimeout(m, l, checkLimit)
	requireDecided(t, result, l)
	return result == porcupine.Ok
}

func requireDecided(t *testing.T, result porcupine.CheckResult, l line) {
	t.Helper()
	if result == porcupine.Unknown {
		require.Fail(t, "not decided in time", "whether %d entries are linearizable is not known after %s", len(l), checkLimit)
	}
}

// requireLinearizable requires that a history is linearizable, and leaves a picture of it
// otherwise.
func requireLinearizable(t *testing.T, m porcupine.Model, l line, what string) {
	t.Helper()
	result, info := porcupine.CheckOperationsVerbose(m, l, checkLimit)
	if result == porcupine.Ok {
		return
	}
	requireDecided(t, result, l)
	folder, err := os.MkdirTemp("", "history")
	require.NoError(t, err)
	picture := filepath.Join(folder, "history.html")
	require.NoError(t, porcupine.VisualizePath(m, info, picture))
	require.Fail(t, "not linearizable", "%s: the history is drawn in %s", what, picture)
}
