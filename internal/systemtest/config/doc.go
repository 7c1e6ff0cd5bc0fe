// Package config tests how a deployment is set up and checked: notes, indexes,
// validators, names of fields, servers that are refused, retention.
package config
