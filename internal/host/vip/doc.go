// Package vip puts virtual addresses on a device, through rtnetlink.
package vip
