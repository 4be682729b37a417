package ipvs_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"time"

	"github.com/sluice-lb/sluice/pkg/ipvs"
)

func Example() {
	c, err := ipvs.Dial(ipvs.WithTimeout(2 * time.Second))
	if errors.Is(err, ipvs.ErrNoModule) {
		fmt.Println("modprobe ip_vs, then again")
		return
	} else if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()

	ctx := context.Background()
	web := ipvs.Service{
		ServiceKey: ipvs.ServiceKey{Protocol: ipvs.TCP, Addr: netip.MustParseAddr("192.0.2.1"), Port: 80},
		Scheduler:  "wlc",
	}
	one := ipvs.Destination{
		DestinationKey: ipvs.DestinationKey{Addr: netip.MustParseAddr("198.51.100.1"), Port: 8080},
		Weight:         10,
	}
	two := one
	two.Addr = netip.MustParseAddr("198.51.100.2")
	for i, err := range c.Batch(ctx, []ipvs.Op{
		{Kind: ipvs.OpAddService, Service: web},
		{Kind: ipvs.OpAddDest, Service: web, Destination: one},
		{Kind: ipvs.OpAddDest, Service: web, Destination: two},
	}) {
		if err != nil && !errors.Is(err, fs.ErrExist) {
			fmt.Println(i, err)
		}
	}

	// Quiesce one: its connections go on, new ones go elsewhere.
	one.Weight = 0
	if err := c.SetDest(ctx, web, one); err != nil {
		fmt.Println(err)
	}
	destinations, err := c.Destinations(ctx, web.ServiceKey)
	if err != nil {
		fmt.Println(err)
	}
	for _, d := range destinations {
		fmt.Println(d.DestinationKey, d.Weight, d.Counters.Active+d.Counters.Inactive)
	}
}
