package config

// label prints a name for people.
func (p *printer) label(l string) {
	if l != "" {
		p.ext("label", word(l))
	}
}

// protection prints what keeps failures from taking too much with them.
func (p *printer) protection(vs *VirtualServer) {
	if vs.MinAlive != (Floor{}) {
		p.ext("min_alive", vs.MinAlive.String())
	}
	if d := vs.FlapDamping; d.Count != 0 {
		p.ext("flap_damping", number(d.Count), timer(d.Within))
	}
}
