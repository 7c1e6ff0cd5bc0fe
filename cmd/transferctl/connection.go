package main

import (
	"cmp"
	"context"
	"errors"
	"net"
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
	err := opts.Validate()
	if errors.As(err, new(*net.DNSError)) { // of the servers that a mongodb+srv URI stands for
		return nil, &awayError{err}
	}
	if err != nil {
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
func (s *session) collection(text string, lookup func(string) string) (*mongo.Collection, error) {
	at, err := placeOf(text, lookup)
	if err != nil {
		return nil, err
	}
	server := s.database.Client()
	if at.uri != "" {
		if server, err = s.connect(at.uri); err != nil {
			return nil, err
		}
	}
	return server.Database(cmp.Or(at.database, s.database.Name())).Collection(at.collection), nil
}

// place is where a collection is: on the transfers' own server if it has no URI, and in
// their database if it names none.
type place struct{ uri, database, collection string }

// placeOf reads what names a collection: collection, database/collection, and on another
// server URI#collection or env:VARIABLE#collection.
func placeOf(text string, lookup func(string) string) (place, error) {
	variable, inEnvironment := strings.CutPrefix(text, "env:")
	if !inEnvironment && !strings.Contains(text, "://") {
		if database, collection, given := strings.Cut(text, "/"); given {
			return place{database: database, collection: collection}, nil
		}
		return place{collection: text}, nil
	}
	uri, collection := "", ""
	if inEnvironment {
		variable, collection, _ = strings.Cut(variable, "#")
		uri = lookup(variable)
	} else if at := strings.LastIndex(text, "#"); at >= 0 {
		uri, collection = text[:at], text[at+1:]
	}
	database, err := databaseOf(uri)
	if err != nil {
		return place{}, err
	}
	if database == "" || collection == "" {
		return place{}, usage("a collection on another server is a URI with a database, # and the name")
	}
	return place{uri, database, collection}, nil
}
