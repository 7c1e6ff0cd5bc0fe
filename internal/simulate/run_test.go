package simulate

import (
	"fmt"
	"hash/maphash"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/protocol"
)

// TestMain makes garbage collections rarer, since runs and searches create much garbage
// and keep little.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}

// TestRandomRunsKeepTheInvariants promises that transfers which compete for the same
// money keep the invariants, whatever their executors meet.
// It also promises that each kind of operation, and each kind of claim, has met each fate
// and has matched often enough, so that a new write can't be forgotten here.
func TestRandomRunsKeepTheInvariants(t *testing.T) {
	seeds, often, transfers := uint64(130_000), 5, 0
	if testing.Short() || !PlaysAll(t) {
		seeds, often = 60_000, 1
	}
	var met Coverage
	for seed := range seeds {
		count, failure := Play(seed, &met)
		if failure != nil {
			require.Fail(t, failure.String(), "\n%s", failure.Story)
		}
		transfers += count
	}
	require.Empty(t, met.Missing(often), "met too seldom")
	t.Logf("%d transfers, %d operations", transfers, met.Operations())
}

// TestNoInterleavingBreaksTheInvariants promises that the invariants hold at each step,
// and that a recovery ends well.
// That is true in whatever order the messages of a few executors arrive, and whichever of
// them are lost, late, repeated or answered wrongly.
// The scenes of three faults, and some of more than two hundred thousand states, are left
// to a longer search.
func TestNoInterleavingBreaksTheInvariants(t *testing.T) {
	scenes := slices.Concat(OneTransfer(), Facts()[:22], Earlier(), Holds(), Effects(), Reversals(), TwoTransfers()[:20])
	longest := map[string]bool{
		"resumed and rolled back": true, "voided and rolled back": true, "a worker's, resumed": true,
		"resumed twice, closing": true, "resumed twice, too little money": true, "three, resumed": true,
		"cancelled, closing": true, "money and a document": true,
	}
	scenes = slices.DeleteFunc(scenes, func(s Scene) bool { return s.Faults > 2 || longest[s.Name] })
	all := PlaysAll(t)
	var lock sync.Mutex
	states, ends := 0, map[protocol.State]int{}
	t.Run("in", func(t *testing.T) {
		for i, scene := range scenes {
			if !all {
				large := scene.paper == besidesMayBeGone && scene.executors() > 2
				if i%4 != 0 || large {
					continue
				}
				scene.Faults = max(0, scene.Faults-1)
			}
			t.Run(scene.String(), func(t *testing.T) {
				t.Parallel()
				found, failure := Explore(scene, func() bool { return false })
				if failure != nil {
					require.Fail(t, failure.String(), "%s", failure.Story)
				}
				require.False(t, found.CutOff)
				lock.Lock()
				defer lock.Unlock()
				states += found.States
				for state, count := range found.Ends {
					ends[state] += count
				}
			})
		}
	})
	require.Positive(t, ends[protocol.Success])
	require.Positive(t, ends[protocol.Fail])
	t.Logf("%d states in %d scenes; how they end: %v", states, len(scenes), ends)
}

// A search that is stopped reports that.
func TestStoppedSearchSaysSo(t *testing.T) {
	found, failure := Explore(OneTransfer()[0], func() bool { return true })
	require.Nil(t, failure)
	require.True(t, found.CutOff)
	require.Positive(t, found.States)
}

// A seed stands for one run: played again, it is the same to the last line.
func TestSeedsReplay(t *testing.T) {
	stories := map[string]bool{}
	for seed := range uint64(50) {
		told := Tell(seed)
		require.Equal(t, told, Tell(seed))
		stories[told] = true
	}
	require.Len(t, stories, 50, "different seeds are different runs")
}

// What is left of a failing run fails in the same way, and nothing in it can be left out.
func TestShorten(t *testing.T) {
	for seed := range uint64(200) {
		g := stage(seed)
		require.NoError(t, g.play())
		g.w.given[0]++ // money from nowhere, which any checked move finds
		wrong := func(moves []move) error {
			again := stage(seed)
			again.w.given[0]++
			for _, m := range moves {
				if err := again.take(m); err != nil {
					return err
				}
			}
			return nil
		}
		moves := shorten(g.made, func(moves []move) bool { return broken(wrong(moves)) == 1 })
		require.Equal(t, 1, broken(wrong(moves)))
		require.LessOrEqual(t, len(moves), 2, "someone joins, and does something")
	}
}

// A member that doesn't need to travel in a merged update is taken out of it, as long as
// the rest can meet the same fate.
func TestSeparate(t *testing.T) {
	with := func(op protocol.Kind, fate Fate, others ...int) move {
		m := move{kind: perform, op: op, fate: fate}
		for _, who := range others {
			m.with = append(m.with, asked{who: who, op: op})
		}
		return m
	}
	moves := []move{with(protocol.Settle, answered, 1, 2), with(protocol.Prepare, split, 1, 2)}
	require.Equal(t, moves, separate(moves, func([]move) bool { return false }))
	first := separate(moves, func([]move) bool { return true })
	require.Empty(t, first[0].with)
	require.Equal(t, moves[1].with[:1], first[1].with)
	require.Len(t, moves[0].with, 2, "the run that failed is left as it is")
}

// A search treats two runs as one only if they differ in nothing but the names of their
// tokens.
func TestKeysTellRunsApart(t *testing.T) {
	seed := maphash.MakeSeed()
	key := func(change func(*run)) string {
		r := OneTransfer()[0].run()
		require.NoError(t, r.joinAll())
		change(r)
		k := newKeyer()
		k.seed = seed
		run, world := k.keys(r)
		return fmt.Sprint(run, world)
	}
	original := key(func(*run) {})
	require.Equal(t, original, key(func(r *run) {
		r.w.Accounts[0].Fence, r.w.Accounts[1].Fence = "another", "another"
		require.NoError(t, r.take(move{kind: hurry}))
	}))
	for i, change := range []func(*run){
		func(r *run) { r.w.Accounts[0].Balance++ },
		func(r *run) { r.w.Accounts[1].Fence = "another" },
		func(r *run) { r.w.Accounts[1].Traces[0] = protocol.Done },
		func(r *run) { r.w.Transfers[0].Owner++ },
		func(r *run) { r.w.Transfers[0].Held = true },
		func(r *run) { r.w.Transfers[0].Posted = 20 },
		func(r *run) { r.w.Accounts[1].Value = unmet },
		func(r *run) { r.w.Expired[0] = true },
		func(r *run) { r.w.told[0].refused = true },
		func(r *run) { r.w.told[0].committed = true },
		func(r *run) { r.w.told[0].held = 1 },
		func(r *run) { r.w.keep([]Message{r.w.Send(0, 1, r.executors[0].batch[0])}) },
		func(r *run) { r.faults-- },
		func(r *run) { r.executors[0].batch = r.executors[0].batch[1:] },
		func(r *run) {
			require.NoError(t, r.take(move{kind: perform, op: protocol.ReadFence, at: 0, fate: answered}))
		},
	} {
		require.NotEqual(t, original, key(change), "change %d", i)
	}
}
