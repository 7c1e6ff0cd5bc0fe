package memory

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// address is what the driver takes for the server's. Nothing resolves it.
const address = "memory:27017"

// Server is a server in memory.
// It is safe for concurrent use.
type Server struct {
	now func() time.Time

	mu          sync.Mutex
	ahead       time.Duration // of now
	latest      bson.Timestamp
	collections map[string]*collection // by namespace
	intercept   Interceptor

	conns  map[net.Conn]bool
	all    sync.WaitGroup
	closed bool
}

// Interceptor may have another write come before one that is about to happen: an insert,
// or an update by operators, or a replacement, of a stored document. It is called with
// the time, the namespace, the document as it is stored, nil for an insert, and with what
// is inserted, or with the update. Where it returns a document, that one is stored first,
// under the same _id. Its values are of the types that the driver decodes.
//
// It is not called for deletes, for updates by a pipeline, and for upserts of what is not
// there.
type Interceptor func(now time.Time, namespace string, stored, change bson.D) (first bson.D)

// New returns a server whose clock begins at that of now.
func New(now func() time.Time) *Server {
	return &Server{now: now, collections: map[string]*collection{}, conns: map[net.Conn]bool{}}
}

// Intercept sets the interceptor, which is called under the server's lock.
func (s *Server) Intercept(i Interceptor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.intercept = i
}

// Client returns a client of the server, which the caller disconnects.
func (s *Server) Client() (*mongo.Client, error) {
	return mongo.Connect(options.Client().ApplyURI("mongodb://" + address + "/?directConnection=true").SetDialer(s))
}

// DialContext connects the driver to the server.
func (s *Server) DialContext(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.New("the server in memory is closed")
	}
	s.conns[ours] = true
	s.all.Go(func() {
		s.serve(ours)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.conns, ours)
	})
	return theirs, nil
}

// Close ends all connections.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	for conn := range s.conns {
		_ = conn.Close()
	}
	s.mu.Unlock()
	s.all.Wait()
}

// Advance sets the clock ahead, and removes what a TTL index says is due.
func (s *Server) Advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead += d
	for _, c := range s.collections {
		c.expire(s.clock(), s.tick())
	}
}

// Now returns what the clock shows.
func (s *Server) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clock()
}

// Documents returns the documents of a collection that match a filter.
func (s *Server) Documents(namespace string, filter bson.D) ([]bson.D, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.collections[namespace]
	if c == nil {
		return nil, nil
	}
	return c.find(filter, s.scope(), bson.Timestamp{})
}

// IDs returns the _ids of the documents of a collection that match a filter.
func (s *Server) IDs(namespace string, filter bson.D) (bson.A, error) {
	found, err := s.Documents(namespace, filter)
	ids := bson.A{}
	for _, document := range found {
		ids = append(ids, field(document, "_id"))
	}
	return ids, err
}

// Writes returns how many versions of documents were stored in all collections, but for
// those whose namespaces begin with a prefix.
func (s *Server) Writes(without string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for namespace, c := range s.collections {
		if !strings.HasPrefix(namespace, without) {
			n += c.writes
		}
	}
	return n
}

// clock returns the time as it is stored.
func (s *Server) clock() time.Time { return s.now().Add(s.ahead).UTC().Truncate(time.Millisecond) }

// tick returns the time of the next write, which is later than that of each one before.
func (s *Server) tick() bson.Timestamp {
	next := bson.Timestamp{T: uint32(s.clock().Unix()), I: 1}
	if !s.latest.Before(next) {
		next = bson.Timestamp{T: s.latest.T, I: s.latest.I + 1}
	}
	s.latest = next
	return next
}

// scope returns what filters and expressions of one statement see beside the document.
func (s *Server) scope() scope {
	return scope{"NOW": bson.NewDateTimeFromTime(s.clock()), "REMOVE": missing{}}
}
