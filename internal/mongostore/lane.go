package mongostore

import (
	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// Lane is what calls have in common that can go out in one command.
// Two lanes can be compared.
type Lane struct {
	ledger *collections.Collection // nil: the transfers
	kind   laneKind
}

type laneKind uint8

const (
	laneInsert laneKind = iota + 1
	laneClaim           // of stored transfers
	laneChange
	laneRead  // with read concern majority: fences, or transfers
	laneLook  // deciding reads
	laneWrite // to participants
)

// LaneOf returns the lane of an attempt's operation.
func LaneOf(a *Attempt, op protocol.Operation) Lane {
	switch op.Kind {
	case protocol.Claim:
		if op.Claim == protocol.Insert {
			return Lane{kind: laneInsert}
		}
		return Lane{kind: laneClaim}
	case protocol.Verify, protocol.MarkHeld, protocol.Decide, protocol.Finish:
		return Lane{kind: laneChange}
	case protocol.ReadTransfer:
		return Lane{kind: laneRead}
	case protocol.LookTransfer:
		return Lane{kind: laneLook}
	case protocol.ReadFence:
		return Lane{a.participants[op.Participant].subject.Collection, laneRead}
	case protocol.Look:
		return Lane{a.participants[op.Participant].subject.Collection, laneLook}
	case protocol.Prepare, protocol.Pay, protocol.Settle, protocol.Clear, protocol.Undo, protocol.FenceOnly:
	}
	return Lane{a.participants[op.Participant].subject.Collection, laneWrite}
}

// SubjectOf returns the document that an operation writes or reads.
func SubjectOf(a *Attempt, op protocol.Operation) collections.Subject {
	if op.Participant == protocol.NoParticipant {
		return collections.Subject{ID: a.Transfer.ID}
	}
	return a.participants[op.Participant].subject
}

// FieldsOf returns how many fields of an effect an operation compares or sets.
func FieldsOf(a *Attempt, op protocol.Operation) int {
	if op.Participant == protocol.NoParticipant || a.participants[op.Participant].effect == nil {
		return 0
	}
	return a.participants[op.Participant].effect.FieldsOf(op.Kind)
}

// ClusterOf returns the cluster that a lane's commands go to.
func (s *Store) ClusterOf(lane Lane) collections.Cluster {
	to := s.catalog.Transfers
	if lane.ledger != nil {
		to = lane.ledger.Commands
	}
	return collections.Cluster{Client: to.Database().Client()}
}

// ClusterCount returns how many clusters are registered.
func (s *Store) ClusterCount() int { return len(s.catalog.Clusters) }

// ClustersOf returns the clusters that a transfer's participants are in, always in the
// same order. Every transfer needs the transfers' cluster: it is named only where there
// is no other.
func (s *Store) ClustersOf(t document.Transfer) []collections.Cluster {
	var touched []collections.Cluster
	for _, cluster := range s.catalog.Clusters[1:] {
		if t.Touches(func(a document.Address) bool { return s.catalog.At(a).Cluster() == cluster }) {
			touched = append(touched, cluster)
		}
	}
	if len(touched) == 0 {
		return s.catalog.Clusters[:1:1]
	}
	return touched
}
