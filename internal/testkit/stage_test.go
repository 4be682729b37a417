package testkit

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestStage(t *testing.T) {
	t.Parallel()
	var st Stage
	var order []string
	st.Play(func() {
		st.Cleanup(func() { order = append(order, "first") })
		st.Cleanup(func() { order = append(order, "second") })
		st.Errorf("a %d", 1)
		st.Fatalf("b")
		order = append(order, "after a fatal error")
	})
	if diff := cmp.Diff([]string{"second", "first"}, order); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a 1", "b"}, st.Failures); diff != "" {
		t.Errorf("failures (-want +got):\n%s", diff)
	}
}
