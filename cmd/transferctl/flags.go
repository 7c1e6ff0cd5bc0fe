package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/mongotransfer/transfer"
)

// defaultServerTimeout is how long a server is waited for, unless the URI says it.
const defaultServerTimeout = 10 * time.Second

// globalFlags say where the transfers are, and how they are used.
type globalFlags struct {
	uri, database       string
	accounts, transfers string
	ledgers, documents  []string
	fields              []string
	ids, events, policy string
	retention           time.Duration
	stallThreshold      time.Duration
	timeout             time.Duration
	json, yes           bool
}

func (f *globalFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.uri, "uri", "", "where the server is (default $MONGODB_URI, which keeps a password out of the list of processes)")
	flags.StringVar(&f.database, "database", "", "the database (default the one in the URI's path)")
	flags.StringVar(&f.transfers, "transfers", "transfers", "the collection of transfers")
	flags.StringVar(&f.accounts, "accounts", "", "the collection of accounts (default what the records say, or accounts; for roles: accounts)")
	flags.StringArrayVar(&f.ledgers, "with-ledger", nil,
		"a ledger that is not recorded on the server of the transfers: NAME=COLLECTION, NAME=DATABASE/COLLECTION,\n"+
			"NAME=URI#COLLECTION, or NAME=env:VARIABLE#COLLECTION; can be repeated")
	flags.StringArrayVar(&f.documents, "with-documents", nil, "a collection whose documents effects change, as --with-ledger")
	flags.StringArrayVar(&f.fields, "field", nil, "the name of an account's field, such as balance=amount (default what the note says)")
	flags.StringVar(&f.ids, "ids", "", "how account IDs are stored: string or objectid (default what the note says)")
	flags.StringVar(&f.events, "events", "", "the kinds of events, such as held,succeeded,failed, or none (default what the note says)")
	flags.StringVar(&f.policy, "stall-policy", "resume", "what becomes of what stalled before its commit: resume or rollback")
	flags.DurationVar(&f.stallThreshold, "stall-threshold", 30*time.Second, "from when on a transfer that shows no sign of life has stalled")
	flags.DurationVar(&f.retention, "retention", 0, "for how long transfers that are finished now are kept (default for good)")
	flags.DurationVar(&f.timeout, "timeout", 0, "for how long the command may take (default without end)")
	flags.BoolVar(&f.json, "json", false, "JSON for programs: one document, or one a line")
	flags.BoolVar(&f.yes, "yes", false, "don't ask")
}

// check refuses flags that can't be meant.
func (f *globalFlags) check() error {
	if _, err := f.stallPolicy(); err != nil {
		return err
	}
	if _, err := f.accountIDs(false); err != nil {
		return err
	}
	if f.timeout < 0 {
		return usage("--timeout is negative")
	}
	_, err := f.accountFields(transfer.Fields{})
	return err
}

func (f *globalFlags) stallPolicy() (transfer.StallPolicy, error) {
	switch f.policy {
	case "resume":
		return transfer.Resume, nil
	case "rollback":
		return transfer.RollBack, nil
	}
	return 0, usage("--stall-policy is resume or rollback, not %q", f.policy)
}

// accountIDs returns how account IDs are stored, by what the note says of ObjectIds.
func (f *globalFlags) accountIDs(declared bool) (transfer.IDCodec, error) {
	switch {
	case f.ids == "objectid" || f.ids == "" && declared:
		return transfer.ObjectIDs, nil
	case f.ids == "string" || f.ids == "":
		return transfer.StringIDs, nil
	}
	return 0, usage("--ids is string or objectid, not %q", f.ids)
}

// accountFields returns the names of fields: those of the note, unless a flag says
// others.
func (f *globalFlags) accountFields(declared transfer.Fields) (transfer.Fields, error) {
	names := map[string]*string{
		"balance": &declared.Balance, "pending": &declared.Pending, "fence": &declared.Fence, "floor": &declared.Floor,
		"currency": &declared.Currency, "closed": &declared.Closed, "frozen": &declared.Frozen,
	}
	for _, given := range f.fields {
		role, name, _ := strings.Cut(given, "=")
		if names[role] == nil || name == "" {
			return declared, usage("--field is balance, pending, fence, floor, currency, closed or frozen, and =NAME: not %q", given)
		}
		*names[role] = name
	}
	return declared, nil
}

// eventKinds returns the kinds of events: those of the note, unless a flag says others.
func (f *globalFlags) eventKinds(declared []string) (kinds []transfer.EventKind, err error) {
	if f.events != "" {
		declared = nil
		if f.events != "none" {
			declared = strings.Split(f.events, ",")
		}
	}
	for _, kind := range declared {
		switch k := transfer.EventKind(kind); k {
		case transfer.EventHeld, transfer.EventSucceeded, transfer.EventFailed:
			kinds = append(kinds, k)
		default:
			return nil, fmt.Errorf("%w: there is no kind of events %q", transfer.ErrInvalidRequest, kind)
		}
	}
	return kinds, nil
}
