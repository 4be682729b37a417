// Package lane leads a check to a virtual address through one real server: a mark, a
// rule and a route.
package lane
