package ipvs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"syscall"
	"time"
)

// DefaultTimeout bounds each exchange with the kernel.
const DefaultTimeout = 5 * time.Second

type options struct {
	netNSPath string
	netNSFD   int
	timeout   time.Duration
}

// Option changes how Dial opens a Client.
type Option func(*options)

// WithNetNS opens the socket in the network namespace at a path such as
// "/run/netns/blue". The caller needs CAP_SYS_ADMIN there.
func WithNetNS(path string) Option { return func(o *options) { o.netNSPath = path } }

// WithNetNSFD opens the socket in the network namespace of an open file, which
// the caller may close after Dial.
func WithNetNSFD(fd int) Option { return func(o *options) { o.netNSFD = fd } }

// WithTimeout bounds each exchange with the kernel, a batch's every send and a
// dump's every reading; the default is DefaultTimeout.
func WithTimeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// Client is a connection to the IPVS table of one network namespace. It is safe
// for use by several goroutines, whose exchanges take turns. It stays usable
// after an error, also after the ip_vs module was unloaded and loaded again.
type Client struct {
	mu     sync.Mutex
	c      *conn
	closed bool
}

// Dial opens a client for the network namespace of the calling thread, or the
// one an option names. Without the ip_vs module it returns ErrNoModule.
func Dial(opts ...Option) (*Client, error) {
	o := options{timeout: DefaultTimeout}
	for _, f := range opts {
		f(&o)
	}
	s, err := openSocket(o)
	if err != nil {
		return nil, &Error{Op: "open IPVS socket", Err: err}
	}
	cl, err := newClient(s, o.timeout)
	if err != nil {
		_ = s.close()
		return nil, &Error{Op: "open IPVS socket", Err: err}
	}
	return cl, nil
}

func newClient(s socket, timeout time.Duration) (*Client, error) {
	c := newConn(s, timeout)
	if err := s.setDeadline(time.Now().Add(timeout)); err != nil {
		return nil, err
	}
	var err error
	if c.fam, err = s.family(); err != nil {
		return nil, err
	}
	return &Client{c: c}, nil
}

// Close closes the socket. An exchange under way is finished first; later ones
// fail with fs.ErrClosed.
func (cl *Client) Close() error {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.closed {
		return nil
	}
	cl.closed = true
	return cl.c.sock.close()
}

// AddService adds a service. One that exists gives fs.ErrExist and is left as it
// is; an unknown scheduler or persistence engine gives fs.ErrNotExist.
func (cl *Client) AddService(ctx context.Context, s Service) error {
	return cl.one(ctx, Op{Kind: OpAddService, Service: s})
}

// SetService changes an existing service in place; its destinations and
// connections stay. A missing one gives fs.ErrNotExist.
func (cl *Client) SetService(ctx context.Context, s Service) error {
	return cl.one(ctx, Op{Kind: OpSetService, Service: s})
}

// DelService deletes a service with all its destinations. Only the key matters.
func (cl *Client) DelService(ctx context.Context, s Service) error {
	return cl.one(ctx, Op{Kind: OpDelService, Service: s})
}

// AddDest adds a destination to a service, of which only the key matters. One
// that exists gives fs.ErrExist and is left as it is.
func (cl *Client) AddDest(ctx context.Context, s Service, d Destination) error {
	return cl.one(ctx, Op{Kind: OpAddDest, Service: s, Destination: d})
}

// SetDest changes a destination in place; its connections and counters stay.
func (cl *Client) SetDest(ctx context.Context, s Service, d Destination) error {
	return cl.one(ctx, Op{Kind: OpSetDest, Service: s, Destination: d})
}

// DelDest deletes a destination, of which only the key matters.
func (cl *Client) DelDest(ctx context.Context, s Service, d Destination) error {
	return cl.one(ctx, Op{Kind: OpDelDest, Service: s, Destination: d})
}

func (cl *Client) one(ctx context.Context, op Op) error { return cl.Batch(ctx, []Op{op})[0] }

