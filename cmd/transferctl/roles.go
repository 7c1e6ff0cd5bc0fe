package main

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// roleFiles are copies of docs/roles, which a test compares.
//
//go:embed roles/*.json
var roleFiles embed.FS

// roleView is a role as the command that creates it.
type roleView struct {
	// Server is the name of the ledger on whose server the role is, or "" for that of the
	// transfers.
	Server   string      `json:"server,omitempty"`
	Database string      `json:"database"`
	Command  roleCommand `json:"command"`
}

type roleCommand struct {
	CreateRole string      `json:"createRole"`
	Privileges []privilege `json:"privileges"`
	Roles      []string    `json:"roles"`
}

type privilege struct {
	Resource resource `json:"resource"`
	Actions  []string `json:"actions"`
}

type resource struct {
	DB         string `json:"db"`
	Collection string `json:"collection"`
}

func (p *program) rolesCommand() *cobra.Command {
	return p.command("roles [service|worker|migration|auditor]", "the rights that a process needs, as commands that create roles",
		"Roles prints the roles with the least rights, under the names that the flags say, as commands for mongosh.\n"+
			"It asks no server, and knows no records: name the accounts, and all ledgers and documents, by flags.",
		rolesArgs, func(_ context.Context, args []string) error {
			_, database, err := p.where()
			if err != nil {
				return err
			}
			if p.flags.accounts == "" || len(p.flags.ledgers)+len(p.flags.documents) == 0 {
				p.note("roles asks no server: these are the roles for the collections that --accounts, --with-ledger and " +
					"--with-documents name, and where there is no --accounts, for accounts")
			}
			names := args
			if len(names) == 0 {
				names = roleNames()
			}
			for _, name := range names {
				roles, err := p.roles(name, database)
				if err != nil {
					return err
				}
				for _, role := range roles {
					if err := p.answer(role, role.write); err != nil {
						return err
					}
				}
			}
			return nil
		})
}

func roleNames() []string { return []string{"service", "worker", "migration", "auditor"} }

func rolesArgs(_ *cobra.Command, args []string) error {
	for _, name := range args {
		if !slices.Contains(roleNames(), name) {
			return usage("there is no role %q: there are %s", name, strings.Join(roleNames(), ", "))
		}
	}
	return nil
}

// roles returns a role in the deployment's names, one for each server.
func (p *program) roles(name, database string) ([]roleView, error) {
	text, err := roleFiles.ReadFile("roles/" + name + ".json")
	if err != nil {
		return nil, err
	}
	var template roleCommand
	if err := json.Unmarshal(text, &template); err != nil {
		return nil, err
	}
	accounts := p.flags.accounts
	if accounts == "" {
		accounts = "accounts"
	}
	home := roleView{Database: database, Command: roleCommand{CreateRole: template.CreateRole, Roles: []string{}}}
	for _, given := range template.Privileges {
		renamed := given
		renamed.Resource.DB = database
		if rest, found := strings.CutPrefix(given.Resource.Collection, "accounts"); found {
			renamed.Resource.Collection = accounts + rest
		}
		if rest, found := strings.CutPrefix(given.Resource.Collection, "transfers"); found {
			renamed.Resource.Collection = p.flags.transfers + rest
		}
		home.Command.add(renamed)
	}
	all := []roleView{home}
	for _, flag := range []struct {
		values    []string
		documents bool
	}{{p.flags.ledgers, false}, {p.flags.documents, true}} {
		for _, value := range flag.values {
			if all, err = p.withCollection(all, template, value, flag.documents); err != nil {
				return nil, err
			}
		}
	}
	for i := range all {
		if slices.ContainsFunc(all[i].Command.Privileges, func(g privilege) bool { return g.Resource.DB != all[i].Database }) {
			all[i].Database = "admin" // a role of any other database has rights on that one alone
		}
	}
	return all, nil
}

// withCollection adds what a role needs of one more collection.
func (p *program) withCollection(all []roleView, template roleCommand, value string, documents bool) ([]roleView, error) {
	name, text, ok := strings.Cut(value, "=")
	if !ok || name == "" || text == "" {
		return nil, usage("--with-ledger and --with-documents are NAME=COLLECTION, not %q", value)
	}
	at, err := placeOf(text, p.lookup)
	if err != nil {
		return nil, err
	}
	if at.uri == "" {
		all[0].Command.addParticipant(template, cmp.Or(at.database, all[0].Database), at.collection, documents)
		return all, nil
	}
	there := roleView{Server: name, Database: at.database, Command: roleCommand{CreateRole: template.CreateRole, Roles: []string{}}}
	there.Command.addParticipant(template, at.database, at.collection, documents)
	return append(all, there), nil
}

// addParticipant adds what the template has for the accounts, for another collection.
func (c *roleCommand) addParticipant(template roleCommand, database, collection string, documents bool) {
	for _, given := range template.Privileges {
		rest, found := strings.CutPrefix(given.Resource.Collection, "accounts")
		if !found && given.Resource.Collection != "" {
			continue
		}
		added := privilege{Resource: resource{DB: database}, Actions: slices.Clone(given.Actions)}
		if found {
			added.Resource.Collection = collection + rest
		}
		if documents && found && rest == "" { // nobody opens an account there
			added.Actions = slices.DeleteFunc(added.Actions, func(a string) bool { return a == "insert" })
		}
		c.add(added)
	}
}

// add adds a privilege, unless there is one on the same resource.
func (c *roleCommand) add(added privilege) {
	for _, there := range c.Privileges {
		if there.Resource == added.Resource {
			return
		}
	}
	c.Privileges = append(c.Privileges, added)
}

func (v roleView) write(w *page) {
	if v.Server != "" {
		w.line("// on the server of %s", v.Server)
	}
	name, nameErr := json.Marshal(v.Database)
	text, err := json.MarshalIndent(v.Command, "", "  ")
	if err != nil || nameErr != nil {
		return
	}
	w.lines("db.getSiblingDB(" + string(name) + ").runCommand(" + string(text) + ")")
}
