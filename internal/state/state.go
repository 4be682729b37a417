package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"
)

// Version is that of the file's format. A change that an older release would
// misread raises it; a new field alone does not.
const Version = 1

// State is one saved state. It is not changed once it was handed over.
type State struct {
	Version int       `json:"version"`
	Saved   time.Time `json:"saved"`
	// Generation counts configurations, over restarts.
	Generation uint64 `json:"generation"`
	// Services are ours, leaving ones included.
	Services []Service `json:"services,omitempty"`
	// VirtualServers are the quorums.
	VirtualServers []VirtualServer `json:"virtual_servers,omitempty"`
	Verdicts       []Verdict       `json:"verdicts,omitempty"`
	// Marks are the firewall marks of the configuration.
	Marks []Mark `json:"marks,omitempty"`
	// Operator is the part of the commands that operators gave.
	Operator json.RawMessage `json:"operator,omitempty"`
	// Lists make more of the lists above; nil for no more.
	Lists *Lists `json:"-"`
}

// Service is a service of the kernel's table that is ours.
type Service struct {
	// Service is its name: "192.0.2.1:80/tcp" or "fwmark 5/inet".
	Service string `json:"service"`
	// DrainTimeout bounds the drains of one that is no longer configured; 0 is no
	// bound.
	DrainTimeout time.Duration `json:"drain_timeout_ns,omitempty"`
	Destinations []Destination `json:"destinations,omitempty"`
	// More are further destinations, made while they are written; nil for no more.
	More iter.Seq[Destination] `json:"-"`
}

// Destination is one of ours in a service.
type Destination struct {
	Destination string `json:"destination"`
	Drain       *Drain `json:"drain,omitempty"`
}

// Drain says of a destination on its way out since when it leaves, and why.
type Drain struct {
	Since time.Time `json:"since"`
	Why   string    `json:"why"`
	// Limit is its real server's own drain_timeout; nil if it had none of its own.
	Limit *time.Duration `json:"limit_ns,omitempty"`
}

// VirtualServer is what is known of one as a whole.
type VirtualServer struct {
	VirtualServer string `json:"virtual_server"`
	Quorum        bool   `json:"quorum"`
}

// Verdict is the last one of a checker, identified by what it asks and not by its
// place in the file.
type Verdict struct {
	Key
	Up bool `json:"up"`
	// At is when a run last confirmed it.
	At time.Time `json:"at"`
	// Reason is the failed outcome, for people.
	Reason string `json:"reason,omitempty"`
}

// Key identifies a checker.
type Key struct {
	VirtualServer string `json:"virtual_server"`
	RealServer    string `json:"real_server"`
	// Checker is a hash of what is asked.
	Checker string `json:"checker"`
}

// ErrNewer is wrapped by Decode's error for a format of a newer release.
var ErrNewer = errors.New("written by a newer release")

// Encode returns the file's content.
func Encode(s *State) ([]byte, error) {
	var b bytes.Buffer
	if err := s.Write(&b); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// Decode reads a file's content. What it returns without an error is whole.
func Decode(b []byte) (*State, error) {
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return nil, fmt.Errorf("not a state file: %w", err)
	}
	switch {
	case head.Version > Version:
		return nil, fmt.Errorf("format %d, this release reads up to %d: %w", head.Version, Version, ErrNewer)
	case head.Version < 1:
		return nil, fmt.Errorf("not a state file: format %d", head.Version)
	}
	s := &State{}
	if err := json.Unmarshal(b, s); err != nil {
		return nil, fmt.Errorf("not a state file: %w", err)
	}
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("not a state file: %w", err)
	}
	return s, nil
}

// check finds what Encode never wrote.
func (s *State) check() error {
	services := map[string]bool{}
	for _, svc := range s.Services {
		switch {
		case svc.Service == "" || services[svc.Service]:
			return fmt.Errorf("service %q without a name or twice", svc.Service)
		case svc.DrainTimeout < 0:
			return fmt.Errorf("service %s: drain timeout %v", svc.Service, svc.DrainTimeout)
		}
		services[svc.Service] = true
		dests := map[string]bool{}
		for _, d := range svc.Destinations {
			if d.Destination == "" || dests[d.Destination] {
				return fmt.Errorf("service %s: destination %q without a name or twice", svc.Service, d.Destination)
			}
			dests[d.Destination] = true
		}
	}
	for _, v := range s.Verdicts {
		if v.VirtualServer == "" || v.RealServer == "" || v.Checker == "" {
			return fmt.Errorf("a verdict without a name: %+v", v.Key)
		}
	}
	return nil
}
