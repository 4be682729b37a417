// Package control is how an operator reaches a running daemon: HTTP and JSON over
// a unix socket, and the client for it.
//
// It decides who may ask and who may change what (Access), that one socket belongs
// to one daemon, and how a failure is told to a person. It
// deliberately knows nothing of how a snapshot comes about: of the engine it
// imports the snapshot alone, as a reader.
//
// The version of the interface is the first element of each path. Within a
// version fields are only added, so that a client and a daemon of different
// releases understand each other.
//
// Rights are judged by what the kernel says of the caller (SO_PEERCRED,
// SO_PEERGROUPS) and not by the socket's owner and mode: two groups with different
// rights do not fit into one mode, and a caller whom the mode keeps out learns no more
// than "permission denied". Where a group is configured anyone may therefore connect;
// what a stranger gets is one refusal, and few strangers at a time.
//
// A lock file beside the socket, and not the socket, says who owns the path. To
// find out by connecting whether a socket's daemon is dead and then to remove the
// socket leaves a moment in which another daemon's new socket is removed; a lock
// goes with its process, however that ends. The lock file is never removed, for
// the same reason.
package control
