//go:build !linux

package ipvs

import "errors"

func openSocket(options) (socket, error) { return nil, errors.ErrUnsupported }
