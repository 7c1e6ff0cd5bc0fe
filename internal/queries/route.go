package queries

import (
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/document"
)

// Route names the clusters that a transfer needs beside that of the transfers, which all
// of them need. Transfers on one route hang together. The zero value is the route of
// those that need no other cluster.
type Route string

// maxClustersTold is how many clusters of a route are told.
const maxClustersTold = 3

// String tells which clusters these are: each by the first of the names that are
// registered on it.
func (r Route) String() string {
	if r == "" {
		return "the cluster of the transfers"
	}
	names := r.clusters()
	if more := len(names) - maxClustersTold; more > 0 {
		names = append(names[:maxClustersTold:maxClustersTold], fmt.Sprintf("%d more", more))
	}
	return "the clusters of " + strings.Join(names, ", ")
}

// clusters returns the names of the clusters. Names of places are quoted: no line ends in
// one.
func (r Route) clusters() []string {
	if r == "" {
		return nil
	}
	return strings.Split(string(r), "\n")
}

func routeOver(clusters []string) Route { return Route(strings.Join(clusters, "\n")) }

// RouteOf returns the route of a transfer. What is not registered here counts for
// nothing: no cluster is asked about it.
func (s *Queries) RouteOf(t document.Transfer) Route {
	var clusters []string
	for _, p := range t.Addresses() {
		for _, cluster := range s.needs[p] {
			if !slices.Contains(clusters, cluster) {
				clusters = append(clusters, cluster)
			}
		}
	}
	slices.Sort(clusters)
	return routeOver(clusters)
}

// needsOf returns the clusters that must answer before a place can be used, but for that
// of the transfers. Documents may wait for the cluster of a ledger: see noAccounts.
func (s *Queries) needsOf() map[document.Address][]string {
	places := s.Addresses()
	slices.SortFunc(places, func(a, b document.Address) int { return strings.Compare(a.String(), b.String()) })
	names := map[*mongo.Client]string{}
	for _, p := range places {
		client := s.At(p).Commands.Database().Client()
		if _, named := names[client]; !named && !s.At(p).SameClient {
			names[client] = p.String()
		}
	}
	needs := map[document.Address][]string{}
	for _, p := range places {
		for _, q := range append([]document.Address{p}, s.At(p).Namesakes...) {
			name := names[s.At(q).Commands.Database().Client()]
			if name != "" && !slices.Contains(needs[p], name) {
				needs[p] = append(needs[p], name)
			}
		}
	}
	return needs
}

// off returns the conditions by which the transfers on the given routes are left out of a
// search. Thousands may wait for a cluster that is away, and nobody wants to read them
// again and again.
func (s *Queries) off(routes []Route) bson.D {
	if len(routes) == 0 {
		return nil
	}
	var without bson.A
	for _, r := range routes {
		without = append(without, s.on(r))
	}
	return bson.D{{Key: "$nor", Value: without}}
}

// on returns the conditions that the transfers on a route meet, and no others: they touch
// each of its clusters, and none beside these.
func (s *Queries) on(r Route) bson.D {
	touches := func(operator string, counts func(needs []string) bool) (ledgers, documents bson.D) {
		names := map[bool]bson.A{false: {}, true: {}}
		for p, needs := range s.needs {
			if counts(needs) {
				names[p.Documents] = append(names[p.Documents], p.Name)
			}
		}
		return bson.D{{Key: "legs.ledger", Value: bson.D{{Key: operator, Value: names[false]}}}},
			bson.D{{Key: "effects.documents", Value: bson.D{{Key: operator, Value: names[true]}}}}
	}
	ledgers, documents := touches("$nin", func(needs []string) bool {
		return slices.ContainsFunc(needs, func(name string) bool { return !slices.Contains(r.clusters(), name) })
	})
	all := bson.A{ledgers, documents}
	for _, cluster := range r.clusters() {
		ledgers, documents := touches("$in", func(needs []string) bool { return slices.Contains(needs, cluster) })
		all = append(all, bson.D{{Key: "$or", Value: bson.A{ledgers, documents}}})
	}
	return bson.D{{Key: "$and", Value: all}}
}
