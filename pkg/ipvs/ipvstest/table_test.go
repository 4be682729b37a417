package ipvstest_test

import (
	"testing"

	"github.com/sluice-lb/sluice/pkg/ipvs"
	"github.com/sluice-lb/sluice/pkg/ipvs/ipvstest"
)

// connecting is a table in which a connection is a counter.
type connecting struct{ *ipvstest.Table }

func (c connecting) Connect(t *testing.T, s ipvs.ServiceKey, d ipvs.DestinationKey) {
	if err := c.SetCounters(s, d, ipvs.Counters{Active: 1}); err != nil {
		t.Fatal(err)
	}
}

func TestTableConformance(t *testing.T) {
	ipvstest.Conformance(t, func(*testing.T) ipvstest.Kernel { return connecting{ipvstest.New()} })
}
