package chaos

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer"
)

const (
	// orders is the collection of documents that payments change.
	orders = "orders"
	// mostOrders is the number of orders.
	// Each is paid for one orderPeriod, and after the last one the first comes again.
	mostOrders  = 2000
	orderPeriod = 200 * time.Millisecond

	unpaid, paid = "unpaid", "paid"
)

// documents returns the option that registers the orders with a coordinator.
func documents(db *mongo.Database) transfer.Option {
	return transfer.WithDocuments(orders, db.Collection(orders))
}

func orderName(i int) string { return fmt.Sprintf("order-%d", i) }

// openOrders stores all orders.
func openOrders(ctx context.Context, db *mongo.Database) error {
	all := make([]any, mostOrders)
	for i := range all {
		all[i] = bson.D{{Key: "_id", Value: orderName(i)}, {Key: "status", Value: unpaid}}
	}
	_, err := db.Collection(orders).InsertMany(ctx, all)
	return err
}

// payID returns the ID of a payment of an order.
// An order has several payments, and some of them move no money.
func payID(order, unique string) string { return fmt.Sprintf("pay %s by %s", order, unique) }

// orderOf returns the order that an ID's transfer pays.
func orderOf(id string) (order string, pays bool) {
	var rest string
	n, _ := fmt.Sscanf(id, "pay %s by %s", &order, &rest)
	return order, n == 2
}

// effect returns the change that a payment makes to its order.
func effect(id, order string) []transfer.Effect {
	return []transfer.Effect{{
		Documents: orders, ID: order,
		Require: bson.D{{Key: "status", Value: unpaid}},
		Set:     bson.D{{Key: "status", Value: paid}, {Key: "paidBy", Value: id}},
	}}
}

// pay pays the order of the moment, as other callers do.
// Sometimes it submits the payment, or cancels it.
func (c *caller) pay(ctx context.Context) {
	order := orderName(int(time.Now().UnixNano() / int64(orderPeriod) % mostOrders))
	id := payID(order, c.newID())
	switch c.rng.IntN(6) {
	case 0:
		c.submit(ctx, id)
	case 1:
		c.cancelRace(ctx, id)
	default:
		c.transfer(ctx, id)
	}
}

// orderDocument is an order as it is stored.
type orderDocument struct {
	ID      string           `bson:"_id"`
	Status  string           `bson:"status"`
	PaidBy  string           `bson:"paidBy"`
	Pending map[string]int64 `bson:"pending"`
}

// String returns the order as text.
func (o orderDocument) String() string {
	return fmt.Sprintf("{_id: %s, status: %s, paidBy: %s, pending: %v}", o.ID, o.Status, o.PaidBy, o.Pending)
}

// reserved matches the orders that a payment has reserved.
func reserved() bson.D {
	return bson.D{{Key: "pending", Value: bson.D{{Key: "$nin", Value: bson.A{nil, bson.D{}}}}}}
}

// misreserved returns what is wrong with an order that has markers, or "".
func misreserved(o orderDocument, transfers map[string]transferDocument) string {
	for key := range o.Pending {
		id, done := traceOf(key)
		t, stored := transfers[id]
		order, _ := orderOf(id)
		switch {
		case len(o.Pending) > 1:
			return "is reserved by several payments"
		case !stored || !t.live():
			return fmt.Sprintf("is reserved by %s, which is %q", id, t.State)
		case order != o.ID:
			return fmt.Sprintf("is reserved by %s, which does not pay it", id)
		case done && (t.State == transfer.StateRollback || o.Status != paid || o.PaidBy != id):
			return fmt.Sprintf("has a done mark of %s, and is %s", id, o.Status)
		case !done && (o.Status != unpaid || o.PaidBy != ""):
			return fmt.Sprintf("is reserved by %s, and %s already", id, o.Status)
		}
	}
	return ""
}

// paidOrders checks that each order is paid by the one payment that has succeeded, or by
// none, and is not reserved.
func (a *audit) paidOrders() {
	payments := map[string][]string{}
	for _, id := range slices.Sorted(maps.Keys(a.transfers)) {
		if order, pays := orderOf(id); pays && a.transfers[id].State == transfer.StateSuccess {
			payments[order] = append(payments[order], id)
		}
	}
	for id, o := range a.orders {
		want := orderDocument{ID: id, Status: unpaid}
		if len(payments[id]) > 0 {
			want.Status, want.PaidBy = paid, payments[id][0]
		}
		if len(payments[id]) > 1 || len(o.Pending) > 0 || o.Status != want.Status || o.PaidBy != want.PaidBy {
			a.wrong("order "+id, o, "order %s has the successful payments %q", id, payments[id])
		}
		delete(payments, id)
	}
	for id := range payments {
		a.findings.add("order "+id, "%s: the order %s, which was paid, is not there", a.when, id)
	}
}
