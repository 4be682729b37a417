// Package filter writes our tables of nftables: the guard and the marks of groups.
package filter
