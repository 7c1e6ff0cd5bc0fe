package mongotest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

// StartStandalone starts a mongod that is a member of no replica set, which the library
// refuses to work on. It takes the mongod on the PATH or the one in the cache folder, and
// fetches that one if need be. The context bounds the start alone. The server runs until
// Stop is called or this process ends.
func StartStandalone(ctx context.Context) (*Server, error) {
	path, err := findMongod(ctx)
	if err != nil {
		return nil, fmt.Errorf("mongotest: no mongod could be had for a standalone server: %w", err)
	}
	var server *Server
	err = errPortTaken
	for attempt := 0; attempt < mongodAttempts && errors.Is(err, errPortTaken); attempt++ {
		server, err = startStandaloneOnce(ctx, path)
	}
	return server, err
}

func startStandaloneOnce(ctx context.Context, path string) (*Server, error) {
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	folder := filepath.Join(os.TempDir(), "mongotest-"+rand.Text())
	var output bytes.Buffer
	cmd := supervised(supervisor, path, folder, address, &output)
	flag := slices.Index(cmd.Args, "--replSet")
	cmd.Args = slices.Delete(cmd.Args, flag, flag+2)
	process, err := startChild(cmd)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	ctx, cancel := context.WithTimeout(ctx, mongodLimit)
	defer cancel()
	answers := func(context.Context, *mongo.Client) error { return nil }
	if err := memberAt(address, folder).reach(ctx, process.ended, answers); err != nil {
		stopErr := process.stop()
		if cmd.ProcessState.ExitCode() == exitPortTaken {
			err = errPortTaken
		}
		return nil, fmt.Errorf("%s does not run: %w (%v)\n%s", path, errors.Join(err, stopErr), cmd.ProcessState, output.Bytes())
	}
	return newServer("mongodb://"+address+"/", process.stop), nil
}
