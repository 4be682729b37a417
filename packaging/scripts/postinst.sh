#!/bin/sh
# After the files of a new version are in place. dpkg says "configure", with the
# version before on an upgrade; rpm the number of versions: 1, or 2 on an upgrade.
set -e

say() { printf 'sluice: %s\n' "$@" >&2; }

# first says what to do. Nothing is enabled or started: the daemon writes a table that
# another one may be writing, and only the operator knows when to change over.
first() {
	say "installed, and neither enabled nor started, since one daemon only may write the IPVS table" \
		"  check the file:  sluice check /etc/keepalived/keepalived.conf" \
		"  look first:      sluiced --observe (beside keepalived; writes nothing)"
	if systemctl --quiet is-active keepalived.service 2>/dev/null; then
		say "  change over:     a stop of keepalived empties the table and cuts connections; the way that cuts none:" \
			"                   https://github.com/sluice-lb/sluice/blob/main/docs/migrating-from-keepalived.md"
	else
		say "  start:           systemctl enable --now sluiced"
	fi
}

# refuses tells whether this version cannot start with the options and the file of the
# daemon that runs (process $1): what it could not do better stays as it is.
refuses() {
	# What the process was started with, its name left out.
	findings=$(tail -z -n +2 "/proc/$1/cmdline" | xargs -0 sh -c 'exec /usr/sbin/sluiced "$@" --config-test --json' sluiced 2>&1) && return 1
	case $findings in
	*'"severity":"fatal"'*) ;;
	*'"severity":"error"'*) tr '\0' '\n' <"/proc/$1/cmdline" | grep -qx -e --strict ;;
	*) return 1 ;;
	esac
}

# upgrade brings the new program in under a running daemon, whose table and whose
# connections stay. It never stops it: a daemon that cannot hand over goes on as it is.
upgrade() {
	systemctl --quiet is-active sluiced.service || return 0
	pid=$(systemctl show --property=MainPID --value sluiced.service)
	if refuses "$pid"; then
		say "the running version goes on, since this one does not take its configuration" \
			"  see why:    sluice check /etc/keepalived/keepalived.conf" \
			"  once mended: sluice handover"
		return 0
	fi
	status=0
	sluice handover >&2 || status=$?
	case $status in
	0) ;;
	2) say "the daemon has ended and the new one does not answer yet; the table stays as it is, unchecked" \
		"  see: systemctl status sluiced; journalctl -u sluiced" ;;
	*) say "the running version goes on: it could not be asked to hand over (sluice handover: status $status)" \
		"  bring this version in when it suits: sluice handover" \
		"  if that fails too: systemctl kill -s KILL sluiced (the table stays, and systemd starts this version)" ;;
	esac
}

case $1 in
configure | 1 | 2 | 3) ;;
*) exit 0 ;; # abort-upgrade and the like: nothing has changed
esac
# In a chroot or an image there is no systemd, and nothing that runs.
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
fi
case $1:$2 in
configure: | 1:*) first ;;
*) if [ -d /run/systemd/system ]; then upgrade; fi ;;
esac
