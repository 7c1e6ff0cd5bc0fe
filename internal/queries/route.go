package queries

import (
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
)

// Route names the clusters that a transfer needs beside that of the transfers, which all
// of them need. If one of these clusters hangs, all transfers on the route hang. The zero
// value is the route of transfers that need no other cluster.
type Route string

// maxClustersNamed is how many clusters of a route its text names.
const maxClustersNamed = 3

// String names the clusters, each by the first address that is registered on it.
func (r Route) String() string {
	if r == "" {
		return "the cluster of the transfers"
	}
	names := r.clusters()
	if more := len(names) - maxClustersNamed; more > 0 {
		names = append(names[:maxClustersNamed:maxClustersNamed], fmt.Sprintf("%d more", more))
	}
	return "the clusters of " + strings.Join(names, ", ")
}

// clusters returns the names of the clusters. Addresses are quoted, so none contains a
// line break.
func (r Route) clusters() []string {
	if r == "" {
		return nil
	}
	return strings.Split(string(r), "\n")
}

func routeOver(clusters []string) Route { return Route(strings.Join(clusters, "\n")) }

// RouteOf returns the route of a transfer. Addresses that are not registered here don't
// count: no cluster is asked about them.
func (q *Queries) RouteOf(t document.Transfer) Route {
	var clusters []string
	for _, a := range t.Addresses() {
		for _, cluster := range q.needs[a] {
			if !slices.Contains(clusters, cluster) {
				clusters = append(clusters, cluster)
			}
		}
	}
	slices.Sort(clusters)
	return routeOver(clusters)
}

// OneRoute reports whether all transfers take the same route: there is no other cluster.
func (q *Queries) OneRoute() bool {
	for _, needs := range q.needs {
		if len(needs) > 0 {
			return false
		}
	}
	return true
}

// clusterNeeds returns the clusters that must answer before an address can be used,
// without that of the transfers. Documents may have to wait for the cluster of a ledger:
// it has to say that they are not its accounts.
func clusterNeeds(catalog *collections.Catalog) map[document.Address][]string {
	addresses := catalog.Addresses()
	slices.SortFunc(addresses, func(a, b document.Address) int { return strings.Compare(a.String(), b.String()) })
	names := map[*mongo.Client]string{}
	for _, a := range addresses {
		client := catalog.At(a).Commands.Database().Client()
		if _, named := names[client]; !named && !catalog.At(a).SameClient {
			names[client] = a.String()
		}
	}
	needs := map[document.Address][]string{}
	for _, a := range addresses {
		for _, asked := range append([]document.Address{a}, catalog.At(a).Namesakes...) {
			name := names[catalog.At(asked).Commands.Database().Client()]
			if name != "" && !slices.Contains(needs[a], name) {
				needs[a] = append(needs[a], name)
			}
		}
	}
	return needs
}

// excluding returns the condition that leaves the transfers on the given routes out of a
// search. Thousands may wait for a cluster that is away, and no search should read them
// again and again.
func (q *Queries) excluding(routes []Route) bson.D {
	if len(routes) == 0 {
		return nil
	}
	var excluded bson.A
	for _, r := range routes {
		excluded = append(excluded, q.onRoute(r))
	}
	return bson.D{{Key: "$nor", Value: excluded}}
}

// onRoute returns the condition that the transfers on a route meet, and no others: they
// touch each of its clusters, and none beside these.
func (q *Queries) onRoute(r Route) bson.D {
	clusters := r.clusters()
	ledgers, documents := q.touching("$nin", func(needs []string) bool {
		return slices.ContainsFunc(needs, func(name string) bool { return !slices.Contains(clusters, name) })
	})
	all := bson.A{ledgers, documents}
	for _, cluster := range clusters {
		ledgers, documents := q.touching("$in", func(needs []string) bool { return slices.Contains(needs, cluster) })
		all = append(all, bson.D{{Key: "$or", Value: bson.A{ledgers, documents}}})
	}
	return bson.D{{Key: "$and", Value: all}}
}

// touching returns conditions on the ledgers and on the documents of a transfer: that
// they are among those, or not among those, whose needed clusters count.
func (q *Queries) touching(operator string, counts func(needs []string) bool) (ledgers, documents bson.D) {
	ledgerNames, documentNames := bson.A{}, bson.A{}
	for a, needs := range q.needs {
		switch {
		case !counts(needs):
		case a.Documents:
			documentNames = append(documentNames, a.Name)
		default:
			ledgerNames = append(ledgerNames, a.Name)
		}
	}
	return bson.D{{Key: "legs.ledger", Value: bson.D{{Key: operator, Value: ledgerNames}}}},
		bson.D{{Key: "effects.documents", Value: bson.D{{Key: operator, Value: documentNames}}}}
}
