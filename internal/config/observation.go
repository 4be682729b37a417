package config

// MetricsDetail is how much the metrics tell.
type MetricsDetail int

// How much: of each virtual server, or of each real server and check too.
const (
	MetricsService MetricsDetail = iota
	MetricsServer
)

// String returns the keyword's value.
func (d MetricsDetail) String() string {
	if d == MetricsServer {
		return "server"
	}
	return "service"
}

// observation prints how the daemon shows itself to monitoring.
func (p *printer) observation(g *Global) {
	if g.HTTPListen.IsValid() {
		p.ext("http_listen", g.HTTPListen.String())
	}
	if g.MetricsDetail != MetricsService {
		p.ext("metrics_detail", g.MetricsDetail.String())
	}
	if g.ControlGroup.Name != "" {
		p.ext("control_group", g.ControlGroup.Name)
	}
	if g.ControlReadGroup.Name != "" {
		p.ext("control_read_group", g.ControlReadGroup.Name)
	}
}
