/*
 * A library for LD_PRELOAD that answers for a kernel's IPVS: every request is
 * acknowledged and none is carried out. With it a daemon that was built for libnl,
 * and that ends where there is no ip_vs, runs its health checks all the same.
 *
 * Only the exchange of generic netlink is replaced. The daemon's work before and
 * after it, messages built and freed included, stays. Numbers are those of libnl's
 * interface, so that its headers are not needed.
 */
struct nl_sock;
struct nl_msg;

typedef int (*callback)(struct nl_msg *, void *);

enum { kind_finish = 1, kind_ack = 4, kinds = 12 };

/* An id in the range of dynamic families; nothing is ever sent to it. */
enum { family = 0x2a };

/* A daemon of this kind waits for each answer before it asks again, on one socket. */
static struct {
	callback call;
	void *arg;
} on[kinds];

int genl_connect(struct nl_sock *sock)
{
	(void)sock;
	return 0;
}

int genl_ctrl_resolve(struct nl_sock *sock, const char *name)
{
	(void)sock;
	(void)name;
	return family;
}

int nl_socket_modify_cb(struct nl_sock *sock, int type, int kind, callback call, void *arg)
{
	(void)sock;
	(void)kind;
	if (type >= 0 && type < kinds) {
		on[type].call = call;
		on[type].arg = arg;
	}
	return 0;
}

int nl_send_auto(struct nl_sock *sock, struct nl_msg *msg)
{
	(void)sock;
	(void)msg;
	return 1;
}

int nl_recvmsgs_default(struct nl_sock *sock)
{
	(void)sock;
	if (on[kind_finish].call)
		on[kind_finish].call(0, on[kind_finish].arg);
	if (on[kind_ack].call)
		on[kind_ack].call(0, on[kind_ack].arg);
	return 0;
}
