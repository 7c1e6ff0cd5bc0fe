package main

import (
	"context"
	"errors"
	"net/url"
	"strings"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// connections are the clients of a run.
type connections struct {
	monitor *event.CommandMonitor
	clients []*mongo.Client
}

// connect returns a client of the server at a URI. It has not reached it yet.
func (c *connections) connect(uri string) (*mongo.Client, error) {
	opts := options.Client().ApplyURI(uri)
	if err := opts.Validate(); err != nil {
		return nil, usage("the URI: %w", err)
	}
	opts.SetAppName("transferctl").SetMonitor(c.monitor)
	if opts.ServerSelectionTimeout == nil {
		opts.SetServerSelectionTimeout(defaultServerTimeout)
	}
	client, err := mongo.Connect(opts)
	if err != nil {
		return nil, usage("the URI: %w", err)
	}
	c.clients = append(c.clients, client)
	return client, nil
}

// close disconnects all clients.
func (c *connections) close(ctx context.Context) (err error) {
	for _, client := range c.clients {
		err = errors.Join(err, client.Disconnect(ctx))
	}
	return err
}

// where returns the URI of the transfers' server, which may be "", and their database.
func (p *program) where() (uri, database string, err error) {
	uri = p.flags.uri
	if uri == "" {
		uri = p.lookup("MONGODB_URI")
	}
	if database = p.flags.database; database == "" {
		if database, err = databaseOf(uri); err != nil {
			return "", "", err
		}
	}
	if database == "" {
		return "", "", usage("which database? Say --database, or name it in the URI's path")
	}
	return uri, database, nil
}

// databaseOf returns the database in a URI's path, or "".
func databaseOf(uri string) (string, error) {
	if uri == "" {
		return "", nil
	}
	scheme, rest, ok := strings.Cut(uri, "://")
	if !ok || scheme != "mongodb" && scheme != "mongodb+srv" {
		return "", usage("a URI begins with mongodb:// or mongodb+srv://")
	}
	rest, _, _ = strings.Cut(rest, "?")
	if at := strings.LastIndex(rest, "@"); at >= 0 {
		rest = rest[at+1:]
	}
	_, path, _ := strings.Cut(rest, "/")
	database, err := url.PathUnescape(path)
	if err != nil {
		return "", usage("the database in the URI's path: %w", err)
	}
	return database, nil
}

// collection returns the collection that a flag such as --with-ledger names.
func (s *session) collection(place string, lookup func(string) string) (*mongo.Collection, error) {
	if uri, name, far := farPlace(place, lookup); far {
		database, err := databaseOf(uri)
		if err != nil {
			return nil, err
		}
		if database == "" || name == "" {
			return nil, usage("a collection on another server is a URI with a database, # and the name")
		}
		client, err := s.connect(uri)
		if err != nil {
			return nil, err
		}
		return client.Database(database).Collection(name), nil
	}
	if strings.Contains(place, "://") || strings.HasPrefix(place, "env:") {
		return nil, usage("a collection on another server is a URI with a database, # and the name")
	}
	database, name, given := strings.Cut(place, "/")
	if !given {
		return s.database.Collection(place), nil
	}
	return s.database.Client().Database(database).Collection(name), nil
}

// farPlace splits what names a collection on another server.
func farPlace(place string, lookup func(string) string) (uri, name string, far bool) {
	at := strings.LastIndex(place, "#")
	variable, inEnvironment := strings.CutPrefix(place, "env:")
	if at < 0 || !inEnvironment && !strings.Contains(place[:at], "://") {
		return "", "", false
	}
	if inEnvironment {
		variable, name, _ = strings.Cut(variable, "#")
		return lookup(variable), name, true
	}
	return place[:at], place[at+1:], true
}
