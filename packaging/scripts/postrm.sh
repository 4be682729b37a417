#!/bin/sh
# After the files are gone. dpkg says "remove" and then, or later, "purge"; rpm, which
# has no purge and leaves /var/lib/sluice, the number of versions that stay.
set -e

if [ "$1" = purge ]; then
	rm -rf /var/lib/sluice /run/sluice
	rm -f /etc/systemd/system/*.wants/sluiced.service
fi
case $1 in
remove | purge | 0)
	if [ -d /run/systemd/system ]; then
		systemctl daemon-reload || true
		systemctl reset-failed sluiced.service 2>/dev/null || true
	fi
	;;
esac
