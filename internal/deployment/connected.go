package deployment

import (
	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
)

// MaxPlacesSeen is how many places of a transfer are looked at without a list of them.
// Those with more ask [Store.Connect] each time.
const MaxPlacesSeen = 4

// Connected reports whether [Store.Connect] has been through with all the places of a
// transfer, so that it need not be called again: what it finds fit stays so. It takes no
// lock and allocates nothing, but where two of the places have one name on different
// clients.
func (s *Deployment) Connected(t *document.Transfer) bool {
	var seen placesSeen
	for p := range t.Participants() {
		if address, registered := p.Address(); registered && !s.connected(&seen, s.At(address)) {
			return false
		}
	}
	return seen.n > 0 // of a transfer without places nothing is known
}

// placesSeen are the places of one transfer.
type placesSeen struct {
	places [MaxPlacesSeen]*collections.Collection
	n      int
}

// connected takes in a place, nil if it is not registered, and reports whether it was
// connected, and told apart from the others.
func (s *Deployment) connected(seen *placesSeen, l *collections.Collection) bool {
	if l == nil || !s.of(l).connected.Load() {
		return false
	}
	for _, other := range seen.places[:seen.n] {
		if other == l {
			return true
		}
		if other.Namespace == l.Namespace && !s.knownDistinct(l.Commands, other.Commands) {
			return false
		}
	}
	if seen.n == MaxPlacesSeen {
		return false
	}
	seen.places[seen.n] = l
	seen.n++
	return true
}
