package transfer

import (
	"context"
	"time"

	"github.com/mongotransfer/transfer/internal/accounts"
)

// clearPatience is for how long CloseAccount waits for the markers of committed transfers
// to go.
// An executor that is alive removes them within a quarter of a second.
const clearPatience = 5 * time.Second

// closing is a CloseAccount under way.
type closing struct {
	coordinator *Coordinator
	until       time.Time
	hurried     map[string]func() // by transfer; they are called at the end
}

// judge judges an account that could not be closed.
//
// The marker of a payer stays for a while after the transfer has answered.
//
//  1. A transfer moves all of alice's money away, and answers.
//  2. Its caller closes alice, and is refused because of a transfer that is over.
//
// So where all that is in flight is committed, it is waited for.
// Not so where there is money: waiting takes none away.
func (c *closing) judge(ctx context.Context, status accounts.Status) (done bool, err error) {
	switch {
	case status.Closed:
		return true, nil
	case status.Malformed:
		return true, ErrAmountKind
	case status.Markers > 0:
		committed, err := c.coordinator.accounts.OnlyCommitted(ctx, status)
		switch {
		case err != nil:
			return false, err
		case !committed || !c.coordinator.now().Before(c.until):
			return true, ErrAccountBusy
		case status.Empty:
			c.hurry(status.InFlight)
			return false, nil
		}
	}
	if !status.Empty {
		return true, ErrAccountNotEmpty
	}
	return false, nil
}

// hurry has what is deferred of the transfers sent at once.
func (c *closing) hurry(ids []string) {
	for _, id := range ids {
		if _, known := c.hurried[id]; known {
			continue
		}
		if c.hurried == nil {
			c.hurried = map[string]func(){}
		}
		c.hurried[id] = c.coordinator.hurryUp(id)
	}
}

// end says that nothing has to be hurried up any more.
func (c *closing) end() {
	for _, done := range c.hurried {
		done()
	}
}
