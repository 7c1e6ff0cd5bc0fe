// Package holds tests holds: what is held, what becomes of it, when it expires, and who
// decides where several race.
package holds
