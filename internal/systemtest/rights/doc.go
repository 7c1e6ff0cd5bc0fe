// Package rights tests the roles of docs/roles on a server with users: each verb with
// exactly its rights, and without each of them.
package rights
