// Package top is what "sluice top" shows: the pools and real servers, live, with what
// is wrong first.
//
// It decides what a row is, how rows are sorted and filtered, and what each key does.
// It is pure: a Model takes snapshots, keys and the size of the terminal, and gives
// lines; the terminal is the caller's. A row is a real server in its virtual server, a
// sorry server, or a destination that drains and is configured no longer, since all of
// them have connections. Everything fits into 80 columns; what is wider is given to the
// reason, which is last.
//
// The place in the list is kept by what is under the cursor and not by its number, so
// that a server that changes its place under another order does not slip away from
// under somebody's finger.
package top
