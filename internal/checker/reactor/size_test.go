package reactor

import (
	"testing"
	"unsafe"
)

// What each of ten thousand tasks takes is watched: the budget of a real server is
// 1,400 octets over all layers.
func TestTaskIsSmall(t *testing.T) {
	if n := unsafe.Sizeof(task{}); n > 192 {
		t.Errorf("a task takes %d octets", n)
	}
	if n := unsafe.Sizeof(command{}); n > 32 {
		t.Errorf("a command takes %d octets", n)
	}
	t.Log(unsafe.Sizeof(task{}), unsafe.Sizeof(link{}))
}
