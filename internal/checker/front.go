package checker

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Runner runs tasks: a Scheduler, or a reactor for those whose probe is a
// Conversation.
type Runner interface {
	Add(Task)
	Remove(ID)
	Update(Task)
	RunNow(ID)
	// Has tells whether there is such a task.
	Has(ID) bool
	Overdue() time.Duration
	Stats() Stats
	Run(context.Context) error
}

var (
	_ Runner = (*Scheduler)(nil)
	_ Runner = (*Front)(nil)
)

// Front is one Runner in front of several: a task whose probe is a Conversation goes
// to one of the loops, always to the same one by its ID, any other to the
// goroutines. Which of them runs a task makes no difference to its owner.
type Front struct {
	goroutines Runner
	loops      []Runner
}

// NewFront puts a Runner in front of others. Without loops all is run on goroutines.
func NewFront(goroutines Runner, loops ...Runner) *Front {
	return &Front{goroutines: goroutines, loops: loops}
}

// loop is the one for an ID; nil if there are none.
func (f *Front) loop(id ID) Runner {
	if len(f.loops) == 0 {
		return nil
	}
	return f.loops[uint64(id)%uint64(len(f.loops))]
}

// sides returns where a task belongs, and where else it may be.
func (f *Front) sides(t *Task) (here, there Runner) {
	l := f.loop(t.ID)
	switch _, ok := t.Probe.(Conversation); {
	case l == nil:
		return f.goroutines, nil
	case ok:
		return l, f.goroutines
	}
	return f.goroutines, l
}

// Add schedules a task; see Scheduler.Add.
func (f *Front) Add(t Task) {
	here, there := f.sides(&t)
	if there != nil && there.Has(t.ID) {
		panic(fmt.Sprintf("checker: add task %d: it exists already", t.ID))
	}
	here.Add(t)
}

// Remove forgets a task; see Scheduler.Remove.
func (f *Front) Remove(id ID) {
	if l := f.loop(id); l != nil {
		l.Remove(id)
	}
	f.goroutines.Remove(id)
}

// Update replaces a task's probe; see Scheduler.Update. Where the new probe is run by
// another Runner than the old one it is a Remove and an Add, and First counts.
func (f *Front) Update(t Task) {
	here, there := f.sides(&t)
	if there != nil && there.Has(t.ID) {
		there.Remove(t.ID)
		here.Add(t)
		return
	}
	here.Update(t)
}

// RunNow makes a task due at once; see Scheduler.RunNow.
func (f *Front) RunNow(id ID) {
	if l := f.loop(id); l != nil {
		l.RunNow(id)
	}
	f.goroutines.RunNow(id)
}

// Has tells whether there is such a task.
func (f *Front) Has(id ID) bool {
	l := f.loop(id)
	return l != nil && l.Has(id) || f.goroutines.Has(id)
}

// Overdue is how late the most overdue task of all is.
func (f *Front) Overdue() time.Duration {
	d := f.goroutines.Overdue()
	for _, l := range f.loops {
		d = max(d, l.Overdue())
	}
	return d
}

// Stats are those of all together.
func (f *Front) Stats() Stats {
	s := f.goroutines.Stats()
	for _, l := range f.loops {
		o := l.Stats()
		s.Tasks += o.Tasks
		s.Running += o.Running
		s.Waiting += o.Waiting
		s.Hung += o.Hung
		s.Limit += o.Limit
		s.Runs += o.Runs
		s.Panics += o.Panics
		s.Hangs += o.Hangs
	}
	return s
}

// Run runs all until ctx is done. If one fails the others end too.
func (f *Front) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ends := make(chan error)
	run := func(r Runner) {
		err := r.Run(ctx)
		cancel()
		ends <- err
	}
	go run(f.goroutines)
	for _, l := range f.loops {
		go run(l)
	}
	err := <-ends
	for range f.loops {
		err = errors.Join(err, <-ends)
	}
	return err
}
