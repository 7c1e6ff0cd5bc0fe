package mongotest

import (
	"context"
	"fmt"
	"os"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// versionVariable is the environment variable that asks for a version of MongoDB.
const versionVariable = "MONGODB_VERSION"

// wantedVersion returns the version that is asked for: whole (5.0.32), a series (5.0), or
// empty if any version will do.
func wantedVersion() string { return os.Getenv(versionVariable) }

// checkWanted returns an error if a version is not the one that is asked for.
func checkWanted(version string) error {
	wanted := wantedVersion()
	if wanted == "" || version == wanted || strings.HasPrefix(version, wanted+".") {
		return nil
	}
	return fmt.Errorf("it is version %s, and %s asks for %s", version, versionVariable, wanted)
}

// identify asks the server for its version, and fails if another one is asked for.
// What a program or an image says about itself is not enough.
// Tests that should run on one version and silently run on another prove nothing.
func (s *Server) identify(ctx context.Context) error {
	client, err := mongo.Connect(options.Client().ApplyURI(s.uri))
	if err != nil {
		return err
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }()
	var reply struct {
		Version string `bson:"version"`
	}
	err = client.Database("admin").RunCommand(ctx, bson.D{{Key: "buildInfo", Value: 1}}).Decode(&reply)
	if err != nil {
		return fmt.Errorf("ask the server for its version: %w", err)
	}
	s.version = reply.Version
	return checkWanted(s.version)
}
