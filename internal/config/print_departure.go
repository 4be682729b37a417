package config

// drift prints what global_defs says of reconciling, and of UDP drains, where it is
// not the default.
func (p *printer) drift(g *Global) {
	if g.UDPDrainTimeout != DefaultUDPDrainTimeout {
		p.ext("udp_drain_timeout", timer(g.UDPDrainTimeout))
	}
	if g.ReconcileInterval != DefaultReconcileInterval {
		p.ext("reconcile_interval", timer(g.ReconcileInterval))
	}
	if g.Drift != DriftRepair {
		p.ext("drift", g.Drift.String())
	}
	if !g.ShareChecks {
		p.ext("share_checks", yesNo(g.ShareChecks))
	}
}

// departure prints how servers leave a virtual server where it is not inherited.
func (p *printer) departure(vs *VirtualServer, g *Global) {
	if vs.DrainTimeout != g.DrainTimeout {
		p.ext("drain_timeout", timer(vs.DrainTimeout))
	}
	if vs.UDPDrainTimeout != g.UDPDrainTimeout {
		p.ext("udp_drain_timeout", timer(vs.UDPDrainTimeout))
	}
	if vs.OnFailure != OnFailureRemove {
		p.ext("on_failure", vs.OnFailure.String())
	}
}