// Batch applies operations in order and returns one error for each, nil for
// those that were applied. A failure does not stop what follows, except that
// nothing more is sent once the context ends or the kernel does not answer. An
// error that matches ErrUnknownResult leaves open whether its operation was
// applied; any other means that it was not.
func (cl *Client) Batch(ctx context.Context, ops []Op) []error {
	errs := make([]error, len(ops))
	cl.mu.Lock()
	defer cl.mu.Unlock()
	var stop error
	if cl.closed {
		stop = fs.ErrClosed
	}
	for start := 0; start < len(ops); start += batchSize {
		end := min(start+batchSize, len(ops))
		chunk, results := ops[start:end], errs[start:end]
		if stop != nil {
			for i, op := range chunk {
				results[i] = opError(op, fmt.Errorf("not sent: %w", stop))
			}
			continue
		}
		stop = cl.c.batch(ctx, chunk, results)
		if again, err := cl.familyMoved(ctx, firstErrno(results, syscall.ENOENT)); err != nil {
			for i, op := range chunk {
				if errnoOf(results[i]) == syscall.ENOENT {
					results[i] = opError(op, err)
				}
			}
			stop = err
		} else if again {
			clear(results)
			stop = cl.c.batch(ctx, chunk, results)
		}
	}
	return errs
}

// familyMoved looks into an ENOENT, which the kernel also gives for a family that
// went away with its module. again is true if the family is back under another
// number, so that nothing of the exchange reached it.
func (cl *Client) familyMoved(ctx context.Context, noent bool) (again bool, err error) {
	if !noent {
		return false, nil
	}
	end, err := cl.c.begin(ctx)
	if err != nil {
		return false, nil // the answer stands as it is
	}
	defer end()
	id, err := cl.c.sock.family()
	switch {
	case errors.Is(err, ErrNoModule):
		return false, err
	case err != nil:
		cl.c.dirty = true
		return false, nil
	case id != cl.c.fam:
		cl.c.fam = id
		return true, nil
	}
	return false, nil
}

func errnoOf(err error) syscall.Errno {
	if e, ok := errors.AsType[*Error](err); ok && e.Err == nil {
		return e.Errno
	}
	return 0
}

func firstErrno(errs []error, errno syscall.Errno) bool {
	for _, err := range errs {
		if err != nil && errnoOf(err) == errno {
			return true
		}
	}
	return false
}

// Services lists all services, those with an address before those with a mark,
// else in the order of the kernel's hash table. An empty table is an empty list.
// Flags carry Hashed: compare with Flags.Wanted or Service.Canonical.
func (cl *Client) Services(ctx context.Context) ([]ServiceInfo, error) {
	got, err := read(ctx, cl, func() ([]ServiceInfo, error) {
		return list(ctx, cl.c, []ServiceInfo{}, cmdGetService, nil, decodeService,
			func(x, y *ServiceInfo) int { return compareServices(&x.ServiceKey, &y.ServiceKey) })
	})
	if err != nil {
		return nil, readError("list services", ServiceKey{}, err)
	}
	return got, nil
}

// Destinations lists the destinations of a service, the newest first. A service
// that does not exist gives an empty list, as in the kernel.
func (cl *Client) Destinations(ctx context.Context, k ServiceKey) ([]DestinationInfo, error) {
	return cl.AppendDestinations(ctx, []DestinationInfo{}, k)
}

// AppendDestinations is Destinations into a buffer of the caller's: what is read is
// appended to buf. What buf had room for is lost if it fails.
func (cl *Client) AppendDestinations(ctx context.Context, buf []DestinationInfo, k ServiceKey) ([]DestinationInfo, error) {
	const op = "list destinations"
	k = k.Canonical()
	if err := k.check(); err != nil {
		return nil, readError(op, k, err)
	}
	got, err := read(ctx, cl, func() ([]DestinationInfo, error) {
		return list(ctx, cl.c, buf, cmdGetDest,
			func(b []byte) []byte { return appendServiceKey(b, k) },
			func(data []byte) (DestinationInfo, error) { return decodeDestination(data, k.Family) },
			func(x, y *DestinationInfo) int { return compareDestinations(&x.DestinationKey, &y.DestinationKey) })
	})
	if err != nil {
		return nil, readError(op, k, err)
	}
	return got, nil
}

func compareServices(x, y *ServiceKey) int {
	return cmp.Or(x.Addr.Compare(y.Addr), cmp.Compare(x.Port, y.Port), cmp.Compare(x.Protocol, y.Protocol),
		cmp.Compare(x.FWMark, y.FWMark), cmp.Compare(x.Family, y.Family))
}

func compareDestinations(x, y *DestinationKey) int {
	if c := x.Addr.Compare(y.Addr); c != 0 {
		return c
	}
	return cmp.Compare(x.Port, y.Port)
}

// Service reads one service; a missing one gives fs.ErrNotExist.
func (cl *Client) Service(ctx context.Context, k ServiceKey) (ServiceInfo, error) {
	const op = "get service"
	k = k.Canonical()
	if err := k.check(); err != nil {
		return ServiceInfo{}, readError(op, k, err)
	}
	s, err := get(ctx, cl, cmdGetService, func(b []byte) []byte { return appendServiceKey(b, k) }, decodeService)
	return s, readError(op, k, err)
}

