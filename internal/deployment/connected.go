package deployment

import (
	"time"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
)

// maxCompared is how many collections of one transfer Connected compares. A transfer that
// touches more asks [Deployment.Connect] each time.
const maxCompared = 4

// Connected reports whether [Deployment.Connect] has succeeded for all collections of a
// transfer, so that it need not be called again until one of them is to be confirmed.
// Connected takes no lock and allocates nothing, unless two of the collections have one
// name on different clients.
func (d *Deployment) Connected(t *document.Transfer) bool {
	compared := comparedCollections{now: d.catalog.Clock.Now()}
	if d.known[d.catalog.Originals].sign.due(compared.now) {
		return false
	}
	for p := range t.Participants() {
		if address, registered := p.Address(); registered && !d.connectedBeside(&compared, d.catalog.At(address)) {
			return false
		}
	}
	return compared.n > 0 // nothing is known of a transfer that touches nothing
}

// comparedCollections are the collections of one transfer.
type comparedCollections struct {
	now  time.Time
	list [maxCompared]*collections.Collection
	n    int
}

// connectedBeside reports whether a collection, nil if it is not registered, is connected
// and known to be another one than those before it, and adds it to these.
func (d *Deployment) connectedBeside(before *comparedCollections, c *collections.Collection) bool {
	if c == nil || !d.known[c].connected.Load() || d.known[c].sign.due(before.now) {
		return false
	}
	for _, other := range before.list[:before.n] {
		if other == c {
			return true
		}
		if other.Namespace == c.Namespace && !d.knownDistinct(c.Commands, other.Commands) {
			return false
		}
	}
	if before.n == maxCompared {
		return false
	}
	before.list[before.n] = c
	before.n++
	return true
}
