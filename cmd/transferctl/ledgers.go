package main

import (
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/deployment"
)

// register adds the ledgers and the documents: those that flags name, and those that are
// recorded and on the transfers' server. Which collection a name stands for, the library
// checks by its identity.
func (s *session) register(p *program, declared deployment.Declared) error {
	ledgers, err := s.given("--with-ledger", p.flags.ledgers, p.lookup)
	if err != nil {
		return err
	}
	documents, err := s.given("--with-documents", p.flags.documents, p.lookup)
	if err != nil {
		return err
	}
	s.addRecorded(declared, ledgers, documents)
	for name, collection := range ledgers {
		s.options = append(s.options, transfer.WithLedger(name, collection))
		s.registered = append(s.registered, registered{"ledger", name, collection})
	}
	for name, collection := range documents {
		s.options = append(s.options, transfer.WithDocuments(name, collection))
		s.registered = append(s.registered, registered{"documents", name, collection})
	}
	return nil
}

// registered is a ledger or a collection of documents, under the name that transfers give
// it.
type registered struct {
	kind, name string
	*mongo.Collection
}

// given returns the collections that a flag names.
func (s *session) given(flag string, values []string, lookup func(string) string) (map[string]*mongo.Collection, error) {
	named := map[string]*mongo.Collection{}
	for _, value := range values {
		name, place, ok := strings.Cut(value, "=")
		if !ok || name == "" || place == "" {
			return nil, usage("%s is NAME=COLLECTION, not %q", flag, value)
		}
		if named[name] != nil {
			return nil, usage("%s names %q twice", flag, name)
		}
		collection, err := s.collection(place, lookup)
		if err != nil {
			return nil, err
		}
		named[name] = collection
	}
	return named, nil
}

// leftOut is a recorded name that a command works without.
type leftOut struct {
	Kind      string `json:"kind"` // ledger or documents
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	Reason    string `json:"reason"`
}

func (l leftOut) String() string { return fmt.Sprintf("the %s %q (%s)", l.Kind, l.Name, l.Namespace) }

// addRecorded adds what is recorded and can be reached. A collection that has several
// names, or a name of several collections, is left to who knows which one is meant.
func (s *session) addRecorded(declared deployment.Declared, ledgers, documents map[string]*mongo.Collection) {
	names, namespaces := map[string]int{}, map[string]int{s.accounts.Database().Name() + "." + s.accounts.Name(): 1}
	key := func(n deployment.DeclaredName) string { return fmt.Sprint(n.Documents, n.Name) }
	for _, n := range declared.Names {
		if n.Here && n.Name != "" {
			names[key(n)]++
			namespaces[n.Namespace]++
		}
	}
	for _, n := range declared.Names {
		kind, flag, into := "ledger", "--with-ledger", ledgers
		if n.Documents {
			kind, flag, into = "documents", "--with-documents", documents
		}
		switch {
		case n.Name == "" || into[n.Name] != nil:
		case !n.Here:
			s.left = append(s.left, leftOut{kind, n.Name, n.Namespace, "can't be found here: name it by " + flag})
		case names[key(n)] > 1 || namespaces[n.Namespace] > 1:
			s.left = append(s.left, leftOut{kind, n.Name, n.Namespace, "is not the only name or place: name it by " + flag})
		default:
			into[n.Name] = s.named(n.Namespace)
		}
	}
}
