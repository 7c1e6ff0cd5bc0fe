// Package processes lets processes of their own work for one bank, and kills, freezes and
// stops them: who takes over what they leave, how soon, and who is left alone.
package processes
