package rights

import (
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
)

// A deployment from before there were identities is used as it was by those who may not
// record any. Check says that Setup has to be run, and the job that sets up may record
// them. From then on another collection is refused to all.
func (v *guarded) recordedByTheMigration() {
	v.recordedByNobodyElse()
	t := v.t
	_, migrated := v.user(readRole(t, "migration"))
	require.NoError(t, v.over(migrated).Setup(t.Context()))
	_, served := v.user(readRole(t, "service"))
	require.NoError(t, v.over(served).Setup(t.Context()), "nothing is left to be written")
	_, audited := v.user(readRole(t, "auditor"))
	require.NoError(t, v.over(audited).Check(t.Context()))
	v.audit()

	set := bson.M{"$set": bson.M{"identity": "another"}}
	_, err := v.root.Collection("accounts.transfer").UpdateByID(t.Context(), "identity", set)
	require.NoError(t, err)
	_, err = v.over(served).Transfer(t.Context(), oneUnit("three"))
	require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment)
	_, worked := v.user(readRole(t, "worker"))
	_, err = v.over(worked).Recover(t.Context())
	require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment)
	_, err = v.over(audited).Audit(t.Context())
	require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment)
}

// recordedByNobodyElse requires that services, workers and auditors go on where nothing
// is recorded, and record nothing.
func (v *guarded) recordedByNobodyElse() {
	t := v.t
	for _, name := range []string{"accounts.transfer", "transfers.transfer"} {
		_, err := v.root.Collection(name).DeleteMany(t.Context(), bson.M{"_id": bson.M{"$ne": "deployment"}})
		require.NoError(t, err)
	}
	before := v.stored()
	own := &scribe{}
	_, served := v.user(readRole(t, "service"), own.client())
	service := v.over(served)
	for _, id := range []string{"one", "two"} {
		_, err := service.Transfer(t.Context(), oneUnit(id))
		require.NoError(t, err)
	}
	_, err := service.Recover(t.Context())
	require.NoError(t, err)
	tried, successful := own.seen()
	require.Len(t, tried, len(successful)+1, "what was refused once is not tried again: %v", tried)
	_, worked := v.user(readRole(t, "worker"))
	_, err = v.over(worked).Recover(t.Context())
	require.NoError(t, err)
	_, audited := v.user(readRole(t, "auditor"))
	_, err = v.over(audited).Audit(t.Context())
	require.NoError(t, err)
	for name, c := range map[string]*transfer.Coordinator{"service": service, "auditor": v.over(audited)} {
		err := c.Check(t.Context())
		require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment, name)
		require.ErrorContains(t, err, "run Setup once", name)
	}
	err = service.Setup(t.Context())
	require.ErrorIs(t, err, transfer.ErrUnauthorized)
	var missing *transfer.UnauthorizedError
	require.ErrorAs(t, err, &missing)
	require.Equal(t, "bank.accounts.transfer", missing.Namespace)
	for _, name := range []string{"accounts.transfer", "transfers.transfer"} {
		require.Equal(t, before[name], v.stored()[name])
	}
}

// A service that is started before anything was set up learns that Setup is missing, and
// who may call it.
func (v *guarded) servedBeforeSetup() {
	t := v.t
	notes := []string{"accounts.transfer", "transfers.transfer"}
	before := v.stored()
	for _, name := range notes {
		_, err := v.root.Collection(name).DeleteMany(t.Context(), bson.D{})
		require.NoError(t, err)
	}
	_, served := v.user(readRole(t, "service"))
	_, err := v.over(served).Transfer(t.Context(), oneUnit("early"))
	require.ErrorIs(t, err, transfer.ErrUnauthorized)
	require.ErrorContains(t, err, "on bank.transfers.transfer: Setup creates what is missing there")
	require.ErrorContains(t, err, "docs/roles/migration.json")
	for _, name := range notes {
		for _, note := range before[name] {
			_, err := v.root.Collection(name).InsertOne(t.Context(), note)
			require.NoError(t, err)
		}
	}
	_, err = v.over(served).Transfer(t.Context(), oneUnit("early"))
	require.NoError(t, err)
	v.finish()
}

// In a copy whose notes name the original, a user who may not read beside the original
// works with the copy's accounts. Who may read it is refused accounts of the original.
func (v *guarded) besideAnOriginal() {
	t := v.t
	v.run(bson.D{
		{Key: "update", Value: "accounts.transfer"}, {Key: "updates", Value: bson.A{bson.D{
			{Key: "q", Value: bson.D{{Key: "_id", Value: "deployment"}}},
			{Key: "u", Value: bson.D{{Key: "$set", Value: bson.D{{Key: "transfers", Value: "other.transfers"}}}}},
		}}},
	})
	other := v.root.Client().Database("other")
	require.NoError(t, other.Drop(t.Context()))
	for _, name := range []string{"service", "worker", "auditor"} {
		_, db := v.user(readRole(t, name))
		require.NoError(t, v.over(db).Check(t.Context()), name)
	}
	var beside []bson.Raw
	found, err := v.root.Collection("transfers.transfer").Find(t.Context(), bson.D{})
	require.NoError(t, err)
	require.NoError(t, found.All(t.Context(), &beside))
	_, err = other.Collection("transfers.transfer").InsertMany(t.Context(), beside)
	require.NoError(t, err)
	for _, name := range []string{"service", "worker", "auditor"} {
		_, db := v.user(readRole(t, name))
		require.NoError(t, v.over(db).Check(t.Context()), name)
	}
	require.ErrorIs(t, v.over(v.root).Check(t.Context()), transfer.ErrUnsupportedDeployment)
	require.NoError(t, other.Drop(t.Context()))
}