// Timeouts reads the connection timeouts.
func (cl *Client) Timeouts(ctx context.Context) (Timeouts, error) {
	t, err := get(ctx, cl, cmdGetConfig, nil, decodeTimeouts)
	return t, readError("get timeouts", ServiceKey{}, err)
}

// Info reads the kernel's IPVS version and the size of its connection table.
func (cl *Client) Info(ctx context.Context) (Info, error) {
	i, err := get(ctx, cl, cmdGetInfo, nil, decodeInfo)
	return i, readError("get info", ServiceKey{}, err)
}

// SetTimeouts changes the connection timeouts; zeros stay as they are.
func (cl *Client) SetTimeouts(ctx context.Context, t Timeouts) error {
	return cl.command(ctx, "set timeouts", ServiceKey{}, cmdSetConfig, func(b []byte) []byte { return appendTimeouts(b, t) })
}

// Flush deletes every service of the namespace, whoever made it. The destinations
// stay on the kernel's trash list for a while and make each later addition
// slower: to change a table, change it in place.
func (cl *Client) Flush(ctx context.Context) error {
	return cl.command(ctx, "flush", ServiceKey{}, cmdFlush, nil)
}

// Zero resets the traffic statistics of a service and its destinations, or of
// the whole table for the zero key. Connection counters are not touched.
func (cl *Client) Zero(ctx context.Context, k ServiceKey) error {
	const op = "zero statistics"
	if k == (ServiceKey{}) {
		return cl.command(ctx, op, k, cmdZero, nil)
	}
	k = k.Canonical()
	if err := k.check(); err != nil {
		return readError(op, k, err)
	}
	return cl.command(ctx, op, k, cmdZero, func(b []byte) []byte { return appendServiceKey(b, k) })
}

func (cl *Client) command(ctx context.Context, op string, k ServiceKey, cmd uint8, attributes func([]byte) []byte) error {
	return readError(op, k, cl.ask(ctx, cmd, attributes))
}

// ask runs one command that has no answer but its acknowledgement.
func (cl *Client) ask(ctx context.Context, cmd uint8, attributes func([]byte) []byte) error {
	return cl.exchange(ctx, func() (sent bool, err error) { return cl.c.call(ctx, cmd, attributes, nil) })
}

// exchange runs one exchange that changes something; sent tells whether the kernel
// may have acted on it.
func (cl *Client) exchange(ctx context.Context, f func() (sent bool, err error)) error {
	_, err := read(ctx, cl, func() (struct{}, error) {
		sent, err := f()
		if _, answered := errors.AsType[*kernelError](err); err != nil && sent && !answered {
			err = fmt.Errorf("%w: %w", ErrUnknownResult, err)
		}
		return struct{}{}, err
	})
	return err
}

// get reads a single answer.
func get[T any](ctx context.Context, cl *Client, cmd uint8, attributes func([]byte) []byte, decode func([]byte) (T, error)) (T, error) {
	return read(ctx, cl, func() (T, error) {
		var v, zero T
		found := false
		_, err := cl.c.call(ctx, cmd, attributes, func(data []byte) (err error) {
			v, err = decode(data)
			found = true
			return err
		})
		if err == nil && !found {
			err = errIncomplete
		}
		if err != nil {
			return zero, err
		}
		return v, nil
	})
}

// read runs one exchange, and again if the family turns out to have a new number.
func read[T any](ctx context.Context, cl *Client, exchange func() (T, error)) (T, error) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	var zero T
	if cl.closed {
		return zero, fs.ErrClosed
	}
	v, err := exchange()
	k, ok := errors.AsType[*kernelError](err)
	again, moved := cl.familyMoved(ctx, ok && k.errno == syscall.ENOENT)
	switch {
	case moved != nil:
		return zero, moved
	case again:
		return exchange()
	}
	return v, err
}

// readError wraps the failure of what is no Op; nil stays nil.
func readError(op string, k ServiceKey, err error) error {
	if err == nil {
		return nil
	}
	e := &Error{Op: op, Service: k, Err: err}
	if ke, ok := errors.AsType[*kernelError](err); ok {
		e.Errno, e.Message, e.Err = ke.errno, ke.message, nil
		if ke.errno == syscall.EPERM {
			e.Hint = hint(Op{}, ke.errno)
		}
	}
	return e
}
